"""pip's constraint files: does one of them exclude a pinned version, and in which line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cpubuild.errors import ExitCode, fail
from cpubuild.sources.pipconfig import PipConfig, local_path, redact
from cpubuild.sources.session import limits, open_session, reason, retried

DEEPEST = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Excluded:
    """The constraint that excludes a version: the line, its number and the file it stands in."""

    line: str
    number: int
    file: str


def excluded_by(
    project: str, version: str, config: PipConfig, *, offline: bool = False
) -> Excluded | None:
    """The first line of pip's constraint files that does not admit ``project`` at ``version``."""
    for place in config.constraints:
        for file, number, line in constraint_lines(place, config, offline=offline):
            if not admits(line, project, version):
                return Excluded(line=line, number=number, file=redact(file))
    return None


def admits(line: str, project: str, version: str) -> bool:
    """Whether one constraint leaves ``version`` of ``project`` allowed (other projects do)."""
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return True
    if canonicalize_name(requirement.name) != canonicalize_name(project):
        return True
    try:
        if requirement.marker is not None and not requirement.marker.evaluate():
            return True
    except (UndefinedComparison, UndefinedEnvironmentName):
        return True
    return requirement.url is not None or requirement.specifier.contains(
        Version(version), prereleases=True
    )


def constraint_lines(
    place: str, config: PipConfig, *, offline: bool = False, depth: int = 0
) -> Iterator[tuple[str, int, str]]:
    """Yield file, line number and text of each constraint; ``-c`` and ``-r`` lines are followed."""
    for number, line in logical_lines(_read(place, config, offline)):
        option, _, rest = line.replace("=", " ", 1).partition(" ")
        if option in ("-c", "-r", "--constraint", "--requirement"):
            if depth < DEEPEST:
                inner = _relative(place, rest.strip())
                yield from constraint_lines(inner, config, offline=offline, depth=depth + 1)
        elif not line.startswith("-"):
            yield place, number, line


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line without comments; a trailing backslash joins lines."""
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        if line.endswith("\\"):
            joined += line[:-1]
            continue
        whole = (joined + line).split(" #")[0].strip()
        if whole and not whole.startswith("#"):
            yield first, whole
        joined, first = "", 0


def _relative(place: str, name: str) -> str:
    if local_path(name) is None:
        return name
    base = local_path(place)
    return str(base.parent / name) if base is not None else urljoin(place, name)


def _read(place: str, config: PipConfig, offline: bool) -> str:
    path = local_path(place)
    try:
        if path is not None:
            return Path(path).read_text(encoding="utf-8")
        if offline:
            why = "this run is offline"
        else:
            session = open_session(config)
            try:
                answer = retried(config, lambda: session.get(place, timeout=limits(config)))
                answer.raise_for_status()
                return answer.text
            finally:
                session.close()
    except OSError as error:
        why = reason(error)
    raise fail(
        ExitCode.SETTINGS,
        f"pip's constraint file {redact(place)} cannot be read: {why}",
        why="pip's configuration names it, so every installation on this host depends on it",
        remedy=("pip config list", "pip config unset global.constraint"),
    )
