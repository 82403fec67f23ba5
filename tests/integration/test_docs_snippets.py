"""The snippets of docs/provisioning.md are what they say: a shell script, a playbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from cpubuild import tasks

PAGE = (Path(__file__).parents[2] / "docs" / "provisioning.md").read_text(encoding="utf-8")
FENCED = re.compile(r"(?ms)^```(\w+)\n(.*?)^```$")
SNIPPETS = {kind: [t for k, t in FENCED.findall(PAGE) if k == kind] for kind in ("sh", "yaml")}


def parsed(text: str) -> Any:
    return YAML(typ="safe").load(text)


def playbook() -> list[dict[str, Any]]:
    value: list[dict[str, Any]] = parsed(SNIPPETS["yaml"][0])
    return value


def test_shell_parses() -> None:
    (text,) = SNIPPETS["sh"]
    done = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_shells_parser_would_find_a_mistake() -> None:
    done = subprocess.run(["sh", "-n"], input="if true; then", capture_output=True, text=True)
    assert done.returncode != 0


FAKE = """#!/bin/sh
echo "$@" >>"$LOG"
n=$(grep -c bootstrap "$LOG")
set -- $CODES
shift $((n - 1))
code=$1
case $code in
0) echo "{\\"changed\\": $CHANGED}" ;;
*) echo '{"error": {"problems": [{"what": "it broke", "remedy": ["mend it"]}]}}' ;;
esac
exit "$code"
"""
JQ = """#!/bin/sh
[ "$2" = .changed ] && { sed 's/.*: //; s/}//' "$3"; exit; }
echo "it broke"
"""
CASES = [
    ("0", "true", 0, ["bootstrap", "systemctl restart vllm.service"]),
    ("0", "false", 0, ["bootstrap"]),
    ("75 5 0", "true", 0, [*3 * ["bootstrap"], "systemctl restart vllm.service"]),
    ("5 5 5 5 5", "true", 5, 5 * ["bootstrap"]),
    ("7", "true", 7, ["bootstrap", "logger it broke"]),
]


@pytest.mark.parametrize(("codes", "changed", "ends", "calls"), CASES)
def test_the_script_branches_on_exit_code_and_changed(
    codes: str, changed: str, ends: int, calls: list[str], tmp_path: Path
) -> None:
    tool = tmp_path / "tool"
    log = tmp_path / "log"
    log.touch()
    programs = {
        tool / ".venv/bin/cpubuild": FAKE,
        tmp_path / "bin/jq": JQ,
        tmp_path / "bin/make": "#!/bin/sh\n",
        tmp_path / "bin/sleep": "#!/bin/sh\n",
        tmp_path / "bin/systemctl": '#!/bin/sh\necho "systemctl $*" >>"$LOG"\n',
        tmp_path / "bin/logger": '#!/bin/sh\necho "logger $(cat)" >>"$LOG"\n',
    }
    for path, text in programs.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    script = SNIPPETS["sh"][0].replace("/opt/vllm-cpu-build", str(tool))
    done = subprocess.run(
        ["sh", "-s"],
        input=script,
        env={
            "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
            "LOG": str(log),
            "CODES": codes,
            "CHANGED": changed,
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    seen = [line.removesuffix(" --json") for line in log.read_text("utf-8").splitlines()]
    assert (done.returncode, seen) == (ends, calls), done.stderr


def test_the_playbook_branches_on_exit_code_and_changed() -> None:
    steps = playbook()[0]["tasks"]
    step = next(s for s in steps if s.get("register") == "bootstrap")
    assert "bootstrap.rc" in step["failed_when"]
    assert "from_json).changed" in step["changed_when"]
    assert "[5, 75]" in step["until"]
    assert step["notify"] == playbook()[0]["handlers"][0]["name"]


def test_only_verbs_and_options_that_there_are() -> None:
    verbs = {task.name: set(task.help) for task in tasks.TASKS}
    text = "".join(t for _, t in FENCED.findall(PAGE)).replace('", ', " ").replace(",", "")
    called = re.findall(r"\.venv/bin/cpubuild\"? (\w+)((?: --[a-z-]+)*)", text)
    assert {verb for verb, _ in called} == {"bootstrap", "verify"}
    for verb, options in called:
        assert {o.removeprefix("--") for o in options.split()} <= verbs[verb]
