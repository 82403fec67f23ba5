"""Which Python interpreters a release accepts."""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cpubuild.choose.levels import version_of
from cpubuild.facts.model import Interpreter
from cpubuild.release import Release

NAMED = re.compile(r"(?:python)?(3\.\d+(?:\.\d+\w*)?)")


def minor(version: str) -> str:
    """``3.11`` of ``3.11.7``."""
    return ".".join(version.split(".")[:2])


def in_range(python: Interpreter, release: Release) -> bool:
    """Whether the release accepts this interpreter: CPython, with the GIL, in its range."""
    version = version_of(python.version)
    if version is None or python.implementation.lower() != "cpython" or python.free_threaded:
        return False
    return SpecifierSet(release.python).contains(version, prereleases=True)


def best(pythons: Iterable[Interpreter], release: Release) -> Interpreter | None:
    """The interpreter to take: in range, with headers and venv, then the newest."""
    fitting = [p for p in pythons if in_range(p, release)]
    return max(fitting, key=lambda p: (p.headers, p.venv, Version(p.version)), default=None)


def asked_for(pythons: Iterable[Interpreter], wanted: str) -> Interpreter | None:
    """The interpreter that ``wanted`` names: a path, a name such as python3.11, 3.11 or 3.11.7.

    A path or a name means what it led to when the host was looked at. Of several of one version
    the one to take is the one with the GIL, with headers and with venv.
    """
    pythons = tuple(pythons)
    for found in pythons:
        if wanted in (found.asked, found.path):
            return found
    version = NAMED.fullmatch(wanted)
    if version is None:
        return None
    fitting = [p for p in pythons if version[1] in (p.version, minor(p.version))]
    return max(
        fitting,
        key=lambda p: (
            p.implementation.lower() == "cpython" and not p.free_threaded,
            p.headers,
            p.venv,
        ),
        default=None,
    )


def headers_wanted(python: Interpreter) -> bool:
    """Whether its headers would come from a package of the operating system."""
    return not python.headers and python.path.startswith("/usr/bin/")
