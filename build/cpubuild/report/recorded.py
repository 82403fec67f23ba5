"""What a run left behind, read into one frozen record: ninja's log, journal, memory, cache hits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpubuild import jsonio
from cpubuild.errors import ExitCode, fail
from cpubuild.report import ninja
from cpubuild.report.ninja import BuildLog

NINJA_LOG = "compile/ninja_log"
MEMORY = "compile/memory.csv"
CACHE_LOG = "compile/ccache_log"
JOURNAL = "journal.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTime:
    """One step of the journal; ``started`` in seconds since the run began, None: not recorded."""

    id: str
    status: str
    seconds: float
    started: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """Memory at one moment, in bytes; ``at`` in seconds since the sampling began."""

    at: float
    used: int
    available: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """The samples of a compile; ``clock`` is the POSIX time of second 0, None: unknown."""

    samples: tuple[Sample, ...]
    clock: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheHits:
    """What the compiler cache answered and what had to be compiled."""

    hits: int
    misses: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """Everything a report is drawn from; None or empty: the run did not record it."""

    name: str
    plan: str | None
    steps: tuple[StepTime, ...]
    log: BuildLog | None
    memory: Memory | None
    cache: CacheHits | None


def read(run: Path) -> Recorded:
    """Read the folder of a run; a SETTINGS error if it holds nothing that can be drawn."""
    journal = jsonio.read(run / JOURNAL) or {}
    text, memory, cache = (_text(run / name) for name in (NINJA_LOG, MEMORY, CACHE_LOG))
    if not journal and text is None:
        raise fail(
            ExitCode.SETTINGS,
            f"{run} holds neither {JOURNAL} nor {NINJA_LOG}",
            why="a report is drawn from what a bootstrap has recorded",
            remedy=("cpubuild status   # names the state root, whose folder runs holds the runs",),
        )
    return Recorded(
        name=run.name,
        plan=journal.get("plan"),
        steps=parse_steps(journal),
        log=ninja.parse(text, name=str(run / NINJA_LOG)) if text is not None else None,
        memory=parse_memory(memory) if memory is not None else None,
        cache=parse_cache(cache) if cache is not None else None,
    )


def last_build(runs: Path) -> Path | None:
    """The newest run that compiled, else the newest that has a journal, else None."""
    folders = (
        sorted((p for p in runs.iterdir() if p.is_dir()), reverse=True) if runs.is_dir() else ()
    )
    for name in (NINJA_LOG, JOURNAL):
        for folder in folders:
            if (folder / name).is_file():
                return folder
    return None


def parse_steps(journal: Mapping[str, Any]) -> tuple[StepTime, ...]:
    """The steps of a journal, in order."""
    return tuple(
        StepTime(
            id=str(step["id"]),
            status=str(step["status"]),
            seconds=float(step["seconds"]),
            started=None if step.get("started") is None else float(step["started"]),
        )
        for step in journal.get("steps", ())
    )


def parse_memory(text: str) -> Memory:
    """Read the sampler's file; a line that is not three numbers (cut off, a heading) is skipped."""
    clock: float | None = None
    samples: list[Sample] = []
    for line in text.splitlines():
        if line.startswith("# clock "):
            clock = _number(line.removeprefix("# clock "))
            continue
        numbers = [_number(part) for part in line.split(",")]
        if len(numbers) == 3 and None not in numbers:
            at, used, available = (n for n in numbers if n is not None)
            samples.append(Sample(at=at, used=int(used), available=int(available)))
    return Memory(samples=tuple(samples), clock=clock)


def parse_cache(text: str) -> CacheHits | None:
    """Count hits and misses in ccache's statistics log; None if it names neither."""
    lines = text.splitlines()
    hits = sum(line in {"direct_cache_hit", "preprocessed_cache_hit"} for line in lines)
    misses = lines.count("cache_miss")
    return CacheHits(hits=hits, misses=misses) if hits or misses else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
