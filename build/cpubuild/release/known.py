"""The releases recorded in data/releases.json: facts to judge by before anything is downloaded.

The table is written by ``python -m cpubuild.release.record`` from source distributions; a tree
at hand is always read itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from packaging.version import InvalidVersion, Version

from cpubuild.release.model import Release, UrlRequirement

RELEASES = "releases.json"
SCHEMA = 1
NAME_SETS = ("env_names", "env_names_elsewhere")
LISTS = ("targets", "index_lines", "cmake_python")


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """The source distribution a recorded release was read from."""

    filename: str
    sha256: str


def known_versions() -> tuple[str, ...]:
    """The recorded releases, oldest first."""
    return tuple(sorted(_table(), key=Version))


def known_release(version: str, arch: str) -> Release | None:
    """The recorded release, None when ``version`` or ``arch`` is not in the table."""
    key = _key(version)
    entry = _table().get(key, {})
    own = entry.get("arch", {}).get(arch)
    if own is None:
        return None
    return from_document({**entry["all"], **own, **_names(key), "version": key, "arch": arch})


def provenance(version: str) -> Provenance | None:
    """The source distribution that ``version`` was recorded from."""
    entry = _table().get(_key(version))
    return Provenance(**entry["sdist"]) if entry else None


def from_document(document: dict[str, Any]) -> Release:
    """The Release that a plain JSON document describes."""
    fields = dict(document)
    fields.update({name: tuple(fields[name]) for name in LISTS})
    fields.update({name: frozenset(fields[name]) for name in NAME_SETS})
    fields["url_requirements"] = tuple(UrlRequirement(**u) for u in fields["url_requirements"])
    return Release(**fields)


def _names(key: str) -> dict[str, frozenset[str]]:
    """The variables of a release: the table says what each release added and removed."""
    names: dict[str, set[str]] = {kind: set() for kind in NAME_SETS}
    for version in known_versions():
        for kind, known in names.items():
            change = _table()[version][kind]
            known.difference_update(change["removed"])
            known.update(change["added"])
        if version == key:
            break
    return {kind: frozenset(known) for kind, known in names.items()}


def _key(version: str) -> str:
    """The name in the table; 0.32 is 0.32.0."""
    try:
        public = Version(Version(version).public)
    except InvalidVersion:
        return version
    return next((name for name in _table() if Version(name) == public), str(public))


@cache
def _table() -> dict[str, Any]:
    text = files("cpubuild.data").joinpath(RELEASES).read_text(encoding="utf-8")
    releases: dict[str, Any] = json.loads(text)["releases"]
    return releases
