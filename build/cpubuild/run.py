"""The one place that starts processes: argv lists, echoed, time-limited, logged, ended whole."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cpubuild import sessions
from cpubuild.errors import CpuBuildError, ExitCode, fail

TAIL_LINES = 40
GRACE_SECONDS = sessions.GRACE_SECONDS
# What `export` takes: a shell ends at a bad name (bash's exported functions) or at these.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
READ_ONLY = frozenset({"BASHOPTS", "EUID", "PPID", "SHELLOPTS", "UID"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed:
    """A finished process: ``returncode`` is negative for a signal, ``seconds`` is wall time."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False
    log: Path | None = None

    @property
    def ok(self) -> bool:
        """Whether the process ended by itself with status 0."""
        return self.returncode == 0 and not self.timed_out

    def describe_end(self) -> str:
        """Say in words how the process ended."""
        if self.timed_out:
            return f"stopped after {self.seconds:.0f} s"
        if self.returncode < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-self.returncode).name}"
        return f"exit status {self.returncode}"


def capture(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60.0,
    stdin: str | None = None,
) -> Completed:
    """Run ``argv`` and return what it printed; a missing program is returncode 127.

    ``env`` replaces the whole environment when given. ``timeout`` is in seconds; on expiry the
    process and everything in its session is ended.
    """
    started = time.monotonic()
    timed_out = False
    options = {
        "stdin": subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
        "text": True,
        "errors": "replace",
    }
    try:
        with _running(argv, env=env, cwd=cwd, **options) as process:
            try:
                out, err = process.communicate(stdin, timeout=timeout)
            except subprocess.TimeoutExpired:
                timed_out = True
                end_group(process)
                out, err = _rest(process)
    except _NotStartedError as error:
        return Completed(argv=tuple(argv), returncode=127, stdout="", stderr=str(error), seconds=0)
    return Completed(
        argv=tuple(argv),
        returncode=process.returncode,
        stdout=out,
        stderr=err,
        seconds=time.monotonic() - started,
        timed_out=timed_out,
    )


def logged(
    argv: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    cwd: Path | None = None,
    timeout: float = 4 * 3600.0,
    on_line: Callable[[str], None] | None = None,
) -> Completed:
    """Run ``argv`` with all output (stdout and stderr together) in ``folder/log``.

    Beside the log lie ``cmd.sh`` (the command, to run again by hand) and ``env.sh`` (its
    environment). ``stdout`` of the result holds the last lines. ``on_line`` sees each line.
    An interrupt ends the process and everything in its session and is raised again. A process that
    has ended is not waited for through a daemon that it left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_scripts(argv, folder=folder, env=env, cwd=cwd)
    log = folder / "log"
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    started = time.monotonic()
    with log.open("a", encoding="utf-8", errors="replace") as sink:
        sink.write("+ " + shlex.join(argv) + "\n")
        sink.flush()
        try:
            with (
                _running(argv, env=env, cwd=cwd, stderr=subprocess.STDOUT) as process,
                _deadline(process, timeout) as expired,
            ):
                _pump(_lines(process), sink, tail, on_line)
                process.wait()
        except _NotStartedError as error:
            sink.write(f"{error}\n")
            return Completed(
                argv=tuple(argv), returncode=127, stdout=str(error), stderr="", seconds=0, log=log
            )
    return Completed(
        argv=tuple(argv),
        returncode=process.returncode,
        stdout="\n".join(tail),
        stderr="",
        seconds=time.monotonic() - started,
        timed_out=expired.is_set(),
        log=log,
    )


def followed(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    on_start: Callable[[int], None],
    on_line: Callable[[str], None],
) -> int:
    """Run ``argv`` for as long as it lives; its exit status, 127 if it cannot be started.

    ``on_start`` gets its pid, ``on_line`` each line of its output. An interrupt ends it, and
    everything in its session, and is raised again.
    """
    try:
        with _running(argv, env=env, cwd=cwd, stderr=subprocess.STDOUT) as process:
            on_start(process.pid)
            for line in _lines(process):
                on_line(line)
            return process.wait()
    except _NotStartedError as error:
        on_line(str(error))
        return 127


_detached: list[subprocess.Popen[bytes]] = []


def detached(
    argv: Sequence[str],
    *,
    stdin: str,
    output: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start ``argv``, with ``stdin`` to read, in a session of its own; it outlives this process.

    ``env`` replaces the whole environment when given.
    """
    with tempfile.TemporaryFile() as source, output.open("ab") as sink, _held_back():
        source.write(stdin.encode())
        source.seek(0)
        options: dict[str, Any] = {"stdin": source, "stdout": sink, "stderr": sink}
        options |= {"env": env, "cwd": cwd}
        process = subprocess.Popen(list(argv), start_new_session=True, **options)
    _detached.append(process)  # kept: nobody waits for it, and that is meant
    return process


class _Living:
    """The processes that run now, and whether more may be started."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.processes: set[subprocess.Popen[Any]] = set()
        self.stopped = False
        self.records: Path | None = None

    def start(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        with self.lock:
            if self.stopped:
                raise _NotStartedError("not started: what runs beside it has ended early")
            process = subprocess.Popen(list(argv), start_new_session=True, **options)
            self.processes.add(process)
        return process

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
            running = tuple(self.processes)
        for process in running:
            end_group(process)


_living = _Living()


@contextlib.contextmanager
def together(records: Path) -> Iterator[Callable[[], None]]:
    """A block in which several threads run processes.

    The call that it yields ends all of them, and lets none be started until the block is left.
    Each process is named in the folder ``records`` while it runs, so that a later run can end what
    a killed one left (``sessions.end_recorded``).
    """
    records.mkdir(exist_ok=True)
    _living.records = records
    try:
        yield _living.stop
    finally:
        _living.records, _living.stopped = None, False


class _NotStartedError(Exception):
    """The operating system refused to start the program."""


@contextlib.contextmanager
def _running(
    argv: Sequence[str], *, env: Mapping[str, str] | None, cwd: Path | None, **options: Any
) -> Iterator[subprocess.Popen[Any]]:
    """A process in a session of its own; whatever leaves the block early ends all of it."""
    process: subprocess.Popen[Any] | None = None
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **options}
    whole = dict(env) if env is not None else None
    try:
        with _held_back():
            try:
                process = _living.start(argv, env=whole, cwd=cwd, **streams)
            except OSError as error:
                raise _NotStartedError(str(error)) from error
        with sessions.recorded(process.pid, _living.records):
            yield process
    except BaseException:
        if process is not None:
            end_group(process)
        raise
    finally:
        if process is not None:
            _living.processes.discard(process)
            _close(process)


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Keep an interrupt until the block is over: while a process starts, nobody could end it."""
    waiting: list[int] = []
    before: dict[signal.Signals, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                handler = signal.getsignal(number)
                if callable(handler):
                    before[number] = handler
                    signal.signal(number, lambda got, _: waiting.append(got))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if waiting:
            signal.raise_signal(waiting[0])


def must(completed: Completed, code: ExitCode, what: str, *, why: str = "") -> Completed:
    """Return ``completed`` if it ended well, else raise with its log and tail."""
    if completed.ok:
        return completed
    raise failed(completed, code, what, why=why)


def failed(completed: Completed, code: ExitCode, what: str, *, why: str = "") -> CpuBuildError:
    """Build the error for a command that did not end well."""
    text = completed.stdout + ("\n" + completed.stderr if completed.stderr else "")
    return fail(
        code,
        f"{what}: {shlex.join(completed.argv[:6])} ... {completed.describe_end()}"
        if len(completed.argv) > 6
        else f"{what}: {shlex.join(completed.argv)}: {completed.describe_end()}",
        why=why,
        log=completed.log,
        tail=tuple(line for line in text.splitlines() if line.strip())[-TAIL_LINES:],
    )


def write_scripts(
    argv: Sequence[str], *, folder: Path, env: Mapping[str, str], cwd: Path | None
) -> None:
    """Write ``cmd.sh`` and ``env.sh`` so that the command can be run again by hand."""
    names = sorted(name for name in env if NAME.fullmatch(name) and name not in READ_ONLY)
    exports = "".join(f"export {name}={shlex.quote(env[name])}\n" for name in names)
    path = folder / "env.sh"
    path.touch(mode=0o600)
    path.write_text(exports, encoding="utf-8", errors="surrogateescape")
    where = f"cd {shlex.quote(str(cwd))}\n" if cwd else ""
    (folder / "cmd.sh").write_text(
        f"#!/bin/sh\n. {shlex.quote(str(path))}\n{where}exec {shlex.join(argv)}\n",
        encoding="utf-8",
        errors="surrogateescape",
    )


def end_group(process: subprocess.Popen[Any]) -> None:
    """End a process and everything in its session: SIGTERM, a grace period, SIGKILL."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    finally:  # a second interrupt ends the waiting, not the killing
        sessions.kill(process.pid)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)


def _rest(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What an ended process had printed; one that left its session may still hold the pipes."""
    try:
        return process.communicate(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired as late:
        _close(process)
        return _decoded(late.stdout), _decoded(late.stderr)


def _decoded(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def _close(process: subprocess.Popen[Any]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


@contextlib.contextmanager
def _deadline(process: subprocess.Popen[Any], timeout: float) -> Iterator[threading.Event]:
    """End the process after ``timeout`` seconds; the event tells that it was so."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        end_group(process)

    timer = threading.Timer(timeout, expire)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()


def _lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """The output line by line (a carriage return ends one too), as it comes.

    It ends with the pipe, or once the process has ended and whoever still holds the pipe has
    been silent for the grace period.
    """
    if process.stdout is None:
        return
    left = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if selector.select(GRACE_SECONDS):
                chunk = os.read(process.stdout.fileno(), 65536)
                if not chunk:
                    break
                *whole, left = re.split(rb"\r\n|\n|\r(?!$)", left + chunk)
                yield from (line.decode(errors="replace") for line in whole)
            elif process.poll() is not None:
                end_group(process)
                break
    if left:
        yield left.rstrip(b"\r").decode(errors="replace")


def _pump(
    source: Iterable[str], sink: IO[str], tail: deque[str], on_line: Callable[[str], None] | None
) -> None:
    for line in source:
        sink.write(line + "\n")
        sink.flush()
        tail.append(line)
        if on_line is not None:
            on_line(line)
