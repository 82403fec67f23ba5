"""Explain how a process of the target ended, by its signal and by what its log says."""

from __future__ import annotations

import contextlib
import re
import signal
from dataclasses import dataclass

from cpubuild.run import Completed
from cpubuild.verify.knowledge import table
from cpubuild.verify.model import Check
from cpubuild.verify.target import Answer

EXIT_CODE = re.compile(r"exit ?code[:=]? ?-(\d+)|died with .*?-(\d+)|signal (\d+)", re.IGNORECASE)
ERROR_LINE = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception)\b: .+")
TAIL = 12
BEFORE = 6
NOISE = re.compile(r"Engine core initialization failed|EngineDeadError|EngineCore (failed|encount)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """Why a process did not do what it should: a sentence, the lines it rests on, what to do."""

    summary: str
    evidence: tuple[str, ...]
    remedy: tuple[str, ...]


def explain_signal(number: int) -> tuple[str, str, str]:
    """Name, meaning and remedy of a signal (positive number)."""
    name = f"signal {number}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(number).name
    row = table()["signals"].get(name, {})
    return name, row.get("means", "ended by a signal"), row.get("remedy", "read the log")


def log_lines(completed: Completed) -> list[str]:
    """All lines of the process's log (those of this run: the folder is its own)."""
    if completed.log is None:
        return (completed.stdout + "\n" + completed.stderr).splitlines()
    try:
        return completed.log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return completed.stdout.splitlines()


def first_error(lines: list[str]) -> tuple[str | None, tuple[str, ...]]:
    """The first exception in a log that is not merely a consequence, and the lines before it."""
    for number, line in enumerate(lines):
        match = ERROR_LINE.search(line)
        if match and not NOISE.search(line):
            return match.group(0)[:500], tuple(lines[max(0, number - BEFORE) : number + 1])
    return None, ()


def child_signal(lines: list[str]) -> int | None:
    """The signal that a process started by vLLM died by, when the log tells."""
    for line in lines:
        match = EXIT_CODE.search(line)
        if match and "exit" in line.lower():
            return int(next(g for g in match.groups() if g))
    return None


def explain(answer: Answer, stage: str) -> Explained:
    """Why ``stage`` has no good document."""
    done = answer.completed
    lines = log_lines(done)
    tail = tuple(line for line in lines if line.strip())[-TAIL:]
    log = (f"log: {done.log}",) if done.log else ()
    if done.timed_out:
        return Explained(
            summary=f"{stage}: no answer within {done.seconds:.0f} s",
            evidence=(*log, *tail),
            remedy=("read the last lines of the log; on a busy host try again",),
        )
    number = -done.returncode if done.returncode < 0 else child_signal(lines)
    if number:
        name, means, remedy = explain_signal(number)
        return Explained(
            summary=f"{stage}: the process died by {name}: {means}",
            evidence=(*log, *tail),
            remedy=(remedy,),
        )
    error = (answer.documents.get(stage) or {}).get("error")
    root, where = first_error(lines)
    if isinstance(error, dict):
        said = f"{error.get('type')}: {error.get('message')}".splitlines()[0][:300]
        cause = root if root and root not in said else said
        trace = where if cause == root else str(error.get("traceback", "")).splitlines()[-6:]
        return Explained(summary=f"{stage}: {cause}", evidence=(*log, said, *trace), remedy=REMEDY)
    return Explained(
        summary=f"{stage}: {root or done.describe_end()}",
        evidence=(*log, *where, *tail),
        remedy=REMEDY,
    )


REMEDY = ("read the log; `cpubuild diagnose FILE` names known causes",)


def broken(id_: str, answer: Answer, stage: str) -> Check:
    """The failed check of a stage that gave no document."""
    why = explain(answer, stage)
    return Check(
        id=id_,
        status="fail",
        summary=why.summary,
        evidence=why.evidence,
        remedy=why.remedy,
        seconds=answer.completed.seconds,
    )
