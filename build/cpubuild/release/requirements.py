"""Requirement files of a tree: read with their ``-r`` files, judged for an architecture.

Lines are read as pip reads them (comments, continuation lines, options); what a line means is
packaging's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from cpubuild.errors import CpuBuildError, Problem
from cpubuild.release.files import problem, read_text

INDEX_OPTIONS = ("--index-url", "-i", "--extra-index-url", "--find-links", "-f", "--no-index")
INCLUDE_OPTIONS = ("--requirement", "-r")
WITHOUT_MEANING_HERE = ("--pre", "--prefer-binary", "--no-binary", "--only-binary")
EXPECTED = "a requirement, an index option, or -r FILE"


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """One requirement with the place it was listed at: file relative to the tree, line from 1."""

    requirement: Requirement
    file: str
    line: int

    @property
    def name(self) -> str:
        """The normalised project name."""
        return canonicalize_name(self.requirement.name)

    def applies(self, environment: dict[str, str]) -> bool:
        """Whether its marker holds in a marker environment."""
        marker = self.requirement.marker
        return marker is None or marker.evaluate(environment)


@dataclass(frozen=True, kw_only=True, slots=True)
class RequirementFile:
    """A requirement file flattened: what it lists, the files read for it, its index lines."""

    entries: tuple[Listed, ...]
    files: tuple[str, ...]
    index_lines: tuple[str, ...]


def read_requirement_file(tree: Path, name: str) -> RequirementFile:
    """Read ``name`` and what it includes; raises with every line that cannot be read."""
    reading = _Reading(tree)
    reading.read(name)
    if reading.problems:
        raise CpuBuildError(*reading.problems)
    return RequirementFile(
        entries=tuple(reading.entries),
        files=tuple(reading.files),
        index_lines=tuple(dict.fromkeys(reading.index_lines)),
    )


def marker_environment(arch: str, python_version: str) -> dict[str, str]:
    """The marker values of CPython ``python_version`` (3.11 or 3.11.7) on Linux on ``arch``."""
    full = python_version if python_version.count(".") > 1 else f"{python_version}.0"
    return {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": "posix",
        "platform_machine": arch,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": full,
        "python_version": ".".join(full.split(".")[:2]),
        "sys_platform": "linux",
    }


def pin(requirement: Requirement) -> str | None:
    """The one version an ``==`` requirement names, None when it leaves a choice."""
    specifiers = list(requirement.specifier)
    if len(specifiers) != 1 or specifiers[0].operator not in ("==", "==="):
        return None
    version = specifiers[0].version
    return None if version.endswith(".*") else version


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a requirement file with their numbers: joined, without comments and blanks."""
    start, parts = 0, list[str]()
    for number, raw in enumerate([*text.splitlines(), ""], start=1):
        start = start or number
        if raw.endswith("\\") and not raw.lstrip().startswith("#"):
            parts.append(raw[:-1])
            continue
        line = re.sub(r"(^|\s)#.*$", "", "".join([*parts, raw])).strip()
        if line:
            yield start, line
        start, parts = 0, []


@dataclass
class _Reading:
    tree: Path
    entries: list[Listed] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    index_lines: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def read(self, name: str) -> None:
        if name in self.files:
            return
        self.files.append(name)
        try:
            text = read_text(self.tree, name, "a requirement file")
        except CpuBuildError as error:
            self.problems.extend(error.problems)
            return
        for number, line in logical_lines(text):
            self._line(name, number, line)

    def _line(self, file: str, number: int, line: str) -> None:
        option, value = _option(line)
        if option in INCLUDE_OPTIONS:
            self._include(file, number, value)
        elif option in INDEX_OPTIONS:
            self.index_lines.append(line)
        elif option == "" and (parsed := _requirement(line)) is not None:
            self.entries.append(Listed(requirement=parsed, file=file, line=number))
        elif option not in WITHOUT_MEANING_HERE:
            self.problems.append(problem(f"{file}:{number}", f"cannot read {line!r}", EXPECTED))

    def _include(self, file: str, number: int, value: str) -> None:
        target = PurePosixPath(file).parent / value
        if not value or ".." in target.parts or target.is_absolute():
            self.problems.append(
                problem(f"{file}:{number}", f"cannot include {value!r}", "-r FILE of the same tree")
            )
            return
        self.read(str(target))


def _option(line: str) -> tuple[str, str]:
    if not line.startswith("-"):
        return "", ""
    match = re.match(r"(--[a-z-]+|-[a-zA-Z])[\s=]*(.*)$", line)
    return (match[1], match[2].strip()) if match else (line, "")


def _requirement(line: str) -> Requirement | None:
    try:
        return Requirement(re.split(r"\s--(?:hash|config-settings?)\b", line)[0].strip())
    except InvalidRequirement:
        return None
