"""The tables behind the judgements, read once from ``cpubuild/data``."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

GIB = 1 << 30
MIB = 1 << 20


@cache
def table(name: str) -> dict[str, Any]:
    """The parsed TOML file ``data/<name>``; a missing or broken file is a defect and raises."""
    return tomllib.loads((files("cpubuild") / "data" / name).read_text(encoding="utf-8"))


def needs_table() -> dict[str, Any]:
    """What a compile and a run take (``data/needs.toml``)."""
    return table("needs.toml")


def gib(value: float) -> int:
    """Bytes of ``value`` GiB."""
    return int(value * GIB)


def words(size: int) -> str:
    """``size`` bytes in words: 3.8 GiB, 512 MiB."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"
