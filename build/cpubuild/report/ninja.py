"""Ninja's log: text -> the sessions of a build, each with its jobs.

The log (https://ninja-build.org/manual.html#ref_log) holds one line for each finished output: start
and end in milliseconds since that call of ninja began, a time stamp in nanoseconds, the output, a
hash of the command. A build that was interrupted and gone on with has several sessions in one log,
with no mark between them. Since ninja 1.11 the time stamp is when the command started (before: when
the output was written), so stamp minus offset is the clock time at which the session began: equal
within one session, and different from the next one's.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from statistics import median
from typing import Literal

from cpubuild.errors import ExitCode, fail

Kind = Literal["compile", "headers", "link", "other"]

HEADER = re.compile(r"# ninja log v(\d+)")
OLDEST = 4
TARGET = re.compile(r"(?:^|/)CMakeFiles/([^/]+)\.dir/")
OBJECTS = (".o", ".obj")
HEADERS = (".gch", ".pch")
LINKED = re.compile(r"\.(?:so(?:\.\d+)*|a)$")
SAME_CLOCK = 1.0
"""Seconds between two clocks of one session at most; a new session takes longer to start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One finished command: ``start`` and ``end`` in seconds since its session began."""

    output: str
    start: float
    end: float
    target: str
    kind: Kind

    @property
    def seconds(self) -> float:
        """How long the command ran."""
        return self.end - self.start

    @property
    def name(self) -> str:
        """The file's own name without the ending that only says it is an object."""
        return PurePosixPath(self.output).name.removesuffix(".o")


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """One call of ninja: its jobs by start, and the POSIX time it began (None: unknown)."""

    jobs: tuple[Job, ...]
    clock: float | None

    @property
    def seconds(self) -> float:
        """From the call of ninja to its last finished job."""
        return max(job.end for job in self.jobs)

    @property
    def busy(self) -> float:
        """Seconds of all jobs together."""
        return sum(job.seconds for job in self.jobs)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildLog:
    """All sessions, oldest first; ``unread`` counts lines that are not as the format says."""

    version: int
    sessions: tuple[Session, ...]
    unread: int = 0

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs of all sessions."""
        return tuple(job for session in self.sessions for job in session.jobs)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    start: float
    end: float
    stamp: float | None
    output: str
    command: str


def parse(text: str, *, name: str = ".ninja_log") -> BuildLog:
    """Read a log of ninja; a SETTINGS error if ``text`` is none."""
    lines = text.splitlines()
    header = HEADER.match(lines[0]) if lines else None
    if header is None or int(header[1]) < OLDEST:
        raise fail(
            ExitCode.SETTINGS,
            f"{name} is not a log of ninja that can be read: it begins with "
            f"{(lines[0] if lines else '')[:40]!r}",
            why=f"'# ninja log v{OLDEST}' or newer was expected in its first line",
            remedy=("give the .ninja_log of a build folder",),
        )
    rows = [_row(line) for line in lines[1:] if line and not line.startswith("#")]
    whole = [row for row in rows if row is not None]
    return BuildLog(
        version=int(header[1]),
        sessions=tuple(_session(group, clock) for group, clock in _split(_once(whole))),
        unread=len(rows) - len(whole),
    )


def target_of(output: str) -> str:
    """Name the target an output belongs to: CMake's, else ``link`` or ``other``."""
    found = TARGET.search(output)
    if found:
        return found[1]
    return "link" if LINKED.search(output) else "other"


def kind_of(output: str) -> Kind:
    """Say what kind of command makes ``output``."""
    if output.endswith(OBJECTS):
        return "compile"
    if output.endswith(HEADERS):
        return "headers"
    return "link" if LINKED.search(output) else "other"


def seconds_by_target(jobs: Sequence[Job]) -> dict[str, tuple[int, float]]:
    """Sum (jobs, seconds) for each target, the most expensive first."""
    sums: dict[str, tuple[int, float]] = {}
    for job in jobs:
        count, seconds = sums.get(job.target, (0, 0.0))
        sums[job.target] = (count + 1, seconds + job.seconds)
    return dict(sorted(sums.items(), key=lambda item: (-item[1][1], item[0])))


def lanes(jobs: Sequence[Job]) -> dict[Job, int]:
    """Give each job the lowest lane that is free when it starts: lanes are cores in use."""
    ends: list[float] = []
    taken: dict[Job, int] = {}
    for job in sorted(jobs, key=lambda j: (j.start, j.end, j.output)):
        free = next((i for i, end in enumerate(ends) if end <= job.start), len(ends))
        ends[free : free + 1] = [job.end]
        taken[job] = free
    return taken


def _row(line: str) -> _Row | None:
    parts = line.split("\t")
    if len(parts) != 5:
        return None
    try:
        start, end, stamp = int(parts[0]), int(parts[1]), int(parts[2])
    except ValueError:
        return None
    if not 0 <= start <= end or not parts[3]:
        return None
    # Before 1.9 ninja wrote whole seconds.
    seconds = None if stamp <= 0 else stamp / 1e9 if stamp > 1e14 else float(stamp)
    return _Row(
        start=start / 1000, end=end / 1000, stamp=seconds, output=parts[3], command=parts[4]
    )


def _once(rows: Sequence[_Row]) -> list[_Row]:
    """Drop the further outputs of a command that has several: each has a line of its own."""
    seen: set[tuple[float, float, str]] = set()
    kept: list[_Row] = []
    for row in rows:
        key = (row.start, row.end, row.command)
        if key not in seen:
            seen.add(key)
            kept.append(row)
    return kept


def _session(rows: Sequence[_Row], clock: float | None) -> Session:
    jobs = [
        Job(
            output=row.output,
            start=row.start,
            end=row.end,
            target=target_of(row.output),
            kind=kind_of(row.output),
        )
        for row in rows
    ]
    return Session(jobs=tuple(sorted(jobs, key=lambda j: (j.start, j.end, j.output))), clock=clock)


def _split(rows: Sequence[_Row]) -> list[tuple[list[_Row], float | None]]:
    """Cut the rows into sessions with their clocks, oldest first."""
    if not rows:
        return []
    clocks = _clocks(rows)
    if sum(clock is not None for clock in clocks) * 2 < len(rows):
        return [(group, None) for group in _by_order(rows)]
    marks = _steady(clocks)
    groups: dict[float, list[_Row]] = {}
    for row, mark in zip(rows, marks, strict=True):
        groups.setdefault(mark, []).append(row)
    return [(groups[mark], mark) for mark in sorted(groups)]


def _by_order(rows: Sequence[_Row]) -> list[list[_Row]]:
    """Cut where the end falls: ninja writes a line when a command ends."""
    groups: list[list[_Row]] = []
    for row in rows:
        if not groups or row.end < groups[-1][-1].end:
            groups.append([])
        groups[-1].append(row)
    return groups


def _clocks(rows: Sequence[_Row]) -> list[float | None]:
    """When each row's session began, from whichever end of the job the time stamp is of."""
    by_start = [None if r.stamp is None else r.stamp - r.start for r in rows]
    by_end = [None if r.stamp is None else r.stamp - r.end for r in rows]
    return by_start if _agreement(by_start) >= _agreement(by_end) else by_end


def _agreement(clocks: Sequence[float | None]) -> int:
    known = sorted(c for c in clocks if c is not None)
    return sum(b - a < SAME_CLOCK / 2 for a, b in itertools.pairwise(known))


def _steady(clocks: Sequence[float | None]) -> list[float]:
    """Replace each clock by its session's: the median of all that lie close together.

    A command that leaves an unchanged output has an older time stamp, and some have none. Such a
    row stands alone with a clock before its predecessor's, and belongs to its predecessor.
    """
    known = sorted({c for c in clocks if c is not None})
    runs: list[list[float]] = []
    for clock in known:
        if not runs or clock - runs[-1][-1] > SAME_CLOCK:
            runs.append([])
        runs[-1].append(clock)
    session = {clock: median(run) for run in runs for clock in run}
    sizes = Counter(session[c] for c in clocks if c is not None)
    first = next(c for c in clocks if c is not None)
    last = session[first]
    marks: list[float] = []
    for own in clocks:
        mark = last if own is None else session[own]
        if mark < last and sizes[mark] == 1:
            mark = last
        marks.append(mark)
        last = mark
    return marks
