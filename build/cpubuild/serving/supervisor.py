"""The process that stays with a server: it keeps its log small and writes down how it fares."""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cpubuild import run, sessions
from cpubuild.serving.client import Client
from cpubuild.serving.launch import Launch
from cpubuild.serving.record import Files, Mark, Record, mark_of, save
from cpubuild.state import now

LOG_BYTES = 16 << 20
LOG_PARTS = 3
LOOK_SECONDS = 0.5


def to_text(launch: Launch, folder: Path) -> str:
    """A launch as text for the supervisor's stdin: neither arguments nor surroundings show it."""
    return json.dumps(asdict(launch) | {"target": str(launch.target), "folder": str(folder)})


def from_text(text: str) -> tuple[Launch, Files]:
    """What :func:`to_text` wrote."""
    value: dict[str, Any] = json.loads(text)
    files = Files(folder=Path(value.pop("folder")))
    argv, target = tuple(value.pop("argv")), Path(value.pop("target"))
    return Launch(**value, argv=argv, target=target), files


@contextlib.contextmanager
def rotating(path: Path, *, size: int = LOG_BYTES) -> Iterator[Callable[[str], None]]:
    """A writer of lines into ``path``, which begins anew when ``size`` bytes are reached.

    What an earlier server has left there moves on to ``path.1``; LOG_PARTS old parts are kept.
    """
    handler = logging.handlers.RotatingFileHandler(
        path, maxBytes=size, backupCount=LOG_PARTS, encoding="utf-8", errors="replace"
    )
    if path.stat().st_size:
        handler.doRollover()
    handler.setFormatter(logging.Formatter("%(message)s"))

    def write(line: str) -> None:
        handler.emit(logging.LogRecord("server", logging.INFO, "", 0, line, None, None))

    try:
        yield write
    finally:
        handler.close()


class Keeper:
    """The one writer of a server's record."""

    def __init__(self, record: Record, path: Path) -> None:
        self._record, self._path, self._lock = record, path, threading.Lock()

    @property
    def record(self) -> Record:
        """The record as it is now."""
        return self._record

    def change(self, **changes: Any) -> None:
        """Write the record with changes; a folder that is gone is no reason to end a server."""
        with self._lock:
            self._record = replace(self._record, **changes)
            if self._path.parent.is_dir():
                save(self._record, self._path)


def first_record(launch: Launch, files: Files) -> Record:
    """The record before the server is started."""
    own = mark_of(os.getpid())
    return Record(
        model=launch.model,
        name=launch.name,
        host=launch.host,
        port=launch.port,
        env=launch.target,
        release=launch.release,
        tuned=launch.tuned,
        log=files.log,
        key_file=files.key,
        supervisor=own or Mark(pid=os.getpid(), started=0.0),
        started=now(),
    )


def supervise(launch: Launch, files: Files, *, echo: Callable[[str], None] | None = None) -> int:
    """Run the server until it ends, whoever ends it; its exit status (negative: a signal)."""
    keeper = Keeper(first_record(launch, files), files.record)
    keeper.change()
    over = threading.Event()
    watcher = threading.Thread(target=watch, args=(keeper, over), daemon=True)

    def on_start(pid: int) -> None:
        keeper.change(server=mark_of(pid))
        watcher.start()

    try:
        with rotating(files.log) as write:

            def on_line(line: str) -> None:
                write(line)
                if echo is not None:
                    echo(line)

            status = run.followed(
                launch.argv, env=launch.env, cwd=files.neutral, on_start=on_start, on_line=on_line
            )
    except KeyboardInterrupt:
        over.set()
        keeper.change(ended=now(), returncode=0)
        raise
    over.set()
    chief = keeper.record.server
    if chief is not None:
        sessions.kill(chief.pid)  # what it has left behind
    keeper.change(ended=now(), returncode=status)
    return status


def watch(keeper: Keeper, over: threading.Event) -> None:
    """Write down when the server answers for the first time."""
    client = Client(url=keeper.record.url)
    while not over.wait(LOOK_SECONDS):
        if client.look("/health")[0] == 200:
            keeper.change(ready=now())
            break
    client.close()


def main() -> None:
    """Read the launch from stdin, let go of it, and stay until the server has ended."""
    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    launch, files = from_text(sys.stdin.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(files.neutral)
    os.umask(0o077)
    try:
        status = supervise(launch, files)
    except KeyboardInterrupt:
        status = 0
    sys.exit(0 if status == 0 else 1)


def interrupted(number: int, frame: object) -> None:
    """End the server with the supervisor."""
    del number, frame
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
