"""Programs that a build uses or a remedy names, with their versions (table: data/tools.toml)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from cpubuild.facts.model import Tool
from cpubuild.facts.programs import ask, which

SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A program of the table: ``args`` make it print its version, empty when it is not run."""

    name: str
    args: tuple[str, ...]
    pattern: str


@cache
def table() -> tuple[Row, ...]:
    """Return the rows of data/tools.toml."""
    data = tomllib.loads(files("cpubuild").joinpath("data/tools.toml").read_text("utf-8"))
    return tuple(
        Row(
            name=row["name"],
            args=tuple(row.get("args", ())),
            pattern=row.get("pattern", data["default"]),
        )
        for row in data["tool"]
    )


def parse(row: Row, path: str | None, output: str) -> Tool:
    """Build the fact from what the program printed."""
    match = re.search(row.pattern, output)
    return Tool(name=row.name, path=path, version=match[1] if path and match else None)


def probe(row: Row, environ: Mapping[str, str]) -> tuple[str | None, str]:
    """Find the program and return (path, what it prints about its version)."""
    path = which(row.name, environ, more=SYSTEM_FOLDERS)
    if path is None or not row.args:
        return path, ""
    done = ask([path, *row.args], environ, timeout=5.0)
    return path, done.stdout or done.stderr


def collect(environ: Mapping[str, str], pool: ThreadPoolExecutor) -> tuple[Tool, ...]:
    """Ask every program of the table at the same time."""
    rows = table()
    answers = pool.map(lambda row: probe(row, environ), rows)
    return tuple(parse(row, path, text) for row, (path, text) in zip(rows, answers, strict=True))
