"""The table of compilers and options (data/compilers.toml), typed."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """A compiler option: ``source`` shows it by intrinsics, ``also`` are options that needs.

    ``exclusive`` options override each other on one command line.
    """

    name: str
    arch: str
    source: str
    also: tuple[str, ...]

    @property
    def exclusive(self) -> bool:
        """Whether only the last of several counts."""
        return self.name.startswith(("-march=", "-mcpu="))


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Names and globs to look for, programs that only wrap a compiler, options to try."""

    names: tuple[str, ...]
    globs: tuple[str, ...]
    wrappers: frozenset[str]
    header: str
    options: tuple[Option, ...]


@cache
def table() -> Table:
    """Return the table."""
    data = tomllib.loads(files("cpubuild").joinpath("data/compilers.toml").read_text("utf-8"))
    return Table(
        names=tuple(data["names"]),
        globs=tuple(data["globs"]),
        wrappers=frozenset(data["wrappers"]),
        header=data["header"],
        options=tuple(
            Option(
                name=row["name"],
                arch=row["arch"],
                source=row.get("source", ""),
                also=tuple(row.get("also", ())),
            )
            for row in data["option"]
        ),
    )
