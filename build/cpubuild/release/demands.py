"""What a tree wants installed: to run, to run for a purpose (a profile), and to build."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from cpubuild.errors import ExitCode, fail
from cpubuild.release.model import Release
from cpubuild.release.project import supported_minors
from cpubuild.release.reader import applying
from cpubuild.release.requirements import Listed, marker_environment, read_requirement_file

PROFILES = "profiles.toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """A requirement a profile leaves out: why that is possible, and what is lost by it."""

    listed: Listed
    reason: str
    lost: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileSplit:
    """Requirements parted by a profile, each side in the order of the list."""

    kept: tuple[Listed, ...]
    dropped: tuple[Dropped, ...]


def runtime_requirements(
    tree: Path, release: Release, *, python_version: str
) -> tuple[Listed, ...]:
    """The run-time requirements that apply to ``python_version`` on the release's architecture.

    Included files are followed; each requirement keeps its marker and names file and line.
    """
    listed = read_requirement_file(tree, release.runtime_requirements).entries
    environment = marker_environment(release.arch, python_version)
    return tuple(entry for entry in listed if entry.applies(environment))


def build_requirements(tree: Path, release: Release) -> tuple[str, ...]:
    """The build requirements for the release's architecture, without torch.

    A marker stays only where it depends on the Python.
    """
    listed = read_requirement_file(tree, release.build_requirements).entries
    minors = supported_minors(release.python)
    wanted = []
    for entry in listed:
        there = applying(entry.requirement, release.arch, minors)
        if entry.name != "torch" and there:
            wanted.append(_text(entry.requirement, with_marker=len(there) < len(minors)))
    return tuple(dict.fromkeys(wanted))


def profile_split(requirements: Iterable[Listed], profile: str) -> ProfileSplit:
    """Part requirements into those ``profile`` keeps and those it drops.

    A profile that is not in the table is a SETTINGS error.
    """
    table = profiles()
    if profile not in table:
        raise fail(
            ExitCode.SETTINGS,
            f"there is no profile {profile!r}",
            why=f"the profiles are {', '.join(table)}",
            remedy=tuple(f"--profile {name}" for name in table),
        )
    kept: list[Listed] = []
    dropped: list[Dropped] = []
    rules = table[profile].get("drop", [])
    for listed in requirements:
        rule = next((r for r in rules if _matches(r, listed)), None)
        if rule is None:
            kept.append(listed)
        else:
            dropped.append(Dropped(listed=listed, reason=rule["reason"], lost=rule["lost"]))
    return ProfileSplit(kept=tuple(kept), dropped=tuple(dropped))


def profiles() -> dict[str, Any]:
    """The table of profiles by name."""
    return tomllib.loads(files("cpubuild.data").joinpath(PROFILES).read_text(encoding="utf-8"))


def _matches(rule: dict[str, Any], listed: Listed) -> bool:
    if rule["name"] != listed.name:
        return False
    return rule.get("only") != "url" or listed.requirement.url is not None


def _text(requirement: Requirement, *, with_marker: bool) -> str:
    if with_marker:
        return str(requirement)
    bare = Requirement(str(requirement))
    bare.marker = None
    return str(bare)
