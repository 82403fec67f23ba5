"""A server's life as seen from outside: started and awaited, found again, explained, stopped."""

from __future__ import annotations

import contextlib
import errno
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import psutil

from cpubuild import run, sessions, ui
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.serving import launch as launches
from cpubuild.serving.launch import Launch
from cpubuild.serving.record import Files, Record, family, files_of, load, orphans
from cpubuild.serving.supervisor import to_text
from cpubuild.state import State
from cpubuild.verify.crash import explain_signal

READY_SECONDS = 1200.0
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.25
# How long a supervisor may take to note an end, if a child of the server keeps its pipe open.
NOTED_SECONDS = 15.0
TAIL_LINES = 20
WAITING = "wait until the server answers"
TAIL_BYTES = 64 << 10
# What stands behind the reason in the log of a process that has ended: libraries say goodbye.
PARTING = re.compile(r"nanobind: |See https://nanobind| - (leaked |\.\.\. skipped)")
ENGINE_DIED = "EngineDeadError"
# How a server ends that was asked to.
ORDERLY = frozenset({0, -signal.SIGTERM, 128 + signal.SIGTERM})
SUPERVISOR = "from cpubuild.serving.supervisor import main; main()"


class Started(Protocol):
    """A process that was started: its number, and its exit status once it has ended."""

    pid: int

    def poll(self) -> int | None:
        """The exit status, None while it runs."""


def running(files: Files) -> Record | None:
    """The server that runs now, be it still starting; a stale record is not believed."""
    record = load(files.record)
    return record if record is not None and record.alive else None


def crashed(files: Files) -> Record | None:
    """The server that ought to run and does not: it has ended without being asked to.

    If its supervisor still lives, that is about to write down how.
    """
    deadline = time.monotonic() + NOTED_SECONDS
    while True:
        record = load(files.record)
        if record is None or record.alive:
            return None
        noted = record.ended is not None or record.supervisor.process() is None
        if noted or time.monotonic() > deadline:
            return record
        time.sleep(LOOK_SECONDS)


def spare(state: State, *, everything: bool) -> None:
    """BUSY if cleaning would take away what a running server works with."""
    record = running(files_of(state))
    if record is None or not (everything or record.env.resolve() != state.current_env()):
        return
    raise fail(
        ExitCode.BUSY,
        f"a server works with {record.env}: {record.name} at {record.url}",
        why="without its environment it would fail at the next file that it opens",
        remedy=("cpubuild serve --stop   # then clean again",),
    )


def start(launch: Launch, files: Files, *, seconds: float, say: Callable[[str], None]) -> Record:
    """Start a server that outlives this process and wait until it answers.

    VERIFY, with the log, if it ends before, or is not ready after ``seconds`` (it is stopped
    then); BUSY if another process starts one. An interrupt stops it.
    """
    with alone(files):
        left = load(files.record)
        if left is not None:
            end(left, files)
        started = run.detached(
            [sys.executable, "-P", "-c", SUPERVISOR],
            stdin=to_text(launch, files.folder),
            output=files.complaints,
        )
        try:
            return ready(started, files, seconds=seconds, say=say)
        except BaseException:
            give_up(started, files)
            raise


@contextlib.contextmanager
def alone(files: Files) -> Iterator[None]:
    """Only one process starts a server of this state root at a time."""
    from filelock import FileLock, Timeout

    files.prepare()
    lock = FileLock(files.lock, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise fail(
            ExitCode.BUSY,
            f"another process is starting a server in {files.folder}",
            remedy=("wait for it, and look with: cpubuild serve --status",),
        ) from error
    try:
        files.record.with_name("supervisor.log").unlink(missing_ok=True)
        yield
    finally:
        lock.release()


def ready(started: Started, files: Files, *, seconds: float, say: Callable[[str], None]) -> Record:
    """Wait until the record says that the server answers."""
    deadline = time.monotonic() + seconds
    last = ""
    with ui.Progress(WAITING) as progress:

        def tell(text: str) -> None:
            progress.title = f"{WAITING}; {text}"
            if not sys.stderr.isatty():  # there the line is written anew all the time
                say(text)

        while time.monotonic() < deadline:
            record = load(files.record)
            own = record is not None and record.supervisor.pid == started.pid
            if record is not None and own and record.ended is not None:
                raise explained(record)
            if record is not None and own and record.ready is not None:
                return record
            if started.poll() is not None:
                raise lost(files)
            last = milestone(files.log, last, tell) if own else last
            time.sleep(LOOK_SECONDS)
    raise fail(
        ExitCode.VERIFY,
        f"the server did not answer within {ui.duration(seconds)}, and is stopped",
        why="a large model on a busy host can take longer to load and to compile",
        remedy=(f"cpubuild serve ... --wait {int(seconds * 3)}", f"cpubuild diagnose {files.log}"),
        log=files.log,
        tail=tail(files.log),
    )


def lost(files: Files) -> CpuBuildError:
    """The error for a supervisor that ended without a word in the record."""
    return fail(
        ExitCode.BUG,
        "the process that stays with the server ended",
        remedy=(f"cpubuild diagnose {files.complaints}",),
        log=files.complaints,
        tail=tail(files.complaints),
    )


# What people wait for, as vLLM's log tells it; the first that a new line matches is said.
MILESTONES = (
    ("Loading safetensors", "the weights are being loaded"),
    ("Starting to load model", "the weights are being loaded"),
    ("saved AOT compiled", "the model is compiled for this host"),
    ("Warming up model for the comp", "the model is compiled; the next start finds that done"),
    ("Compiling a graph", "the model is compiled; the next start finds that done"),
    ("Application startup complete", "the server answers"),
)


def milestone(log: Path, last: str, say: Callable[[str], None]) -> str:
    """Say the newest milestone of the log if it is not the one said last; the one said now."""
    for line in reversed(tail(log)):
        text = next((said for mark, said in MILESTONES if mark in line), None)
        if text is not None:
            if text != last:
                say(text)
            return text
    return last


def give_up(started: Started, files: Files) -> None:
    """End what was started; its record goes, its log stays."""
    record = load(files.record)
    if record is not None and record.supervisor.pid == started.pid:
        end(record, files)
    sessions.kill(started.pid)
    deadline = time.monotonic() + sessions.GRACE_SECONDS
    while started.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


def stop(files: Files) -> tuple[Record | None, list[str]]:
    """Stop the server; who was stopped (None: nothing ran) and what had to be killed.

    VERIFY if something is still there afterwards, or the port is.
    """
    record = load(files.record)
    if record is None:
        return None, []
    ran = bool(family(record))
    killed = end(record, files)
    left = [p for p in family(record) if p.is_running()]
    if left:
        raise fail(
            ExitCode.VERIFY,
            "still running: " + ", ".join(named(p) for p in left),
            why="a process that waits for a device cannot be ended",
            remedy=("cpubuild serve --stop   # once more",),
        )
    return (record if ran else None), killed


def end(record: Record, files: Files) -> list[str]:
    """End all processes of a server and forget the record; what did not go by itself, in words.

    The server is asked first, and with it everything can go in order; then its supervisor.
    """
    everyone = family(record)
    chief = record.server.process() if record.server is not None else None
    for process in [chief] if chief is not None else everyone:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGTERM)
    _, left = psutil.wait_procs(everyone, timeout=STOP_SECONDS)
    left = list({p.pid: p for p in [*left, *orphans(record)]}.values())
    words = [named(process) for process in left]
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=STOP_SECONDS)
    files.record.unlink(missing_ok=True)
    return words


def named(process: psutil.Process) -> str:
    """A process for people."""
    try:
        return f"{process.pid} {process.name()}"
    except psutil.Error:
        return str(process.pid)


def port_free(record: Record) -> bool:
    """Whether the server's port can be bound to again."""
    try:
        launches.free(record.host, record.port)
    except CpuBuildError:
        return False
    return True


def explained(record: Record) -> CpuBuildError:
    """The error for a server that has ended by itself; diagnose adds cause and remedy by its log.

    A kill leaves nothing in the log, so it is explained here.
    """
    status = record.returncode
    how = "nobody saw how" if status is None else f"exit status {status}"
    if status is not None and status < 0 and status not in ORDERLY:
        name, means, remedy = explain_signal(-status)
        return fail(
            ExitCode.VERIFY,
            f"the server of {record.name} was ended by {name}",
            why=means,
            remedy=(remedy, f"cpubuild diagnose {record.log}", "cpubuild serve --stop"),
            log=record.log,
            tail=tail(record.log),
        )
    asked = status in ORDERLY and ENGINE_DIED not in "\n".join(last_text(record.log))
    return fail(
        ExitCode.VERIFY,
        f"the server of {record.name} has ended: {how}",
        why="something else asked it to end: kill, a service manager, a shutdown" if asked else "",
        remedy=(f"cpubuild serve {record.model}",) if asked else (),
        log=record.log,
        tail=tail(record.log),
    )


def tail(log: Path) -> tuple[str, ...]:
    """The last lines of a log, without what an interpreter says as it leaves."""
    said = (line for line in last_text(log) if line.strip() and not PARTING.match(line))
    return tuple(said)[-TAIL_LINES:]


def last_text(log: Path) -> tuple[str, ...]:
    """The end of a log, as lines."""
    try:
        with log.open("rb") as source:
            source.seek(0, 2)
            source.seek(max(0, source.tell() - TAIL_BYTES))
            text = source.read().decode("utf-8", "replace")
    except OSError as error:
        if error.errno == errno.ENOENT:
            return ()
        raise
    return tuple(text.splitlines())
