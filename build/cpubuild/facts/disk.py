"""Free space where it will be used: the filesystem under the nearest folder that exists."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from cpubuild.facts.model import Disk
from cpubuild.facts.read import read_text


def probe(root: Path) -> str:
    """Read the mount table."""
    return read_text(root, "proc/self/mountinfo") or ""


def parse_mounts(text: str) -> tuple[tuple[str, str], ...]:
    """Return (mount point, filesystem name) in the order of mounting."""
    mounts: list[tuple[str, str]] = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if len(before) > 4 and after[0]:
            mounts.append((_unescape(before[4]), after[0]))
    return tuple(mounts)


def filesystem(path: Path, mounts: Iterable[tuple[str, str]]) -> str:
    """Return the name of the filesystem that holds ``path``, "" when the table does not say."""
    best, name = "", ""
    for point, kind in mounts:
        # of two on one point the later is on top
        if len(point) >= len(best) and path.is_relative_to(point):
            best, name = point, kind
    return name


def nearest(path: Path) -> Path:
    """Return the nearest existing folder above ``path`` (or itself), resolved."""
    place = path.absolute()
    while place != place.parent:
        try:
            if place.exists():
                break
        except OSError:
            pass
        place = place.parent
    return place.resolve()


def measure(path: Path, purpose: str, mounts: Iterable[tuple[str, str]]) -> Disk:
    """Measure the filesystem that will hold ``path``; free space is what this user may take."""
    place = nearest(path)
    try:
        stat = os.statvfs(place)
    except OSError:
        return Disk(
            path=str(place),
            purpose=purpose,
            free=0,
            free_inodes=None,
            filesystem="",
            writable=False,
        )
    return Disk(
        path=str(place),
        purpose=purpose,
        free=stat.f_bavail * stat.f_frsize,
        # btrfs and overlay on it count no inodes at all
        free_inodes=stat.f_favail if stat.f_files else None,
        filesystem=filesystem(place, mounts),
        writable=place.is_dir() and os.access(place, os.W_OK) and not stat.f_flag & os.ST_RDONLY,
    )


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-3][0-7]{2})", lambda match: chr(int(match[1], 8)), text)
