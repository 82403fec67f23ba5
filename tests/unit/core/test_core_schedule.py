"""The order of steps: nothing before what it needs, side by side where nothing is waited for."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from cpubuild import run
from cpubuild.plan import Step
from cpubuild.schedule import ready, run_steps

PATIENCE = 30.0
RECORDS = Path("records")


def step(name, *needs):
    return Step(id=name, title=name, reason="", fingerprint=name, done=False, needs=needs)


@pytest.fixture(autouse=True)
def stopped(monkeypatch):
    """What ends the running commands, as an event."""
    event = threading.Event()
    monkeypatch.setattr(run, "together", lambda records: contextlib.nullcontext(event.set))
    return event


def play(steps, acts):
    begun, ended = [], []
    try:
        run_steps(
            steps, acts, records=RECORDS, begin=lambda s: begun.append(s.id), end=ended.append
        )
    finally:
        outcome = {ran.step.id: ran.status for ran in ended}
    return begun, outcome


def test_a_step_waits_for_what_it_needs_and_for_no_step_that_is_not_left():
    steps = [step("a"), step("b"), step("c", "a", "done before")]
    assert [s.id for s in ready(steps, set(), set())] == ["a", "b"]
    assert [s.id for s in ready(steps, {"a", "b"}, {"b"})] == []
    assert [s.id for s in ready(steps, {"a", "b"}, {"a"})] == ["c"]


def test_steps_that_do_not_wait_run_side_by_side():
    meeting = threading.Barrier(2)
    order = []
    acts = {
        "a": lambda: meeting.wait(PATIENCE),
        "b": lambda: meeting.wait(PATIENCE),
        "c": lambda: order.append("c"),
    }
    begun, outcome = play([step("a"), step("b"), step("c", "a", "b")], acts)
    assert begun == ["a", "b", "c"]
    assert outcome == {"a": "done", "b": "done", "c": "done"}


def test_the_first_failure_is_raised_and_nothing_that_waits_is_begun(stopped):
    ended = []

    def fails():
        raise ValueError("the first")

    def beside():
        assert stopped.wait(PATIENCE)
        raise OSError("its command was ended")

    steps = [step("a"), step("b"), step("c", "b")]
    with pytest.raises(ValueError, match="the first"):
        run_steps(
            steps,
            {"a": fails, "b": beside, "c": lambda: None},
            records=RECORDS,
            begin=lambda s: None,
            end=ended.append,
        )
    assert {r.step.id: r.status for r in ended} == {"a": "failed", "b": "stopped"}


def test_an_interrupt_in_the_caller_is_raised_again():
    def interrupt(ran):
        raise KeyboardInterrupt

    acts = {"a": lambda: None}
    with pytest.raises(KeyboardInterrupt):
        run_steps([step("a")], acts, records=RECORDS, begin=lambda s: None, end=interrupt)


def test_no_steps_are_nothing_to_do():
    assert play([], {}) == ([], {})
