"""Read small kernel and configuration files under a root folder, and the lists found in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

Texts = Mapping[str, str]
"""File name relative to the root -> its text; a file that could not be read has no key."""

MOST_BYTES = 8 << 20
MOST_CPUS = 1 << 14


def read_text(root: Path, name: str) -> str | None:
    """Return the text of ``root/name``, None when it cannot be read (absent, denied, a folder)."""
    try:
        with (root / name).open("rb") as source:
            return source.read(MOST_BYTES).decode("utf-8", errors="replace")
    except (OSError, ValueError):
        return None


def read_texts(root: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the files of ``names`` (glob patterns allowed) that can be read under ``root``."""
    texts: dict[str, str] = {}
    for name in names:
        for found in _expand(root, name):
            text = read_text(root, found)
            if text is not None:
                texts[found] = text
    return texts


def _expand(root: Path, name: str) -> list[str]:
    if not any(sign in name for sign in "*?["):
        return [name]
    try:
        return sorted(path.relative_to(root).as_posix() for path in root.glob(name))
    except OSError:
        return []


def cpu_list(text: str) -> tuple[int, ...]:
    """Parse the kernel's list format (``0-3,8``); pieces that make no sense are left out."""
    numbers: set[int] = set()
    for piece in text.strip().split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", piece, re.ASCII)
        if match is None:
            continue
        first, last = int(match[1]), int(match[2] or match[1])
        if first <= last < MOST_CPUS:
            numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def integer(text: str | None) -> int | None:
    """Parse a file that holds one decimal number; None for anything else."""
    if text is None or re.fullmatch(r"-?\d{1,20}", text.strip(), re.ASCII) is None:
        return None
    return int(text)


def colon_fields(text: str) -> dict[str, str]:
    """Parse ``key : value`` lines; the first value of a key counts."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, sign, value = line.partition(":")
        if sign:
            fields.setdefault(key.strip(), value.strip())
    return fields
