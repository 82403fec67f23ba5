"""The page: what a run recorded -> one HTML document that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cpubuild import jsonio, render
from cpubuild.report import layout, words
from cpubuild.report.ninja import BuildLog, Job, Session, lanes, seconds_by_target
from cpubuild.report.recorded import Memory, Recorded, StepTime, read

TEMPLATE = "report.html.j2"
COLOURS = 7
SLOWEST = 20


def make_report(run: Path, out: Path) -> Path:
    """Draw the run whose folder is ``run`` into the file ``out``; returns ``out``.

    A SETTINGS error if the folder holds nothing that can be drawn.
    """
    jsonio.write_text(out, page(read(run)))
    return out


def page(recorded: Recorded) -> str:
    """The HTML of a report."""
    return render.render(TEMPLATE, values(recorded))


def values(recorded: Recorded) -> dict[str, Any]:
    """Everything the template shows."""
    log, memory = recorded.log, recorded.memory
    sessions = log.sessions if log is not None else ()
    jobs = log.jobs if log is not None else ()
    targets = seconds_by_target(jobs)
    colours = target_colours(targets)
    chart = layout.timeline(sessions, colours) if sessions else None
    axis = chart.segments if chart else layout.memory_axis(memory) if memory else ()
    return {
        "title": f"Build {recorded.plan}" if recorded.plan else "Build",
        "subtitle": subtitle(recorded, sessions),
        "tiles": tiles(recorded),
        "width": layout.WIDTH,
        "left": layout.LEFT,
        "right": layout.WIDTH - layout.RIGHT,
        "timeline": chart,
        "ticks": layout.axis_ticks(axis),
        "legend": legend(targets, colours),
        "remarks": remarks(log),
        "memory": layout.memory_chart(memory, axis) if memory and memory.samples else None,
        "memory_remark": memory_remark(memory),
        "targets": target_rows(targets, colours),
        "slowest": job_rows(slowest(jobs)[:SLOWEST], colours),
        "all_jobs": job_rows(slowest(jobs), colours),
        "steps": step_rows(recorded.steps),
    }


def slowest(jobs: Sequence[Job]) -> list[Job]:
    """The jobs, the longest first."""
    return sorted(jobs, key=lambda job: (-job.seconds, job.output))


def target_colours(targets: Mapping[str, Any]) -> dict[str, str]:
    """A colour for each of the most expensive targets, one for all others."""
    return {target: f"c{rank}" if rank < COLOURS else "rest" for rank, target in enumerate(targets)}


def legend(targets: Mapping[str, Any], colours: Mapping[str, str]) -> list[tuple[str, str]]:
    """(colour, text) for the timeline."""
    shown = [(colours[t], t) for t in targets if colours[t] != "rest"]
    others = sum(colour == "rest" for colour in colours.values())
    return [*shown, ("rest", words.count(others, "other"))] if others else shown


def subtitle(recorded: Recorded, sessions: Sequence[Session]) -> str:
    """Which run it was and when."""
    clocks = [s.clock for s in sessions if s.clock is not None]
    when = f", compiled {words.moment(clocks[-1])}" if clocks else ""
    return f"run {recorded.name}{when}"


def tiles(recorded: Recorded) -> list[tuple[str, str, str]]:
    """(name, value, remark) of the numbers at the top."""
    shown: list[tuple[str, str, str]] = []
    if recorded.steps:
        total = sum(step.seconds for step in recorded.steps)
        shown.append(("all steps", words.duration(total), words.count(len(recorded.steps), "step")))
    if recorded.log is not None and recorded.log.jobs:
        shown += compile_tiles(recorded.log)
    samples = recorded.memory.samples if recorded.memory else ()
    if samples:
        peak = max(samples, key=lambda s: s.used)
        least = min(s.available for s in samples)
        shown.append(
            ("most memory", words.size(peak.used), f"{words.size(least)} were left at the least")
        )
    if recorded.cache is not None:
        hits, misses = recorded.cache.hits, recorded.cache.misses
        shown.append(
            (
                "compiler cache",
                words.share(hits, hits + misses),
                f"{words.count(hits, 'hit')}, {words.count(misses, 'miss', 'misses')}",
            )
        )
    return shown


def compile_tiles(log: BuildLog) -> list[tuple[str, str, str]]:
    """The numbers that ninja's log holds."""
    wall = sum(session.seconds for session in log.sessions)
    busy = sum(session.busy for session in log.sessions)
    most = cores(log)
    calls = words.count(len(log.sessions), "call")
    longest = slowest(log.jobs)[0]
    objects = sum(job.kind == "compile" for job in log.jobs)
    return [
        ("compile, start to end", words.duration(wall), f"in {calls} of ninja"),
        ("compiler seconds", f"{busy:,.0f}".replace(",", "\u2009"), "of all commands together"),
        (
            "cores kept busy",
            words.share(busy, wall * most),
            f"of {most}; {words.duration(wall * most - busy)} idle",
        ),
        ("objects", f"{objects}", words.count(len(log.jobs) - objects, "other command")),
        ("slowest", words.duration(longest.seconds), longest.name),
    ]


def cores(log: BuildLog) -> int:
    """How many commands ran at once, at most."""
    return max((1 + max(lanes(s.jobs).values()) for s in log.sessions if s.jobs), default=0)


def remarks(log: BuildLog | None) -> list[str]:
    """What the timeline shows, in sentences."""
    if log is None or not log.sessions:
        return ["No log of ninja was kept by this run: it did not get to the end of a compile."]
    said = []
    longest = max(log.sessions, key=lambda session: session.seconds)
    most = 1 + max(lanes(longest.jobs).values())
    if most > 1:
        rest = words.duration(tail_seconds(longest))
        said.append(f"At its end fewer than {most} cores were busy for {rest}.")
    if len(log.sessions) > 1:
        said.append(
            f"Ninja was called {len(log.sessions)} times: the build was interrupted or made in "
            "parts. The time between the calls is left out."
        )
    if log.unread:
        said.append(f"{words.count(log.unread, 'line')} of the log could not be read.")
    return said


def tail_seconds(session: Session) -> float:
    """Seconds from the moment a lane had nothing more to do to the end."""
    last: dict[int, float] = {}
    for job, lane in lanes(session.jobs).items():
        last[lane] = max(last.get(lane, 0.0), job.end)
    return session.seconds - min(last.values())


def memory_remark(memory: Memory | None) -> str:
    """What is known of memory, in a sentence."""
    if memory is None or not memory.samples:
        return "Memory was not recorded by this run."
    return (
        "Filled: what the build's processes held (mapped files not counted). "
        "Dashed: that and what was still available, within the control group's limit."
    )


def target_rows(
    targets: Mapping[str, tuple[int, float]], colours: Mapping[str, str]
) -> list[dict[str, Any]]:
    """A row with a bar for each target."""
    total = sum(seconds for _, seconds in targets.values())
    most = max((seconds for _, seconds in targets.values()), default=0.0)
    return [
        {
            "name": target,
            "colour": colours[target],
            "percent": _percent(seconds, most),
            "cells": [words.duration(seconds), words.share(seconds, total), f"{count}"],
        }
        for target, (count, seconds) in targets.items()
    ]


def job_rows(jobs: Sequence[Job], colours: Mapping[str, str]) -> list[dict[str, Any]]:
    """A row with a bar for each job."""
    most = max((job.seconds for job in jobs), default=0.0)
    return [
        {
            "name": job.name,
            "hint": job.output,
            "colour": colours[job.target],
            "percent": _percent(job.seconds, most),
            "cells": [words.duration(job.seconds), job.target],
        }
        for job in jobs
    ]


def step_rows(steps: Sequence[StepTime]) -> list[dict[str, Any]]:
    """A row for each step, its bar beginning where the step began."""
    started, rows = 0.0, []
    begins: list[float] = []
    for step in steps:
        begins.append(started if step.started is None else step.started)
        started = begins[-1] + step.seconds
    end = max((b + s.seconds for b, s in zip(begins, steps, strict=True)), default=0.0)
    total = sum(step.seconds for step in steps)
    for begin, step in zip(begins, steps, strict=True):
        rows.append(
            {
                "name": step.id,
                "colour": "c0" if step.status == "done" else "failed",
                "offset": _percent(begin, end),
                "percent": _percent(step.seconds, end),
                "cells": [
                    words.duration(step.seconds),
                    words.share(step.seconds, total),
                    step.status,
                ],
            }
        )
    return rows


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}" if whole else "0"
