"""Sessions of processes: what belongs to one, who started it and when, how all of it is ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

GRACE_SECONDS = 5.0
# A process's start is told by a clock that may be set while it runs.
CLOCK_SECONDS = 2.0


@contextlib.contextmanager
def recorded(pid: int, folder: Path | None) -> Iterator[None]:
    """Name the process in a file of ``folder`` (None: nowhere) while the block runs."""
    if folder is None:
        yield
        return
    record = folder / f"{pid}.json"
    try:
        mark = json.dumps([pid, started_at(pid)])
        record.write_text(mark, encoding="utf-8")
        yield
    finally:
        record.unlink(missing_ok=True)


def end_recorded(folder: Path) -> bool:
    """End what a killed run left behind, as ``folder`` names it; True if there was such."""
    ended = [end_one(record) for record in sorted(folder.glob("*.json"))]
    return any(ended)


def end_one(record: Path) -> bool:
    """End the session that one record names, if it is still that one."""
    import psutil

    try:
        pid, started = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False
    record.unlink(missing_ok=True)
    if not isinstance(pid, int) or pid <= 1 or not isinstance(started, float):
        return False
    now = started_at(pid)
    reused = now is not None and abs(now - started) > CLOCK_SECONDS
    if reused or started + CLOCK_SECONDS < psutil.boot_time():
        return False
    left = kill(pid)
    deadline = time.monotonic() + GRACE_SECONDS
    while members(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def kill(session: int) -> bool:
    """Kill every process of a session; False if there was none."""
    found = members(session)
    for member in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(member, signal.SIGKILL)
    return bool(found)


def members(session: int) -> list[int]:
    """The living processes of a session.

    ninja gives each compiler a process group of its own: only the session holds them together.
    """
    import psutil

    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):  # it ended meanwhile
            if os.getsid(pid) != session:
                continue
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


def started_at(pid: int) -> float | None:
    """When the process started, in seconds of the epoch; None: there is no such process."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None
