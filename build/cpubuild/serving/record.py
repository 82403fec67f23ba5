"""What is known of the server of a state root: its files, its record, whether it still lives."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from cpubuild import jsonio
from cpubuild.errors import CpuBuildError
from cpubuild.state import State

# A process's start is told by a clock that may be set while it runs.
CLOCK_SECONDS = 2.0
WORDS = ("model", "name", "host", "release", "started")
PATHS = ("env", "log", "key_file")


@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """The files of a state root's server, all below ``STATE/server``, a folder of mode 700."""

    folder: Path

    @property
    def record(self) -> Path:
        """The record that the supervisor writes."""
        return self.folder / "server.json"

    @property
    def key(self) -> Path:
        """The API key, mode 600."""
        return self.folder / "key"

    @property
    def log(self) -> Path:
        """What the server of the last start has printed; older parts are ``log.1`` and so on."""
        return self.folder / "log"

    @property
    def complaints(self) -> Path:
        """What the supervisor itself has printed: empty unless it has a defect."""
        return self.folder / "supervisor.log"

    @property
    def lock(self) -> Path:
        """Held while a server is started."""
        return self.folder / "lock"

    @property
    def neutral(self) -> Path:
        """An empty folder for the server to work in: nothing there shadows a module."""
        return self.folder / "cwd"

    def prepare(self) -> None:
        """Make the folders; only this user can look into them."""
        self.neutral.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)


def files_of(state: State) -> Files:
    """The files of the server of ``state``."""
    return Files(folder=state.root / "server")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A process that cannot be mistaken: its number and when it was started (seconds, epoch)."""

    pid: int
    started: float

    def process(self) -> psutil.Process | None:
        """The process, if it is still the one that was meant; a zombie has ended."""
        try:
            found = psutil.Process(self.pid)
            same = abs(found.create_time() - self.started) <= CLOCK_SECONDS
            return found if same and found.status() != psutil.STATUS_ZOMBIE else None
        except psutil.Error:
            return None


def mark_of(pid: int) -> Mark | None:
    """The mark of a running process."""
    try:
        return Mark(pid=pid, started=psutil.Process(pid).create_time())
    except psutil.Error:
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A server: what it serves and where, the processes, when it was ready (ISO time, UTC).

    ``returncode`` and ``ended`` are set once it has ended by itself; a negative one is a signal.
    """

    model: str
    name: str
    host: str
    port: int
    env: Path
    release: str
    tuned: bool
    log: Path
    key_file: Path
    supervisor: Mark
    server: Mark | None = None
    started: str = ""
    ready: str | None = None
    ended: str | None = None
    returncode: int | None = None

    @property
    def url(self) -> str:
        """The root of the server, as a client on this host reaches it."""
        return f"http://{client_host(self.host)}:{self.port}"

    def marks(self) -> tuple[Mark, ...]:
        """The supervisor, and the server if it was started."""
        return (self.supervisor,) if self.server is None else (self.supervisor, self.server)

    @property
    def alive(self) -> bool:
        """Whether the server, or the supervisor that is about to start it, runs."""
        chief = self.server or self.supervisor
        return self.ended is None and chief.process() is not None


def client_host(host: str) -> str:
    """Where a client on this host finds a server bound to ``host``, as it stands in a URL."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104
    return f"[{reached}]" if ":" in reached else reached


def save(record: Record, path: Path) -> None:
    """Write the record, atomically."""
    jsonio.write(path, record)


def load(path: Path) -> Record | None:
    """The record; None if there is none, or none that can be read as one."""
    try:
        value = jsonio.read(path)
    except CpuBuildError:
        return None
    try:
        return None if value is None else parse(value)
    except (KeyError, TypeError, ValueError):
        return None


def parse(value: Mapping[str, Any]) -> Record:
    """A record from its JSON; KeyError, TypeError or ValueError where it is none."""
    words: dict[str, Any] = {name: str(value[name]) for name in WORDS}
    paths: dict[str, Any] = {name: Path(value[name]) for name in PATHS}
    ended = value.get("returncode")
    return Record(
        **words,
        **paths,
        port=int(value["port"]),
        tuned=bool(value["tuned"]),
        supervisor=mark(value["supervisor"]),
        server=mark(value["server"]) if value.get("server") else None,
        ready=value.get("ready"),
        ended=value.get("ended"),
        returncode=None if ended is None else int(ended),
    )


def mark(value: Mapping[str, Any]) -> Mark:
    """A mark from its JSON; 0 and 1 are no processes of ours."""
    pid, started = int(value["pid"]), float(value["started"])
    if pid <= 1:
        raise ValueError(f"{pid} is no process of ours")
    return Mark(pid=pid, started=started)


def family(record: Record) -> list[psutil.Process]:
    """All living processes of the server: supervisor, server, and whatever they have started.

    A process that lost its parent is found by the session of the server, which is its own.
    """
    found: dict[int, psutil.Process] = {}
    for one in record.marks():
        chief = one.process()
        if chief is None:
            continue
        found[chief.pid] = chief
        with contextlib.suppress(psutil.Error):
            found |= {child.pid: child for child in chief.children(recursive=True)}
    found |= {p.pid: p for p in orphans(record) if p.pid not in found}
    return list(found.values())


def orphans(record: Record) -> list[psutil.Process]:
    """Processes of the server's session, younger than the server; the server may be gone."""
    if record.server is None:
        return []
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            young = process.create_time() >= record.server.started - CLOCK_SECONDS
            if young and os.getsid(process.pid) == record.server.pid:
                found.append(process)
    return [p for p in found if not is_zombie(p)]


def is_zombie(process: psutil.Process) -> bool:
    """Whether a process has ended and only waits to be noticed."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True


def memory(processes: list[psutil.Process]) -> dict[str, int]:
    """Bytes of all of them together: ``pss`` counts shared pages once, ``rss`` in each."""
    total = {"pss": 0, "rss": 0, "processes": 0}
    for process in processes:
        with contextlib.suppress(psutil.Error):
            used = process.memory_full_info()
            total["pss"] += int(getattr(used, "pss", used.rss))
            total["rss"] += int(used.rss)
            total["processes"] += 1
    return total
