"""Remember which compilers passed the intrinsics, so that a second look costs no compile."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from cpubuild.jsonio import write

MOST_KEYS = 64


def key_of(path: str, banner: str) -> str:
    """Fingerprint a compiler: its file, what it prints about itself, and the probes in use."""
    try:
        stat = Path(path).resolve().stat()
    except (OSError, RuntimeError):
        return ""
    probes = files("cpubuild").joinpath("data/compilers.toml").read_bytes()
    parts = (path, str(stat.st_size), str(stat.st_mtime_ns), banner)
    digest = hashlib.sha256(probes)
    for part in parts:
        digest.update(part.encode("utf-8", errors="replace") + b"\0")
    return digest.hexdigest()


@dataclass(slots=True)
class Cache:
    """Keys of compilers that passed; a cache that cannot be read is empty, never an error."""

    path: Path | None
    passed: set[str] = field(default_factory=set)
    changed: bool = False

    @classmethod
    def load(cls, path: Path | None) -> Cache:
        """Read the cache at ``path``."""
        passed: set[str] = set()
        if path is not None:
            with contextlib.suppress(OSError, ValueError, RecursionError, TypeError, KeyError):
                listed = json.loads(path.read_text(encoding="utf-8"))["passed"]
                passed = {key for key in listed if isinstance(key, str)}
        return cls(path=path, passed=passed)

    def holds(self, key: str) -> bool:
        """Whether this compiler passed before."""
        return key in self.passed

    def add(self, key: str) -> None:
        """Remember that this compiler passed."""
        if key:
            self.passed.add(key)
            self.changed = True

    def save(self) -> None:
        """Write the cache if it changed; a folder that cannot be written costs only time."""
        if self.path is None or not self.changed:
            return
        kept = sorted(self.passed) if len(self.passed) <= MOST_KEYS else []
        with contextlib.suppress(OSError):
            write(self.path, {"passed": kept})
