"""Real compiles in the background, watched until they are far enough for a test."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from cpubuild.ui import COUNTER


def seeded(state: Path, root: Path) -> Path:
    """A new state root with everything that comes before the compile."""
    for name in ("sources", "downloads", "buildenvs", "locks"):
        if (state / name).is_dir():
            shutil.copytree(state / name, root / name, symlinks=True, copy_function=linked)
    return root


def linked(source: str, target: str) -> None:
    """Give a file a second name, or copy it where the filesystems differ."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiling:
    """A bootstrap in the background; ``root`` is its state root, ``before`` the runs it found."""

    process: subprocess.Popen[bytes]
    root: Path
    before: frozenset[Path]

    def until(self, *, objects: int) -> tuple[int, int]:
        """Ninja's counter (objects done, of how many) as soon as this run has made ``objects``."""
        deadline = time.monotonic() + 1500
        while time.monotonic() < deadline:
            counter = self.counter()
            if counter is not None and counter[0] >= objects:
                return counter
            assert self.process.poll() is None, f"it ended: {self.process.returncode}"
            time.sleep(0.5)
        raise AssertionError("no compile within 25 minutes")

    def counter(self) -> tuple[int, int] | None:
        new = set(self.root.glob("runs/*")) - self.before
        logs = [run / "compile" / "log" for run in new if (run / "compile" / "log").is_file()]
        lines = [x for log in logs for x in log.read_text(errors="replace").splitlines()]
        found = [m for m in map(COUNTER.match, lines) if m]
        return (int(found[-1][1]), int(found[-1][2])) if found else None


@contextlib.contextmanager
def compiling(root: Path, environ: Mapping[str, str] | None = None) -> Iterator[Compiling]:
    """A bootstrap into ``root`` with a whole environment of its own; it is killed at the end."""
    script = Path(sys.executable).parent / "cpubuild"
    before = frozenset(root.glob("runs/*"))
    process = subprocess.Popen(
        [script, "bootstrap", "--state", str(root)],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Compiling(process=process, root=root, before=before)
    finally:
        process.kill()
        process.wait()


def left_running(root: Path) -> list[str]:
    """The command lines of processes that name the folder."""
    lines = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
    return [line for line in lines if str(root) in line]
