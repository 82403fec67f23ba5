"""The console script and the other faces as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cpubuild import jsonio, render, tasks
from cpubuild.errors import ExitCode

ROOT = Path(__file__).parents[2]
CPUBUILD = Path(sys.executable).with_name("cpubuild")
VERBS = sorted(tasks.namespace.task_names)


@pytest.fixture
def clean_environment(tmp_path):
    keep = {"PATH", "LANG", "LC_ALL", "COVERAGE_PROCESS_START"}
    env = {k: v for k, v in os.environ.items() if k in keep}
    return {**env, "HOME": str(tmp_path), "PYTHONWARNINGS": "error"}


@pytest.fixture
def cpubuild(clean_environment, tmp_path):
    def run(*words, stdin=subprocess.DEVNULL, **environ):
        return subprocess.run(
            [CPUBUILD, *map(str, words)],
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            env={**clean_environment, **environ},
        )

    return run


@pytest.fixture
def state(tmp_path):
    root = tmp_path / "state"
    for name, created in (("old", "2026-01-01T00:00:00Z"), ("new", "2026-02-01T00:00:00Z")):
        kept = {"created": created, "verify": {"verdict": "pass"}, "vllm": {"version": name}}
        jsonio.write(root / "envs" / name / "receipt.json", kept)
    (root / "current").symlink_to("envs/new")
    return root


def documents(text: str) -> list[object]:
    """Every JSON document of a text, one after the other."""
    decoder, found, text = json.JSONDecoder(), [], text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].strip()
    return found


@pytest.mark.parametrize("words", [("--list",), (), ("--help",), ("--version",)])
def test_the_list_needs_no_input(cpubuild, words):
    done = cpubuild(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    if words == ("--list",):
        assert set(VERBS) <= set(done.stdout.split())


def test_closed_streams_do_not_matter(clean_environment, tmp_path):
    script = (
        f"'{CPUBUILD}' --list <&- && '{CPUBUILD}' status --json --state '{tmp_path}/s' <&- 2>&-"
    )
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, timeout=120, env=clean_environment
    )
    assert done.returncode == 0, done.stderr
    assert len(documents(done.stdout[done.stdout.index("{") :])) == 1


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_every_option(cpubuild, verb):
    for words in ((verb, "--help"), ("--help", verb)):
        done = cpubuild(*words)
        assert (done.returncode, done.stderr) == (0, "")
        assert tasks.namespace[verb].__doc__.split(";")[0][:40] in " ".join(done.stdout.split())
        for option in tasks.namespace[verb].help:
            assert f"-{option}" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("--nope",),
        ("nope",),
        ("bootstrap", "--nope"),
        ("bootstrap", "nope"),
        ("bootstrap", "--vllm"),
        ("diagnose", "a.log", "b.log"),
    ],
)
def test_what_cannot_be_parsed_is_exit_code_2(cpubuild, words):
    done = cpubuild(*words)
    assert done.returncode == ExitCode.SETTINGS
    assert done.stdout == ""
    assert "FAIL" in done.stderr
    assert "Traceback" not in done.stderr
    for asked in (cpubuild(*words[:1], "--json", *words[1:]), cpubuild(*words, CPUBUILD_JSON="1")):
        assert asked.returncode == ExitCode.SETTINGS
        (document,) = documents(asked.stdout)
        assert document["error"]["exit_code"] == 2


@pytest.mark.parametrize("verb", VERBS)
def test_a_wrong_setting_ends_every_verb_the_same_way(cpubuild, verb, tmp_path):
    done = cpubuild(verb, "--json", "--jobs", "many", "--state", tmp_path / "a b")
    assert done.returncode == ExitCode.SETTINGS, done.stderr
    (document,) = documents(done.stdout)
    text = [p["what"] for p in document["error"]["problems"]]
    assert any("--jobs = 'many'" in what for what in text)
    assert any("a b" in what for what in text)
    assert not (tmp_path / "a b").exists()


def test_status_rollback_and_clean_on_a_made_state_root(cpubuild, state):
    at = ("--state", state)
    (status,) = documents(cpubuild("status", "--json", *at).stdout)
    assert [r["name"] for r in status["environments"] if r["current"]] == ["new"]
    (back,) = documents(cpubuild("rollback", "--json", *at).stdout)
    assert back["environment"].endswith("/old")
    assert (state / "current").readlink() == Path("envs/old")
    dry = cpubuild("clean", "--dry", *at)
    assert f"would remove {state}/envs/new\n" in dry.stdout
    assert (state / "envs" / "new").is_dir()
    assert cpubuild("clean", *at).returncode == 0
    assert sorted(p.name for p in (state / "envs").iterdir()) == ["old"]
    alone = cpubuild("rollback", "--json", *at)
    assert alone.returncode == ExitCode.SETTINGS
    assert len(documents(alone.stdout)) == 1
    assert cpubuild("clean", "--all", *at).returncode == 0
    assert not (state / "current").is_symlink()


def test_a_file_in_the_way_of_the_state_root(cpubuild, tmp_path):
    (tmp_path / "file").touch()
    for verb in ("rollback", "clean", "verify", "plan"):
        done = cpubuild(verb, "--json", "--state", tmp_path / "file" / "state")
        if verb == "clean":
            assert done.returncode == 0  # nothing is there, so nothing is to be removed
        else:
            assert done.returncode == ExitCode.SETTINGS, (verb, done.stderr)
            assert documents(done.stdout)[0]["error"]["problems"][0]["remedy"]


HOLD = """
import sys, pathlib
from cpubuild.state import State
with State(root=pathlib.Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_is_busy_and_names_the_first(cpubuild, state):
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD, state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        done = cpubuild("rollback", "--json", "--state", state)
        assert done.returncode == ExitCode.BUSY
        (document,) = documents(done.stdout)
        assert f"process {first.pid} since 20" in document["error"]["problems"][0]["what"]
        assert cpubuild("status", "--state", state).returncode == 0  # looking needs no lock
        first.kill()  # a killed holder holds nothing
    assert cpubuild("rollback", "--state", state).returncode == 0


SLOW = """
import os, signal, sys, pathlib
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore these
signal.signal(signal.SIGINT, signal.default_int_handler)
from cpubuild import verbs, run, calls
from cpubuild.state import State

def status(call):
    state = State(root=call.resolved().settings.state)
    with state.lock(), run.together(state.running):
        run.logged(["sh", "-c", "sleep 300 & echo $! >" + sys.argv[-1] + "; sleep 300"],
                   folder=state.root / "runs" / "x", env=dict(os.environ))
    return calls.Outcome(document={})

verbs.status = status
from cpubuild.tasks import dispatch, settings
given = dict.fromkeys([*settings.NAMES, "v", "verbose"]) | {"state": sys.argv[1], "json": True}
sys.exit(int(dispatch("status", given)))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_ends_its_processes_and_is_busy(tmp_path, number):
    note, root = tmp_path / "pid", tmp_path / "state"
    run = subprocess.Popen(
        [sys.executable, "-c", SLOW, root, note],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with run:
        deadline = time.monotonic() + 60
        while not (note.exists() and note.read_text().strip()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        run.send_signal(number)
        out, err = run.communicate(timeout=60)
    assert run.returncode == ExitCode.BUSY, err
    assert documents(out)[0]["error"]["exit_code"] == 75
    deadline = time.monotonic() + 20
    while Path(f"/proc/{note.read_text().strip()}/exe").exists():
        assert time.monotonic() < deadline, "its process is still there"
        time.sleep(0.05)
    assert list((root / "running").iterdir()) == []


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_stops_reading_does_not_change_the_outcome(clean_environment, state, stream):
    """The pipe is closed before the verb says anything, in success and in failure."""
    for code, current in ((ExitCode.OK, "envs/old"), (ExitCode.SETTINGS, "envs/old")):
        read, write = os.pipe()
        os.close(read)
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: write}
        done = subprocess.run(
            [CPUBUILD, "rollback", "--json", "--state", state],
            stdin=subprocess.DEVNULL,
            timeout=60,
            env=clean_environment,
            check=False,
            **streams,
        )
        os.close(write)
        assert done.returncode == code
        assert (state / "current").readlink() == Path(current)
        (state / "envs" / "new" / "receipt.json").unlink(missing_ok=True)


def test_diagnose_takes_a_file_or_stdin(cpubuild, tmp_path):
    log = tmp_path / "a build.log"
    log.write_text("c++: fatal error: Killed signal terminated program cc1plus\n")
    by_name = cpubuild("diagnose", "--json", log)
    by_option = cpubuild("diagnose", "--path", log, "--json")
    with log.open() as source:
        by_stdin = cpubuild("diagnose", "-", "--json", "--exit-status", "-9", stdin=source)
    assert by_name.returncode == by_option.returncode == by_stdin.returncode == 0, by_name.stderr
    assert documents(by_name.stdout) == documents(by_option.stdout)
    assert len(documents(by_stdin.stdout)) == 1
    missing = cpubuild("diagnose", "--json", tmp_path / "no.log")
    assert missing.returncode == ExitCode.SETTINGS, missing.stderr
    assert len(documents(missing.stdout)) == 1


def test_the_invoke_face_has_the_same_verbs(clean_environment):
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "--list"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment,
    )
    assert done.returncode == 0, done.stderr
    listed = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]
    assert set(VERBS) <= set(listed)


def test_without_the_tools_environment_the_invoke_face_says_what_to_do(tmp_path):
    code = (
        "import sys, runpy; sys.modules['cpubuild'] = None\n"
        f"runpy.run_path({str(ROOT / 'tasks.py')!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == ExitCode.PREREQUISITE
    assert "make .venv" in done.stderr
    assert "Traceback" not in done.stderr


def test_importing_the_tasks_is_light():
    heavy = {"requests", "rich", "torch", "vllm", "psutil", "archspec", "jinja2", "uv"}
    code = f"import sys, cpubuild.tasks; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_without_a_network_the_message_stands_alone_unless_more_is_asked_for(cpubuild, tmp_path):
    words = ("plan", "--state", tmp_path / "state", "--vllm", "0.31.0")
    closed = "http://127.0.0.1:9/simple"
    index = {"PIP_INDEX_URL": closed, "PIP_RETRIES": "1", "NO_PROXY": "*", "no_proxy": "*"}
    git = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_VALUE_0": "https://github.com/"}
    git["GIT_CONFIG_KEY_0"] = f"url.{closed}.insteadOf"
    done = cpubuild(*words, PIP_CONFIG_FILE=os.devnull, **index, **git)
    assert done.returncode == ExitCode.DOWNLOAD, done.stderr
    assert done.stderr.startswith("FAIL vllm cannot be found")
    assert f"{closed}: connection refused" in done.stderr
    assert "--offline" in done.stderr
    more = cpubuild(*words, "-v", PIP_CONFIG_FILE=os.devnull, **index, **git)
    assert "try 1 failed (connection refused)" in more.stderr


ODD = 'it\'s "$HOME" `id` \\ $(id) * ~ #'


def variables():
    names = ("PLAIN", "ODD", "LAST")
    values = ("/x:/y", ODD, "")
    return [{"name": n, "value": v, "reason": "why"} for n, v in zip(names, values, strict=True)]


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_values_of_the_environment_file_survive_a_shell(tmp_path, shell):
    env = tmp_path / "an env's folder"
    env.mkdir()
    values = {
        "vllm": "0",
        "tool": "0",
        "env": env,
        "path": env / "env.sh",
        "variables": variables(),
        "removed": (),
        "command": [],
    }
    (env / "env.sh").write_text(render.render("env.sh.j2", values))
    show = 'set -eu; . "$1"; printf "%s\\n" "$PLAIN" "$ODD" "$LAST" "$PATH"; env >"$2"'
    done = subprocess.run(
        [shell, "-c", show, shell, env / "env.sh", tmp_path / "exported"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"]},
    )
    assert (done.returncode, done.stderr) == (0, "")
    plain, odd, last, path = done.stdout.splitlines()
    assert (plain, odd, last) == ("/x:/y", ODD, "")
    assert path == f"{env}/bin:{os.environ['PATH']}"
    assert f"ODD={ODD}" in (tmp_path / "exported").read_text().splitlines()
