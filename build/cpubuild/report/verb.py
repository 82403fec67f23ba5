"""The verb ``report``: which run, where to, and the numbers of the page as a document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cpubuild import jsonio
from cpubuild.calls import Call, Outcome
from cpubuild.errors import ExitCode, fail
from cpubuild.report.ninja import seconds_by_target
from cpubuild.report.page import cores, page
from cpubuild.report.recorded import Recorded, last_build, read
from cpubuild.state import State

NAME = "report.html"


def report(call: Call) -> Outcome:
    """Draw a run (the last build unless ``run`` names another) into ``out``, or beside its logs."""
    state = State(root=call.resolved().settings.state)
    given, out = call.options["run"], call.options["out"]
    run = _path(given) if given else last_build(state.runs)
    if run is None:
        raise fail(
            ExitCode.SETTINGS,
            f"no bootstrap has recorded anything under {state.runs}",
            why="a report is drawn from what a bootstrap leaves in its run's folder",
            remedy=("cpubuild bootstrap", "cpubuild report --run FOLDER"),
        )
    recorded = read(run)
    target = _path(out) if out else run / NAME
    try:
        jsonio.write_text(target, page(recorded))
    except OSError as error:
        raise fail(
            ExitCode.SETTINGS,
            f"the report cannot be written to {target}: {error.strerror}",
            remedy=("give --out a file that can be written",),
        ) from error
    document = {"report": target, "run": run, **summary(recorded)}
    return Outcome(document=document, lines=[str(target)])


def summary(recorded: Recorded) -> dict[str, Any]:
    """The numbers of a report; None: the run did not record them."""
    log, memory = recorded.log, recorded.memory
    return {
        "plan": recorded.plan,
        "steps": recorded.steps,
        "compile": {
            "seconds": round(sum(s.seconds for s in log.sessions), 3),
            "compiler_seconds": round(sum(s.busy for s in log.sessions), 3),
            "cores": cores(log),
            "calls": len(log.sessions),
            "targets": {
                name: {"commands": count, "seconds": round(seconds, 3)}
                for name, (count, seconds) in seconds_by_target(log.jobs).items()
            },
        }
        if log is not None
        else None,
        "memory": {
            "most_used": max(s.used for s in memory.samples),
            "least_available": min(s.available for s in memory.samples),
        }
        if memory is not None and memory.samples
        else None,
        "compiler_cache": recorded.cache,
    }


def _path(text: str) -> Path:
    return Path(text).expanduser().absolute()
