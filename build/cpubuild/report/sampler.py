"""Record how much memory the processes of a build take, from a thread that costs little."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO

ROOT = Path("/")


def descendants_bytes(pid: int) -> int:
    """Bytes held by everything that ``pid`` started.

    Files that are only mapped (compilers, precompiled headers) do not count: the kernel can drop
    them.
    """
    import psutil

    total = 0
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            info = process.memory_info()
            total += max(0, info.rss - info.shared)
    return total


def available_bytes() -> int:
    """Bytes that can still be taken, within the control group's limit."""
    from cpubuild.facts import memory

    return memory.parse(memory.probe(ROOT)).usable


class MemorySampler(threading.Thread):
    """Write (seconds, bytes used, bytes available) to ``path`` each ``interval`` seconds.

    Used as a context around the work of process ``pid``. A trouble ends the recording, never the
    work: nothing is raised.
    """

    def __init__(
        self,
        pid: int,
        path: Path,
        *,
        interval: float = 2.0,
        used: Callable[[int], int] = descendants_bytes,
        available: Callable[[], int] = available_bytes,
    ) -> None:
        super().__init__(name="memory-sampler", daemon=True)
        self._pid, self._path, self._interval = pid, path, interval
        self._used, self._available = used, available
        self._ended = threading.Event()

    def run(self) -> None:
        """Sample until the context ends."""
        with contextlib.suppress(Exception):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("w", encoding="utf-8") as sink:
                self._record(sink)

    def _record(self, sink: IO[str]) -> None:
        began = time.monotonic()
        sink.write(f"# clock {time.time():.3f}\nseconds,used,available\n")
        while True:
            used, available = self._used(self._pid), self._available()
            sink.write(f"{time.monotonic() - began:.1f},{used},{available}\n")
            sink.flush()
            if self._ended.wait(self._interval):
                return

    def __enter__(self) -> MemorySampler:
        with contextlib.suppress(RuntimeError):  # no thread can be started
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self.ident is not None:
            self.join(timeout=self._interval)
