"""Where things lie in the picture: records -> coordinates in a drawing 1120 units wide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cpubuild.report import ninja, words
from cpubuild.report.ninja import Job, Session
from cpubuild.report.recorded import Memory, Sample

WIDTH = 1120.0
LEFT = 62.0
RIGHT = 12.0
GAP = 18.0
"""Between two sessions, whatever time lay between them."""
LANES_HEIGHT = 460.0
TICK_ROOM = 70.0
HAIR = 0.7
"""Left free between two bars, and the width of the narrowest."""
LETTER = 6.3
"""Width of a letter at the size of the labels, generously."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """One session on the time axis: ``x`` to ``x + width``; ``clock`` None: unknown."""

    x: float
    width: float
    seconds: float
    clock: float | None
    label: str

    def at(self, seconds: float) -> float:
        """Where a moment of this session lies, in seconds since it began."""
        return self.x + self.width * seconds / self.seconds if self.seconds else self.x


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One job: ``label`` is what fits into it, ``title`` what a pointer shows."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    label: str
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A line of a grid with its text."""

    at: float
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """The jobs by lane; ``bottom`` is where the lanes end."""

    segments: tuple[Segment, ...]
    lanes: tuple[Mark, ...]
    bars: tuple[Bar, ...]
    ticks: tuple[Mark, ...]
    bottom: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Peak:
    """The highest point; ``anchor`` is the end at which its text is held."""

    x: float
    y: float
    text: str
    anchor: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryChart:
    """Memory over the same axis: ``used`` as areas, ``ceiling`` as lines, in SVG path language."""

    used: tuple[str, ...]
    ceiling: tuple[str, ...]
    peak: Peak | None
    marks: tuple[Mark, ...]
    height: float


def segments(sessions: Sequence[Session]) -> tuple[Segment, ...]:
    """Lay the sessions side by side, with a gap of equal size between them."""
    total = sum(session.seconds for session in sessions)
    room = WIDTH - LEFT - RIGHT - GAP * max(0, len(sessions) - 1)
    laid: list[Segment] = []
    x = LEFT
    for number, session in enumerate(sessions, start=1):
        width = room * session.seconds / total if total else room / len(sessions)
        laid.append(
            Segment(
                x=x,
                width=width,
                seconds=session.seconds,
                clock=session.clock,
                label=_session_label(number, len(sessions), session, width),
            )
        )
        x += width + GAP
    return tuple(laid)


def timeline(sessions: Sequence[Session], colours: Mapping[str, str]) -> Timeline:
    """Draw every job as a bar in its lane."""
    axis = segments(sessions)
    placed = [ninja.lanes(session.jobs) for session in sessions]
    count = 1 + max((lane for lanes in placed for lane in lanes.values()), default=0)
    pitch = max(7.0, min(34.0, LANES_HEIGHT / count))
    height = pitch - min(4.0, pitch / 5)
    top = 22.0
    bars = [
        _bar(job, segment, y=top + lane * pitch, height=height, colour=colours[job.target])
        for segment, lanes in zip(axis, placed, strict=True)
        for job, lane in lanes.items()
    ]
    every = max(1, round(14 / pitch))
    return Timeline(
        segments=axis,
        lanes=tuple(
            Mark(at=top + lane * pitch + height / 2, text=f"core {lane + 1}")
            for lane in range(0, count, every)
        ),
        bars=tuple(bars),
        ticks=tuple(mark for segment in axis for mark in _ticks(segment)),
        bottom=top + count * pitch,
    )


def memory_chart(memory: Memory, axis: Sequence[Segment], *, height: float = 130.0) -> MemoryChart:
    """Draw the samples that fall into a session; ``ceiling`` is used plus still available."""
    top = max((s.used + s.available for s in memory.samples), default=0) or 1
    used: list[str] = []
    ceiling: list[str] = []
    highest: tuple[float, float, Sample] | None = None
    for segment, start in zip(axis, _starts(memory, axis), strict=True):
        inside = [s for s in memory.samples if start is not None and _in(s, start, segment)]
        if start is None or len(inside) < 2:
            continue
        xs = [segment.at(sample.at - start) for sample in inside]
        ys = [height * (1 - sample.used / top) for sample in inside]
        limit = [height * (1 - (s.used + s.available) / top) for s in inside]
        used.append(f"M{xs[0]:.1f} {height:.1f} L{_path(xs, ys)} L{xs[-1]:.1f} {height:.1f} Z")
        ceiling.append(f"M{_path(xs, limit)}")
        here = max(zip(xs, ys, inside, strict=True), key=lambda point: point[2].used)
        if highest is None or here[2].used > highest[2].used:
            highest = here
    return MemoryChart(
        used=tuple(used),
        ceiling=tuple(ceiling),
        peak=_peak(*highest) if highest else None,
        marks=_memory_marks(top, height),
        height=height,
    )


def _path(xs: Sequence[float], ys: Sequence[float]) -> str:
    return " L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True))


def _peak(x: float, y: float, sample: Sample) -> Peak:
    anchor = "start" if x < WIDTH / 4 else "end" if x > WIDTH * 3 / 4 else "middle"
    return Peak(x=x, y=y, text=words.size(sample.used), anchor=anchor)


def _memory_marks(top: float, height: float) -> tuple[Mark, ...]:
    step = next((s for s in (0.5e9, 1e9, 2e9, 4e9, 8e9, 16e9, 64e9, 256e9) if top / s <= 4), top)
    return tuple(
        Mark(at=height * (1 - i * step / top), text=f"{i * step / 1e9:g} GB")
        for i in range(int(top / step) + 1)
    )


def memory_axis(memory: Memory) -> tuple[Segment, ...]:
    """The time axis of a run that has no log of ninja: the span of the samples."""
    seconds = max((s.at for s in memory.samples), default=0.0)
    return (
        Segment(x=LEFT, width=WIDTH - LEFT - RIGHT, seconds=seconds, clock=memory.clock, label=""),
    )


def axis_ticks(axis: Sequence[Segment]) -> tuple[Mark, ...]:
    """The marks of all sessions."""
    return tuple(mark for segment in axis for mark in _ticks(segment))


def _starts(memory: Memory, axis: Sequence[Segment]) -> list[float | None]:
    """When each session began, in the sampler's seconds; without clocks only the last is known."""
    if memory.clock is not None and all(segment.clock is not None for segment in axis):
        return [(segment.clock or 0.0) - memory.clock for segment in axis]
    last = max((s.at for s in memory.samples), default=0.0)
    return [None] * (len(axis) - 1) + [max(0.0, last - axis[-1].seconds)] if axis else []


def _in(sample: Sample, start: float, segment: Segment) -> bool:
    return start <= sample.at <= start + segment.seconds


def _ticks(segment: Segment) -> list[Mark]:
    most = int(segment.width / TICK_ROOM)
    if most < 1 or not segment.seconds:
        return []
    step = words.tick_step(segment.seconds, most)
    return [
        Mark(at=segment.at(s), text=words.tick(s) if s else "0")
        for s in range(0, int(segment.seconds) + 1, step)
    ]


def _bar(job: Job, segment: Segment, *, y: float, height: float, colour: str) -> Bar:
    x = segment.at(job.start)
    width = segment.at(job.end) - x
    width = width - HAIR if width > 4 * HAIR else max(width, HAIR)
    return Bar(
        x=x,
        y=y,
        width=width,
        height=height,
        colour=colour,
        label=fitted(job.name, width) if height >= 14 else "",
        title=f"{job.output}\n{job.target}, {words.duration(job.seconds)}, "
        f"from {words.duration(job.start)} on",
    )


def fitted(text: str, width: float) -> str:
    """As much of ``text`` as fits into ``width``; nothing where it would not be readable."""
    letters = int((width - 8) / LETTER)
    if letters >= len(text):
        return text
    return text[: letters - 1] + "\u2026" if letters >= 6 else ""


def _session_label(number: int, of: int, session: Session, width: float) -> str:
    if of == 1:
        return ""
    text = f"call {number} of {of}"
    if session.clock is not None:
        text += f", {words.moment(session.clock)}"
    return next((t for t in (text, f"call {number}", str(number)) if width > LETTER * len(t)), "")
