"""The documents that verbs print and the receipt keep to the schemas in the package."""

from __future__ import annotations

import copy
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing import Registry, Resource

from cpubuild import activate, bootstrap, gather, jsonio, plan, receipt, survey, tasks, verbs
from cpubuild.errors import CpuBuildError, ExitCode, Problem, fail
from cpubuild.facts.collect import replay
from cpubuild.facts.model import Compiler, HostFacts
from cpubuild.patching import Applied
from cpubuild.patching.model import Outcome as PatchOutcome
from cpubuild.patching.model import Touched
from cpubuild.picks import Picks
from cpubuild.release import known_release
from cpubuild.settings import resolve
from cpubuild.sources import Rejected
from cpubuild.sources.onednn import OnednnChoice
from cpubuild.sources.pipconfig import PipConfig
from cpubuild.sources.torch import TorchChoice
from cpubuild.sources.vllm import VllmChoice
from cpubuild.state import State
from cpubuild.survey import Survey
from cpubuild.system import Package
from cpubuild.verify.model import (
    Check,
    KernelAnswer,
    PlatformAnswer,
    Smoke,
    VerifyReport,
    VllmAnswer,
)

SCHEMAS = resources.files("cpubuild").joinpath("data", "schemas")
NAMES = sorted(entry.name for entry in SCHEMAS.iterdir())
MINE = ("bootstrap.json", "error.json", "plan.json", "receipt.json", "status.json")
HOST = Path(__file__).parents[1] / "hosts" / "amx-bf16--sapphire-rapids-vm"
SHA = "0123456789abcdef" * 4
REGISTRY: Registry[Any] = Registry().with_resources(
    (name, Resource.from_contents(json.loads(SCHEMAS.joinpath(name).read_text("utf-8"))))
    for name in NAMES
)


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(REGISTRY.contents(name), registry=REGISTRY)


def validate(document: Any, name: str) -> dict[str, Any]:
    """Write the document as JSON, read it back, hold it against the schema."""
    value: dict[str, Any] = json.loads(jsonio.dumps(document))
    validator(name).validate(value)
    return value


# --- synthetic inputs: a recorded host, a release of the table, choices made up ----------------


@pytest.fixture
def facts() -> HostFacts:
    compiler = Compiler(
        path="/usr/bin/g++",
        cc="/usr/bin/gcc",
        kind="gnu",
        version="12.2.0",
        target="x86_64-linux-gnu",
        works=True,
        cxx20=True,
    )
    return replace(replay(HOST), compilers=(compiler,))


@pytest.fixture
def picks(facts: HostFacts, tmp_path: Path) -> Picks:
    tree = tmp_path / "tree"
    (tree / "requirements" / "build").mkdir(parents=True)
    for name in ("common.txt", "cpu.txt", "build/cpu.txt"):
        (tree / "requirements" / name).write_text("numpy\ntorchaudio\n", encoding="utf-8")
    release = known_release("0.32.0", "x86_64")
    assert release is not None
    return Picks(
        vllm=VllmChoice(
            spec="0.32.0",
            kind="sdist",
            key=SHA,
            version="0.32.0",
            url="https://user:secret@index.invalid/vllm-0.32.0.tar.gz",
            filename="vllm-0.32.0.tar.gz",
            sha256=SHA,
            reason="the index has it",
            rejected=(Rejected(what="the git tag", why="no answer in 3 s"),),
        ),
        tree=tree,
        release=release,
        interpreter=next(p for p in facts.interpreters if p.version.startswith("3.11")),
        torch=TorchChoice(
            project="torch",
            pin="2.13.0+cpu",
            version="2.13.0+cpu",
            filename="torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
            url="https://index.invalid/torch.whl",
            origin="https://index.invalid",
            reason="exactly the pin",
            sha256=SHA,
        ),
        onednn=OnednnChoice(
            tag="v3.13",
            kind="distro",
            key=SHA,
            version="3.7.2",
            package="3.7.2+ds-2",
            suite="trixie",
            files=(("onednn.dsc", SHA, 1),),
            reason="a source package",
            warning="oneDNN 3.7.2 is used; this vLLM pins 3.13",
        ),
        compiler=facts.compilers[0],
    )


@pytest.fixture
def gathered(
    picks: Picks, facts: HostFacts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> gather.Gathered:
    monkeypatch.setattr("cpubuild.gather.patching.check", lambda tree, selected: ())
    settings = resolve({"state": str(tmp_path / "state")}, NO_ENVIRON).settings
    return gather.gather(picks, settings, facts, PipConfig())


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings of whoever runs the tests, and the handler of SIGTERM put back."""
    for name in [n for n in os.environ if n.startswith("CPUBUILD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CPUBUILD_CONFIG", "/dev/null")
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def state(tmp_path: Path) -> State:
    state = State(root=tmp_path / "state")
    state.prepare()
    return state


NO_ENVIRON = {"CPUBUILD_CONFIG": "/dev/null"}


def report(verdict: Any = "pass") -> dict[str, Any]:
    found = VerifyReport(
        verdict=verdict,
        level="default",
        target="/state/current/bin/python",
        folder="/state/runs/1/verify",
        checks=(Check(id="identity.version", status="pass", summary="0.32.0+cpu"),),
        seconds=41.5,
        vllm=VllmAnswer(distribution="vllm", version="0.32.0+cpu"),
        platform=PlatformAnswer(cls="CpuPlatform", is_cpu=True),
        kernels=KernelAnswer(library="_C.abi3.so", isa="AMX and BF16"),
        smoke=Smoke(tokens=16, seconds=0.9),
    )
    return found.to_json()


def applied() -> Applied:
    return Applied(
        id="flash-mla-gcc12",
        outcome=PatchOutcome.APPLIES,
        reason="g++ 12.2.0 is below 12.3",
        source="flash-mla-gcc12/0.30.diff",
        diff="--- a/x\n+++ b/x\n",
        diff_sha256=SHA,
        files=(Touched(path="x", before=SHA, after=""),),
    )


def make_receipt(gathered: gather.Gathered, facts: HostFacts, state: State) -> dict[str, Any]:
    env = state.envs / gathered.inputs.plan_id
    (env / "bin").mkdir(parents=True, exist_ok=True)
    resolved = resolve({"state": str(state.root)}, NO_ENVIRON)
    step = {"id": "lock", "fingerprint": SHA, "status": "done", "seconds": 1.5, "log": "/log"}
    return receipt.compose(
        inputs=gathered.inputs,
        request=SHA,
        facts=facts,
        manifest={
            "file": "vllm-0.32.0+cpu-cp311-cp311-linux_x86_64.whl",
            "sha256": SHA,
            "seconds": 60.0,
            "patches": [jsonio.plain(applied())],
            "build_packages": ["torch==2.13.0+cpu"],
        },
        installed={"packages": ["torch==2.13.0+cpu"], "lock_sha256": SHA},
        report=report(),
        variables=activate.variables(env, facts, compiler="/usr/bin/g++"),
        settings=resolved.origins,
        steps=[step],
        env=env,
        lock=state.locks / "lock.txt",
    )


def call(**options: Any) -> verbs.Call:
    return verbs.Call(
        flags={"state": options.pop("state")}, options=options, verbose=False, environ=NO_ENVIRON
    )


# --- the schemas themselves --------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_each_schema_is_a_schema(name: str) -> None:
    schema = REGISTRY.contents(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert schema["title"]


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for part in value.values():
            yield from references(part)
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


@pytest.mark.parametrize("name", NAMES)
def test_every_reference_leads_somewhere(name: str) -> None:
    resolver = REGISTRY.resolver(base_uri=name)
    for reference in references(REGISTRY.contents(name)):
        assert resolver.lookup(reference).contents


def test_the_exit_codes_of_the_error_schema_are_those_of_the_code() -> None:
    listed = REGISTRY.contents("error.json")["$defs"]["exit_code"]["enum"]
    assert listed == sorted(int(code) for code in ExitCode if code is not ExitCode.OK)


# --- documents made by the code ----------------------------------------------------------------


def test_the_receipt(gathered: gather.Gathered, facts: HostFacts, state: State) -> None:
    env = state.envs / gathered.inputs.plan_id
    receipt.save(env, make_receipt(gathered, facts, state))
    kept = receipt.load(env)
    value = validate(kept, "receipt.json")
    assert set(value["sources"]) == {"vllm", "torch", "python", "compiler", "onednn"}
    assert "secret" not in json.dumps(value)
    assert value["warnings"][0] == "oneDNN 3.7.2 is used; this vLLM pins 3.13"


def test_a_receipt_says_nothing_that_names_the_host(
    gathered: gather.Gathered, facts: HostFacts, state: State
) -> None:
    value = validate(make_receipt(gathered, facts, state), "receipt.json")
    assert not {"hostname", "user", "environment"} & set(value["host"])


@pytest.mark.parametrize(
    ("where", "wrong"),
    [
        (("schema",), 2),
        (("requests",), "short"),
        (("vllm", "version"), "0.32.0"),
        (("wheel", "sha256"), None),
        (("lock", "sha256"), None),
        (("wheel", "inputs"), {}),
        (("sources",), {}),
        (("created",), "yesterday"),
        (("verify", "verdict"), "fail"),
        (("steps", 0, "status"), "perhaps"),
    ],
)
def test_a_wrong_receipt_is_refused(
    where: tuple[Any, ...],
    wrong: Any,
    gathered: gather.Gathered,
    facts: HostFacts,
    state: State,
) -> None:
    value = copy.deepcopy(validate(make_receipt(gathered, facts, state), "receipt.json"))
    inner: Any = value
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = wrong
    with pytest.raises(ValidationError):
        validator("receipt.json").validate(value)


@pytest.mark.parametrize("changed", [True, False])
def test_bootstrap(
    changed: bool,
    gathered: gather.Gathered,
    facts: HostFacts,
    state: State,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = bootstrap.Outcome(
        changed=changed,
        environment=state.envs / gathered.inputs.plan_id,
        plan=plan.make_plan(gathered.inputs, state) if changed else None,
        receipt=make_receipt(gathered, facts, state),
        seconds=12.34567,
    )
    monkeypatch.setattr(bootstrap, "bootstrap", lambda resolved, state: made)
    outcome = verbs.bootstrap(call(state=str(state.root)))
    value = validate(outcome.document, "bootstrap.json")
    assert value["changed"] is changed
    assert value["plan"]["id"] == gathered.inputs.plan_id
    assert [s["id"] for s in value["plan"]["steps"]] == (
        [
            *("lock", "buildenv", "patch", "compile"),
            *("dependencies", "environment", "verify", "activate"),
        ]
        if changed
        else []
    )


def test_bootstrap_promises_what_scripts_read() -> None:
    promised = {"changed", "plan", "environment", "receipt", "seconds"}
    assert promised <= set(REGISTRY.contents("bootstrap.json")["required"])


def test_plan(
    gathered: gather.Gathered, facts: HostFacts, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Survey(
        facts=facts,
        config=PipConfig(),
        vllm=gathered.picks.vllm,
        release=gathered.picks.release,
        tree=gathered.picks.tree,
        findings=(),
        missing=(Package(need="git", names=("git",), reason="patches go through it"),),
        installs=False,
    )
    for name in ("look", "with_tree", "judged"):
        monkeypatch.setattr(survey, name, lambda *given, **named: seen)
    monkeypatch.setattr(survey, "choose", lambda *given: gathered)
    outcome = verbs.plan(call(state=str(state.root), why=True))
    value = validate(outcome.document, "plan.json")
    assert value["changes"] is True
    assert value["why"] == ["the wheel cache is empty"]
    assert value["packages"][0]["names"] == ["git"]
    assert "without torchaudio" in " ".join(value["warnings"])
    assert "secret" not in json.dumps(value)


def test_status_of_an_empty_state_root(tmp_path: Path) -> None:
    outcome = verbs.status(call(state=str(tmp_path / "nothing")))
    value = validate(outcome.document, "status.json")
    assert value["environments"] == []
    assert value["current"] is None


def test_status_with_a_current_and_an_incomplete_environment(
    gathered: gather.Gathered, facts: HostFacts, state: State
) -> None:
    env = state.envs / gathered.inputs.plan_id
    receipt.save(env, make_receipt(gathered, facts, state))
    state.activate(env)
    (state.envs / "0.30.0-000000000000").mkdir()
    state.new_run("bootstrap")
    value = validate(verbs.status(call(state=str(state.root))).document, "status.json")
    rows = {row["name"]: (row["current"], row["verdict"]) for row in value["environments"]}
    assert rows == {
        env.name: (True, "pass"),
        "0.30.0-000000000000": (False, "incomplete"),
    }
    assert value["last_run"].startswith(str(state.runs))


def fail_with(error: Exception) -> Any:
    def run(call: verbs.Call) -> verbs.Outcome:
        raise error

    return run


ERRORS = [
    fail(ExitCode.BUSY, "in use", why="two runs", remedy=("wait",)),
    fail(ExitCode.COMPILE, "the build failed", log=Path("/state/log"), tail=("error: x",)),
    CpuBuildError(
        Problem(what="no compiler", exit_code=ExitCode.PREREQUISITE),
        Problem(what="no AVX2", exit_code=ExitCode.UNSUPPORTED),
        exit_code=ExitCode.UNSUPPORTED,
    ),
]


@pytest.mark.usefixtures("plain_environment")
@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e.exit_code.name)
def test_an_error_with_json(
    error: CpuBuildError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verbs, "status", fail_with(error))
    code = tasks.dispatch("status", given(json=True))
    shown = capsys.readouterr()
    value = json.loads(shown.out)
    validator("error.json").validate(value)
    assert value["error"]["exit_code"] == code == error.exit_code
    assert [p["what"] for p in value["error"]["problems"]] == [p.what for p in error.problems]
    assert error.problems[0].what in shown.err


@pytest.mark.usefixtures("plain_environment")
def test_a_wrong_setting_is_such_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    code = tasks.dispatch("plan", given(json=True, jobs="none", profile="huge", why=False))
    value = json.loads(capsys.readouterr().out)
    validator("error.json").validate(value)
    assert code == ExitCode.SETTINGS
    assert len(value["error"]["problems"]) == 2


def given(**options: Any) -> dict[str, Any]:
    names = (*tasks.SETTING_OPTIONS, *tasks.COMMON)
    return dict.fromkeys(names) | options


def test_no_document_passes_for_another() -> None:
    error = {
        "verb": "plan",
        "error": {
            "exit_code": 2,
            "problems": [{"what": "wrong", "why": "", "remedy": [], "exit_code": 2}],
            "log": None,
            "tail": [],
        },
    }
    assert [name for name in MINE if validator(name).is_valid(error)] == ["error.json"]
