"""Run the steps of a plan, each as soon as what it needs is there; a failure stops all."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from cpubuild import run
from cpubuild.plan import Step


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """How one step came out: ``began`` counts from the start of the schedule, in seconds."""

    step: Step
    status: str
    began: float
    seconds: float


def ready(steps: Sequence[Step], started: Collection[str], done: Collection[str]) -> list[Step]:
    """The steps that can start now: nothing that they need is among the unfinished ones."""
    unfinished = {s.id for s in steps} - set(done)
    return [s for s in steps if s.id not in started and not unfinished & set(s.needs)]


def run_steps(
    steps: Sequence[Step],
    acts: Mapping[str, Callable[[], None]],
    *,
    records: Path,
    begin: Callable[[Step], None],
    end: Callable[[Ran], None],
) -> None:
    """Run ``steps`` (in the order of a plan) by ``acts``, those that do not wait side by side.

    ``records`` is the folder that names the running commands.

    ``begin`` and ``end`` are called in the caller's thread. The first failure ends the commands
    that still run, and is raised once they are gone; an interrupt does the same.
    """
    clock = time.monotonic()
    started: dict[Future[None], tuple[Step, float]] = {}
    done: set[str] = set()
    failure: BaseException | None = None

    def finished(future: Future[None]) -> None:
        nonlocal failure
        step, began = started.pop(future)
        error = future.exception()
        status = "done" if error is None else "failed" if failure is None else "stopped"
        end(Ran(step=step, status=status, began=began, seconds=time.monotonic() - clock - began))
        if error is None:
            done.add(step.id)
        elif failure is None:
            failure = error
            stop()

    with run.together(records) as stop, ThreadPoolExecutor(max(1, len(steps))) as pool:
        try:
            while failure is None:
                known = done | {step.id for step, _ in started.values()}
                for step in ready(steps, known, done):
                    begin(step)
                    started[pool.submit(acts[step.id])] = (step, time.monotonic() - clock)
                if not started:
                    return
                for future in wait(started, return_when=FIRST_COMPLETED).done:
                    finished(future)
            for future in tuple(started):
                wait([future])
                finished(future)
        except BaseException:
            stop()
            raise
    raise failure
