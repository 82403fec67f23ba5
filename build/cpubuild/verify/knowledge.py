"""What verification knows, read from data/verify.toml and data/verify_operators.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from packaging.version import InvalidVersion, Version


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckInfo:
    """What a check is about; ``required`` means that the verdict needs it to pass."""

    id: str
    title: str
    level: str
    required: bool
    means: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Expectation:
    """Operators a release should register; ``exact`` when its own sources were read."""

    names: frozenset[str]
    core: frozenset[str]
    exact: bool


@cache
def table() -> dict[str, Any]:
    """data/verify.toml."""
    return tomllib.loads(files("cpubuild.data").joinpath("verify.toml").read_text("utf-8"))


@cache
def operator_table() -> dict[str, Any]:
    """data/verify_operators.toml."""
    source = files("cpubuild.data").joinpath("verify_operators.toml")
    return tomllib.loads(source.read_text("utf-8"))


@cache
def checks() -> dict[str, CheckInfo]:
    """Every check by id, in the order of the report."""
    return {name: CheckInfo(id=name, **row) for name, row in table()["check"].items()}


def bound(name: str) -> float:
    """A numeric bound of data/verify.toml."""
    return float(table()["bounds"][name])


def expected_operators(version: str, isas: frozenset[str]) -> Expectation | None:
    """What ``version`` registers when its library is compiled for ``isas``.

    ``isas`` holds ``avx512`` and ``avx512bf16`` where they apply. A release whose sources were
    not read is expected to have what both its neighbours have. None: the version is unreadable
    or older than any that was read.
    """
    try:
        asked = Version(Version(version).public)
    except InvalidVersion:
        return None
    known = sorted(Version(r) for r in operator_table()["releases"])
    below = [r for r in known if r <= asked]
    if not below:
        return None
    above = [r for r in known if r >= asked]
    names = _at(below[-1], isas)
    if above:
        names &= _at(above[0], isas)
    core = operator_table()["core"]
    needed = frozenset(core["names"]) if asked >= Version(core["since"]) else frozenset[str]()
    return Expectation(names=names, core=needed, exact=below[-1] == asked)


def _at(release: Version, isas: frozenset[str]) -> frozenset[str]:
    found: set[str] = set()
    for group in operator_table()["operators"]:
        if group["isa"] and group["isa"] not in isas:
            continue
        until = group["until"]
        if Version(group["since"]) <= release and (not until or release <= Version(until)):
            found.update(group["names"])
    return frozenset(found)
