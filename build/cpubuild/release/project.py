"""What pyproject.toml and rust-toolchain.toml say."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from cpubuild.release.files import read_text, unreadable

PROJECT = "pyproject.toml"
TOOLCHAIN = "rust-toolchain.toml"
FIRST_MINOR, LAST_MINOR = 6, 40


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectFacts:
    """The Python range (None where setup.py states it) and the build requirements."""

    python: str | None
    build_requires: tuple[Requirement, ...]


def read_project(tree: Path) -> ProjectFacts:
    """Read pyproject.toml."""
    document = _toml(tree, PROJECT, "[build-system] with its requires")
    requires = _table(document, "build-system").get("requires")
    if not isinstance(requires, list):
        raise unreadable(PROJECT, "no build requirements are listed", "requires = [...]")
    python = _table(document, "project").get("requires-python")
    return ProjectFacts(
        python=None if python is None else str(python),
        build_requires=tuple(_requirement(r) for r in requires),
    )


def read_toolchain(tree: Path) -> str | None:
    """The Rust toolchain the tree names, None where it has no rust-toolchain.toml."""
    if not (tree / TOOLCHAIN).exists():
        return None
    channel = _table(_toml(tree, TOOLCHAIN, "[toolchain]"), "toolchain", TOOLCHAIN).get("channel")
    if not isinstance(channel, str):
        raise unreadable(TOOLCHAIN, "no channel is named", '[toolchain] channel = "1.95"')
    return channel


def has_rust(tree: Path) -> bool:
    """Whether the tree has Rust parts."""
    return any((tree / name).is_file() for name in ("Cargo.toml", "rust/Cargo.toml"))


def python_range(stated: str, where: str, accepted: tuple[str, ...]) -> str:
    """The stated range of Pythons, narrowed to those CMake accepts where these are fewer."""
    try:
        specifiers = SpecifierSet(stated)
    except InvalidSpecifier:
        raise unreadable(where, f"{stated!r} is no range of versions", ">=3.11,<3.15") from None
    wanted = [m for m in _minors() if _allows(specifiers, m)]
    kept = [m for m in wanted if m in accepted]
    if not kept:
        raise unreadable(where, f"{stated} leaves no Python that CMake accepts", ">=3.11,<3.15")
    if kept == wanted:
        return stated
    first, last = kept[0], kept[-1]
    bound = f"<3.{int(last.split('.')[1]) + 1}"
    return f"{stated},{bound}" if first == wanted[0] else f">={first},{bound}"


def supported_minors(python: str) -> tuple[str, ...]:
    """The Pythons of a range, as ``3.x``, oldest first."""
    specifiers = SpecifierSet(python)
    return tuple(m for m in _minors() if _allows(specifiers, m))


def _allows(specifiers: SpecifierSet, minor: str) -> bool:
    return specifiers.contains(f"{minor}.0") or specifiers.contains(f"{minor}.99")


def _minors() -> list[str]:
    return [f"3.{minor}" for minor in range(FIRST_MINOR, LAST_MINOR)]


def _toml(tree: Path, name: str, expected: str) -> dict[str, Any]:
    text = read_text(tree, name, expected)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise unreadable(name, f"not TOML: {error}", expected) from None


def _table(document: dict[str, Any], key: str, name: str = PROJECT) -> dict[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, dict):
        raise unreadable(name, f"{key} is no table", f"[{key}]")
    return table


def _requirement(text: object) -> Requirement:
    try:
        return Requirement(str(text))
    except InvalidRequirement:
        raise unreadable(PROJECT, f"{text!r} is no requirement", "requirements") from None
