"""README and docs say what the code says: options, verbs, modules, layers, steps, keys, links."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cpubuild import plan, settings, state, tasks
from cpubuild.errors import ExitCode
from cpubuild.release import known_release, profiles

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PACKAGE = ROOT / "build" / "cpubuild"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
OWN = (
    "README.md",
    "CHANGELOG.md",
    *(
        f"docs/{name}.md"
        for name in (
            "architecture",
            "how-it-builds",
            "offline",
            "options",
            "provisioning",
            "receipt",
        )
    ),
)
VERBS = {task.name: task for task in tasks.TASKS}


def section(text: str, heading: str) -> str:
    """The part of a page below ``heading``, up to the next heading of its level or above."""
    level = heading.split(" ")[0]
    assert f"\n{heading}\n" in text, f"there is no heading {heading!r}"
    rest = text.partition(f"\n{heading}\n")[2]
    return re.split(rf"(?m)^#{{1,{len(level)}}} ", rest)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of a page's tables, head and rule left out, backticks stripped."""
    table = [line for line in text.splitlines() if line.lstrip().startswith("|")]
    cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line.strip())[1:-1]] for line in table]
    return [row for row in cells if row[0].startswith("`")]


def words(cell: str) -> str:
    return cell.strip("`")


# --- options and verbs -------------------------------------------------------------------------


def test_the_settings_table_lists_the_options_in_order() -> None:
    listed = [(words(r[0]), words(r[1])) for r in rows(section(README, "## Settings"))]
    assert listed == [
        ("--" + name.replace("_", "-"), settings.PREFIX + name.upper()) for name in settings.NAMES
    ]


def test_the_settings_table_tells_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    shown = {words(r[0]): words(r[2]) for r in rows(section(README, "## Settings"))}
    told = {
        "--" + name.replace("_", "-"): value.replace("/home/someone", "~")
        for name, value, _ in settings.resolve({}, {}).origins
    }
    assert shown == told


def test_the_settings_table_is_the_namespace() -> None:
    assert set(tasks.SETTING_OPTIONS) == set(settings.NAMES)
    for name in tasks.COMMON:
        assert f"`{'-' * min(2, len(name))}{name}`" in section(README, "## Settings")


def test_the_settings_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    folder = str(settings.config_file({}).parent).replace("/home/someone", "~")
    assert f"`{folder}`" in section(README, "## Settings")


def test_the_verbs_table_is_the_namespace() -> None:
    listed = [words(row[0]) for row in rows(section(README, "## Verbs"))]
    assert sorted(listed) == sorted(VERBS) == sorted(tasks.namespace.task_names)


def own_options(name: str) -> set[str]:
    shared = {n.replace("_", "-") for n in (*settings.NAMES, *tasks.COMMON)}
    return {"--" + option for option in VERBS[name].help if option not in shared}


def test_the_page_of_options_lists_those_of_single_verbs() -> None:
    listed = rows(section(PAGES["options.md"], "## Options of single verbs"))
    pairs = {(words(verb), words(option)) for verb, option, _ in listed}
    assert pairs == {(verb, option) for verb in VERBS for option in own_options(verb)}


def test_the_page_of_options_names_the_verbs_without() -> None:
    text = section(PAGES["options.md"], "## Options of single verbs")
    sentence = next(line for line in text.splitlines() if "no options of their own" in line)
    assert set(re.findall(r"`(\w+)`", sentence)) == {v for v in VERBS if not own_options(v)}


def test_the_switches_are_on_and_off_as_the_page_says() -> None:
    text = section(PAGES["options.md"], "## The settings file")
    sentence = text.partition("Switches are on with ")[2].partition(".")[0]
    on, off = (set(re.findall(r"`(\w+)`", part)) for part in sentence.split("off with"))
    assert on == settings.TRUE
    assert off == settings.FALSE - {""}


def options_in(text: str) -> set[str]:
    code = re.findall(r"`[^`\n]+`|(?m:^ {4,}\S.*$)", text)
    return {o for part in code for o in re.findall(r"(?<![\w-])--[a-z][a-z-]+", part)}


FOREIGN = {
    "--help",
    "--check",  # git apply
    "--global",  # git config
    "--depth",  # git clone
    "--branch",
    "--schemafile",  # check-jsonschema
    "--no-install-recommends",  # apt-get
    "--now",  # systemctl
    "--host",  # vllm serve, and check
    "--shm-size",  # docker
    "--cap-add",
    "--build-arg",
    "--secret",
    "--init",
    "--detach",  # docker compose
}


@pytest.mark.parametrize("name", OWN)
def test_no_page_names_an_option_that_there_is_not(name: str) -> None:
    known = {"--" + n.replace("_", "-") for n in (*settings.NAMES, *tasks.COMMON)}
    known |= {option for verb in VERBS for option in own_options(verb)} | FOREIGN
    assert options_in((ROOT / name).read_text(encoding="utf-8")) <= known


@pytest.mark.parametrize("name", OWN)
def test_no_page_names_a_setting_that_there_is_not(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    names = (*settings.NAMES, *settings.OTHER_VARIABLES)
    known = {settings.PREFIX + n.upper() for n in names}
    assert set(re.findall(r"CPUBUILD_[A-Z_]+\b", text)) - {"CPUBUILD_"} <= known


def test_the_exit_codes_that_scripts_branch_on() -> None:
    assert "5\n(download) and 75 (busy or interrupted)" in PAGES["provisioning.md"]
    assert (ExitCode.DOWNLOAD, ExitCode.BUSY, ExitCode.PREREQUISITE) == (5, 75, 4)


# --- modules, layers, steps, keys --------------------------------------------------------------


@cache
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_modules", HERE / "make_modules.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_architecture_describes_every_module_and_no_other() -> None:
    shown = section(PAGES["architecture.md"], "## Modules").splitlines()
    missing = [line for line in maker().section().splitlines() if line not in shown]
    assert not missing, "python tests/unit/docs/make_modules.py writes these:\n" + "\n".join(
        missing
    )
    text = PAGES["architecture.md"]
    assert maker().page(text) == text, "python tests/unit/docs/make_modules.py mends it"


def test_the_section_of_modules_names_each_once() -> None:
    named = [words(row[0]) for row in rows(maker().section())]
    there = {p.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("*.py")}
    assert sorted(named) == sorted(n for n in there if not n.endswith("__init__.py"))


def test_architecture_shows_the_layers_of_the_contract() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c["type"] == "layers")
    shown = re.findall(r"(?s)```layers\n(.*?)\n```", PAGES["architecture.md"])[0].splitlines()
    assert shown == [layer.replace("cpubuild.", "") for layer in layers]


def test_architecture_names_every_folder_of_the_state_root() -> None:
    listed = [words(r[0]) for r in rows(section(PAGES["architecture.md"], "### The state root"))]
    folders = {name.rstrip("/") for name in listed if name.endswith("/")}
    assert folders == set(state.LAYOUT)
    root = state.State(root=Path("/root"))
    assert {root.current.name, root.running.name} <= set(listed)


def some_inputs() -> plan.Inputs:
    release = known_release("0.32.0", "x86_64")
    assert release is not None
    wheel = {"python": "3.11", "torch": "2", "torch_sha256": None, "build_requirements": []}
    return plan.Inputs(
        release=release,
        tree=Path("/tree"),
        choices=(),
        warnings=(),
        wheel=wheel | {"arch": "x86_64", "patches": [], "targets": "_C"},
        env={"profile": "text"},
    )


def test_the_readme_lists_the_steps_of_a_plan_in_order(tmp_path: Path) -> None:
    made = plan.make_plan(some_inputs(), state.State(root=tmp_path))
    text = section(README, "## What a bootstrap does, in this order")
    assert [words(row[0]) for row in rows(text)] == [step.id for step in made.steps]


def keys_written(path: Path, function: str) -> list[str]:
    """The keys of the dictionary that ``function`` in ``path`` returns."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    body = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == function)
    returned = [n.value for n in ast.walk(body) if isinstance(n, ast.Return)]
    table = next(value for value in returned if isinstance(value, ast.Dict))
    return [key.value for key in table.keys if isinstance(key, ast.Constant)]


def test_how_it_builds_lists_what_shapes_the_wheel() -> None:
    listed = [words(row[0]) for row in rows(section(PAGES["how-it-builds.md"], "## The wheel"))]
    assert listed == keys_written(PACKAGE / "gather.py", "wheel_inputs")


def test_the_page_of_the_receipt_lists_its_fields() -> None:
    text = PAGES["receipt.md"].partition("\n## ")[0]
    listed = [words(row[0]) for row in rows(text)]
    assert listed == keys_written(PACKAGE / "receipt.py", "compose")


# --- the limits the README states --------------------------------------------------------------


def test_the_readme_names_all_that_the_profile_drops() -> None:
    text = section(README, "## What is not done, and limits")
    for name in (rule["name"] for rule in profiles()["text"]["drop"]):
        assert f"`{name}`" in text


def test_the_readme_names_the_onednn_versions_with_a_list() -> None:
    lists = sorted(path.stem for path in (PACKAGE / "data" / "onednn").glob("*.txt"))
    text = section(README, "## What is not done, and limits")
    sentence = text.partition("**The list of kept oneDNN sources**")[2].partition("only.")[0]
    assert re.findall(r"\d+(?:\.\d+)+", sentence) == lists


def test_the_targets_of_make_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    verbs = re.findall(r"(?m)^VERBS := (.*)$", makefile)[0]
    there = set(re.findall(r"(?m)^\.PHONY: (.*)$", makefile)[0].replace("$(VERBS)", verbs).split())
    named = set(
        re.findall(r"(?:^ {4,}|`)(?:[A-Z_]+=\S+ )?make (?:-s )?([a-z-]+)", README, re.MULTILINE)
    )
    assert {"bootstrap", "test", "verify"} <= named <= there
    assert set(VERBS) <= there


def test_figures_stand_under_their_command() -> None:
    assert "`bench/`" in section(README, "## Measured")


# --- links -------------------------------------------------------------------------------------

# Pages that come with the parts they describe.
WRITTEN_ELSEWHERE = {"exit-codes.md", "verify.md", "diagnose.md", "check.md", "patches.md"}


@pytest.mark.parametrize("name", OWN)
def test_links_lead_to_files_and_headings(name: str) -> None:
    page = ROOT / name
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if target.name in WRITTEN_ELSEWHERE and not target.exists():
            continue
        assert target.is_file(), f"{name} links to {link}"
        if anchor:
            heads = re.findall(r"(?m)^#+ (.+)$", target.read_text(encoding="utf-8"))
            assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in heads}


def test_every_page_can_be_reached() -> None:
    text = README + "".join(PAGES.values())
    assert [name for name in PAGES if f"{name})" not in text and f"{name}#" not in text] == []
