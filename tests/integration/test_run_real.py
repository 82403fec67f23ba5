"""The one process runner with real processes: every end is named, nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from cpubuild import run, sessions
from cpubuild.errors import CpuBuildError, ExitCode

SH = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
# A process, one below it in a group of its own (as ninja does), one below that; each tells its id.
FAMILY = textwrap.dedent(
    """
    import os, subprocess, sys, time
    depth = int(sys.argv[1])
    print(f"pid {os.getpid()}", flush=True)
    if depth:
        subprocess.Popen([sys.executable, "-c", sys.argv[2], str(depth - 1), sys.argv[2]],
                         process_group=0 if depth == 2 else None)
    print("ready", flush=True) if not depth else None
    time.sleep(600)
    """
)


def family(depth: int = 2) -> list[str]:
    return [sys.executable, "-c", FAMILY, str(depth), FAMILY]


def pids(text: str) -> list[int]:
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith("pid ")]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    monkeypatch.setattr(run, "GRACE_SECONDS", 1.0)


def test_capture_keeps_both_streams_and_the_status():
    done = run.capture(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 3)
    assert not done.ok
    assert done.describe_end() == "exit status 3"


@pytest.mark.parametrize("program", ["no-such-program-anywhere", "/no/such/program", "/etc"])
def test_a_program_that_cannot_be_started_is_127(program, tmp_path):
    assert run.capture([program, "x"]).returncode == 127
    done = run.logged([program, "x"], folder=tmp_path / "step", env=SH)
    assert done.returncode == 127
    assert done.stdout
    assert done.log is not None
    assert done.stdout in done.log.read_text()


def test_the_signal_is_named():
    done = run.capture(["sh", "-c", "kill -SEGV $$"])
    assert done.describe_end() == "killed by SIGSEGV"
    assert not done.ok


def test_invalid_utf8_is_kept_as_far_as_it_goes(tmp_path):
    argv = ["sh", "-c", r"printf 'a\377b\nlast'"]
    assert run.capture(argv).stdout == "a�b\nlast"
    seen: list[str] = []
    done = run.logged(argv, folder=tmp_path, env=SH, on_line=seen.append)
    assert seen == ["a�b", "last"]
    assert (tmp_path / "log").read_text().splitlines()[1:] == seen
    assert done.stdout == "a�b\nlast"


def test_lines_arrive_as_they_are_printed_whatever_ends_them(tmp_path):
    seen: list[tuple[str, float]] = []
    run.logged(
        ["sh", "-c", r"printf 'one\r\ntwo\rthree\n\n'; sleep 0.6; echo four"],
        folder=tmp_path,
        env=SH,
        on_line=lambda line: seen.append((line, time.monotonic())),
    )
    assert [line for line, _ in seen] == ["one", "two", "three", "", "four"]
    assert seen[-1][1] - seen[0][1] > 0.3


def test_standard_input_is_closed_unless_given(tmp_path):
    assert run.capture(["cat"], timeout=20).stdout == ""
    assert run.capture(["cat"], stdin="words", timeout=20).stdout == "words"
    assert run.logged(["cat"], folder=tmp_path, env=SH, timeout=20).ok


def test_the_environment_is_exactly_the_one_given(tmp_path, monkeypatch):
    monkeypatch.setenv("FROM_OUTSIDE", "1")
    done = run.logged(["env"], folder=tmp_path, env={**SH, "GIVEN": "x"})
    assert "FROM_OUTSIDE" not in done.stdout
    assert "GIVEN=x" in done.stdout.splitlines()
    assert "FROM_OUTSIDE=1" in run.capture(["env"]).stdout


def test_a_timeout_ends_everything_that_was_started():
    done = run.capture(family(), timeout=3)
    assert done.timed_out
    assert not done.ok
    assert done.describe_end().startswith("stopped after ")
    started = pids(done.stdout)
    assert len(started) == 3
    assert wait_until(lambda: not any(map(alive, started)))


def test_a_timeout_of_a_logged_command_ends_everything_too(tmp_path):
    with run.together(tmp_path / "running"):
        done = run.logged(family(), folder=tmp_path, env=SH, timeout=3)
    assert done.timed_out
    started = pids((tmp_path / "log").read_text())
    assert len(started) == 3
    assert wait_until(lambda: not any(map(alive, started)))
    assert list((tmp_path / "running").iterdir()) == []


@pytest.mark.parametrize("ends", [True, False], ids=["leader-ends", "leader-is-stopped"])
def test_a_daemon_that_holds_the_output_is_not_waited_for(tmp_path, ends):
    note = tmp_path / "daemon"
    daemon = f"setsid sh -c 'echo $$ >> {note}; exec sleep 300' & echo hello; "
    argv = ["sh", "-c", daemon + ("sleep 1" if ends else "sleep 300")]
    began = time.monotonic()
    try:
        done = run.logged(argv, folder=tmp_path / "step", env=SH, timeout=20 if ends else 2)
        assert time.monotonic() - began < 15
        assert done.timed_out is not ends
        assert done.ok is ends
        assert done.stdout == "hello"
        if not ends:
            captured = run.capture(argv, timeout=2)
            assert captured.timed_out
            assert captured.stdout == "hello\n"
            assert time.monotonic() - began < 25
    finally:
        for pid in note.read_text().split():
            os.kill(int(pid), signal.SIGKILL)


def test_a_command_that_ignores_sigterm_is_killed():
    done = run.capture(["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"], timeout=1)
    assert done.timed_out
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interrupt_ends_everything_and_goes_on_up(tmp_path, interrupt):
    def on_line(line: str) -> None:
        if line == "ready":
            leader = pids((tmp_path / "log").read_text())[0]
            record = tmp_path / "running" / f"{leader}.json"
            assert json.loads(record.read_text())[0] == leader
            raise interrupt

    with pytest.raises(interrupt), run.together(tmp_path / "running"):
        run.logged(family(), folder=tmp_path, env=SH, on_line=on_line)
    started = pids((tmp_path / "log").read_text())
    assert len(started) == 3
    assert wait_until(lambda: not any(map(alive, started)))
    assert list((tmp_path / "running").iterdir()) == []


def test_a_record_that_cannot_be_written_leaves_no_process(tmp_path):
    records = tmp_path / "running"
    with run.together(records):
        records.rmdir()
        with pytest.raises(OSError, match="running"):
            run.logged(family(0), folder=tmp_path, env=SH)
    me = psutil.Process()
    assert wait_until(lambda: not [c for c in me.children(recursive=True) if FAMILY in c.cmdline()])


def test_the_command_can_be_run_again_by_hand(tmp_path):
    folder, here = tmp_path / "a step's folder", tmp_path / "it's here"
    here.mkdir()
    env = {
        **SH,
        "QUOTED": 'it\'s "$HOME" `id`\nsecond line',
        "BASH_FUNC_module%%": "() { :; }",
        "with-dash": "1",
        "UID": "7",
        "SHELLOPTS": "braceexpand",
    }
    argv = ["sh", "-c", 'printf "%s|%s|%s" "$QUOTED" "$1" "$(pwd)"', "sh", "an 'argument'"]
    done = run.logged(argv, folder=folder, env=env, cwd=here)
    assert done.ok
    assert f"|an 'argument'|{here}" in done.stdout
    for shell in ("sh", "bash"):
        again = run.capture([shell, str(folder / "cmd.sh")], env=SH)
        assert (again.stdout, again.stderr) == (done.stdout, "")
    assert (folder / "env.sh").stat().st_mode & 0o777 == 0o600
    assert "SHELLOPTS" not in (folder / "env.sh").read_text()


def test_the_bytes_of_a_path_survive_in_the_scripts(tmp_path):
    odd = os.fsdecode(b"/x/\xff")
    done = run.logged(["printf", "%s", odd], folder=tmp_path, env={**SH, "ODD": odd})
    assert done.ok
    again = subprocess.run(["sh", tmp_path / "cmd.sh"], capture_output=True, check=True)
    assert again.stdout == b"/x/\xff"
    assert b"/x/\xff" in (tmp_path / "env.sh").read_bytes()


def test_a_second_command_adds_to_the_log(tmp_path):
    run.logged(["echo", "first one"], folder=tmp_path, env=SH)
    run.logged(["echo", "second"], folder=tmp_path, env=SH)
    assert (tmp_path / "log").read_text().splitlines() == [
        "+ echo 'first one'",
        "first one",
        "+ echo second",
        "second",
    ]


def test_only_the_last_lines_are_kept_in_memory(tmp_path):
    done = run.logged(["seq", "1", "5000"], folder=tmp_path, env=SH)
    assert done.stdout.splitlines() == [str(n) for n in range(4961, 5001)]
    assert len((tmp_path / "log").read_text().splitlines()) == 5001


def test_a_failure_carries_its_log_and_its_end(tmp_path):
    done = run.logged(["sh", "-c", "echo why; exit 9"], folder=tmp_path, env=SH)
    with pytest.raises(CpuBuildError) as caught:
        run.must(done, ExitCode.COMPILE, "it failed")
    assert caught.value.exit_code is ExitCode.COMPILE
    assert caught.value.log == tmp_path / "log"
    assert caught.value.tail == ("why",)
    assert "exit status 9" in caught.value.problems[0].what


KILLED_PARENT = """
import os, sys, pathlib
from cpubuild import run
folder = pathlib.Path(sys.argv[1])
with run.together(folder / "running"):
    run.logged(sys.argv[2:], folder=folder, env=dict(os.environ))
"""


@pytest.fixture
def killed_run(tmp_path):
    """A run that was killed outright while its command was at work: the folder, the survivors."""
    parent = subprocess.Popen([sys.executable, "-c", KILLED_PARENT, str(tmp_path), *family()])
    log = tmp_path / "log"
    try:
        assert wait_until(lambda: log.exists() and "ready" in log.read_text().splitlines(), 60)
    finally:
        parent.kill()
        parent.wait()
    started = pids(log.read_text())
    assert len(started) == 3
    yield tmp_path, started
    for pid in filter(alive, started):
        os.kill(pid, signal.SIGKILL)


def test_what_a_killed_run_left_is_ended(killed_run):
    folder, started = killed_run
    assert all(map(alive, started))
    assert sessions.end_recorded(folder / "running")
    assert not any(map(alive, started))
    assert list((folder / "running").iterdir()) == []
    assert not sessions.end_recorded(folder / "running")


def test_what_is_left_is_found_when_its_leader_is_gone(killed_run):
    folder, started = killed_run
    os.kill(started[0], signal.SIGKILL)
    assert wait_until(lambda: not alive(started[0]))
    assert sessions.end_recorded(folder / "running")
    assert not any(map(alive, started))


def test_a_clock_that_was_set_meanwhile_does_not_hide_it(killed_run):
    folder, started = killed_run
    (record,) = (folder / "running").iterdir()
    pid, began = json.loads(record.read_text())
    record.write_text(json.dumps([pid, began + 0.7]))
    assert sessions.end_recorded(folder / "running")
    assert not any(map(alive, started))


@pytest.mark.parametrize(
    "record",
    [
        lambda pid, began: [pid, began - 3600],
        lambda pid, began: [pid, began + 3600],
        lambda pid, began: [pid, None],
        lambda pid, began: [None, None],
        lambda pid, began: [0, began],
        lambda pid, began: [1, began],
        lambda pid, began: [pid],
        lambda pid, began: {"pid": pid, "began": began},
        lambda pid, began: "text",
    ],
)
def test_an_unrelated_process_is_left_alone(tmp_path, record):
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        path = tmp_path / "one.json"
        began = psutil.Process(other.pid).create_time()
        path.write_text(json.dumps(record(other.pid, began)))
        assert not sessions.end_recorded(tmp_path)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_record_from_before_the_last_boot_names_nobody(tmp_path):
    """The leader of such a session is gone, its number is another's: only the boot tells."""
    leader = subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!"], start_new_session=True, stdout=subprocess.PIPE
    )
    assert leader.stdout is not None
    with leader.stdout:
        left = int(leader.stdout.readline())
    leader.wait()
    try:
        path = tmp_path / "one.json"
        path.write_text(json.dumps([leader.pid, psutil.boot_time() - 3600]))
        assert not sessions.end_recorded(tmp_path)
        assert alive(left)
    finally:
        os.kill(left, signal.SIGKILL)


def test_no_record_no_harm(tmp_path):
    assert not sessions.end_recorded(tmp_path / "running")
    (tmp_path / "one.json").write_text("{damaged")
    assert not sessions.end_recorded(tmp_path)
    assert not sessions.end_recorded(Path("/dev/null/x"))


@pytest.mark.parametrize("how", ["capture", "logged"])
def test_an_interrupt_while_a_process_starts_leaves_none(tmp_path, monkeypatch, how):
    started: list[subprocess.Popen[bytes]] = []

    class Slow(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            started.append(self)
            signal.raise_signal(signal.SIGINT)  # it runs, and its starter does not have it yet

    monkeypatch.setattr(run.subprocess, "Popen", Slow)
    options = {} if how == "capture" else {"folder": tmp_path, "env": SH}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here
    try:
        with pytest.raises(KeyboardInterrupt):
            getattr(run, how)(["sleep", "600"], **options)
        assert started[0].poll() is not None
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_processes_can_be_started_from_any_thread():
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda n: run.capture(["echo", str(n)]).stdout, range(8)))
    assert done == [f"{n}\n" for n in range(8)]


def test_what_runs_side_by_side_is_ended_together(tmp_path):
    """One thread fails; the command of the other ends at once, and no third one is started."""
    ended = []

    def work():
        argv = ["sh", "-c", "echo ready; sleep 300"]
        ended.append(run.logged(argv, folder=tmp_path / "a", env=os.environ))

    with run.together(tmp_path / "running") as stop:
        thread = threading.Thread(target=work)
        thread.start()
        log = tmp_path / "a" / "log"
        assert wait_until(lambda: log.exists() and "ready" in log.read_text().splitlines(), 60)
        stop()
        thread.join(60)
        assert not thread.is_alive()
        late = run.capture(["true"])
    assert not ended[0].ok
    assert (late.returncode, "ended early" in late.stderr) == (127, True)
    assert run.capture(["true"]).ok
