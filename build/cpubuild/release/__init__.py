"""What a vLLM release asks for, read from its own tree (never from a table of versions)."""

from __future__ import annotations

from pathlib import Path

from cpubuild.release.demands import (
    Dropped,
    ProfileSplit,
    build_requirements,
    profile_split,
    profiles,
    runtime_requirements,
)
from cpubuild.release.known import Provenance, known_release, known_versions, provenance
from cpubuild.release.model import Release, UrlRequirement
from cpubuild.release.reader import read
from cpubuild.release.requirements import Listed

__all__ = [
    "Dropped",
    "Listed",
    "ProfileSplit",
    "Provenance",
    "Release",
    "UrlRequirement",
    "build_requirements",
    "known_release",
    "known_versions",
    "profile_split",
    "profiles",
    "provenance",
    "read_release",
    "runtime_requirements",
]


def read_release(tree: Path, *, arch: str, version: str | None = None) -> Release:
    """Read ``tree`` for a Linux host of ``arch`` (as ``uname -m`` says it).

    ``version`` replaces the one the tree tells. Raises one SETTINGS error with every file that
    could not be read as expected.
    """
    return read(tree, arch=arch, version=version)
