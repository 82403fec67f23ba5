"""What people see: readable without colour, alive without a terminal, never in the way."""

from __future__ import annotations

import errno
import io
import logging
import os
import types
from pathlib import Path

import pytest

from cpubuild import ui
from cpubuild.errors import CpuBuildError, ExitCode, Problem, fail


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(ui, "sys", types.SimpleNamespace(stderr=stream))
    monkeypatch.setattr(ui, "_columns", lambda: 40)
    return stream


class Clock:
    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(ui.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_everything_goes_to_stderr(capsys):
    ui.say("words")
    ui.lines(["one", "two"])
    ui.note("below")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "words\none\ntwo\n     below\n")


@pytest.mark.parametrize("status", ["ok", "warn", "blocker", "unknown", "new"])
def test_marks_are_plain_without_a_terminal(status, capsys):
    assert "\x1b" not in ui.mark(status)


def test_marks_mean_the_same_with_and_without_colour(terminal, monkeypatch):
    assert ui.mark("blocker") == "\x1b[31mFAIL\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "")
    assert ui.coloured()
    monkeypatch.setenv("NO_COLOR", "1")
    assert ui.mark("blocker") == "FAIL"
    assert len({ui.mark(status) for status in ui.MARKS}) == len(ui.MARKS)
    assert {len(text) for text in ui.MARKS.values()} == {4}


def test_an_error_says_what_why_what_to_do_and_where(capsys):
    problems = (
        Problem(what="one thing", why="it matters", remedy=("do this", "or that")),
        Problem(what="another"),
    )
    error = CpuBuildError(
        *problems,
        exit_code=ExitCode.COMPILE,
        log=Path("/runs/x/log"),
        tail=tuple(f"line {n}" for n in range(40)),
    )
    assert ui.error_lines(error) == [
        "FAIL one thing",
        "     why: it matters",
        "     do:  do this",
        "     do:  or that",
        "FAIL another",
        "     last lines:",
        *(f"     | line {n}" for n in range(20, 40)),
        "     log: /runs/x/log",
        "     exit code 7",
    ]


def test_the_exit_code_is_that_of_the_first_problem():
    assert fail(ExitCode.PATCH, "x").exit_code is ExitCode.PATCH
    two = CpuBuildError(
        Problem(what="a", exit_code=ExitCode.DOWNLOAD), Problem(what="b", exit_code=ExitCode.BUSY)
    )
    assert two.exit_code is ExitCode.DOWNLOAD
    assert str(two) == "a; b"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (41.4, "41 s"),
        (59.6, "1 min 00 s"),
        (725, "12 min 05 s"),
        (7200, "120 min 00 s"),
    ],
)
def test_durations_in_words(seconds, words):
    assert ui.duration(seconds) == words


def test_ninjas_counter_becomes_percent_and_remaining_time(clock):
    progress = ui.Progress("compile")
    assert progress.status() == "compile: 0 s"
    clock.now += 60
    progress.line("-- configuring [1/2]")
    assert progress.status() == "compile: 1 min 00 s"
    progress.line("[1/101] Building CXX object a.o")
    clock.now += 40
    progress.line("[5/101] Building CXX object b.o")
    assert progress.status() == "compile: 4 % (5/101), 1 min 40 s"  # too early to foretell
    progress.line("[21/101] Building CXX object c.o")
    # 20 objects took 40 s since the first, 80 are left
    assert progress.status() == "compile: 20 % (21/101), 1 min 40 s, about 2 min 40 s left"
    progress.line("[101/101] Linking")
    assert progress.status() == "compile: 100 % (101/101), 1 min 40 s"


def test_a_second_ninja_is_foretold_by_its_own_pace(clock):
    progress = ui.Progress("compile")
    progress.line("[1/10] a")
    clock.now += 1000
    progress.line("[10/10] a")
    progress.line("[1/100] b")
    clock.now += 10
    progress.line("[11/100] b")
    assert progress.status().endswith("11 % (11/100), 16 min 50 s, about 1 min 29 s left")


def test_without_a_terminal_a_heartbeat_line_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(ui, "HEARTBEAT_SECONDS", 0.01)
    with ui.Progress("compile") as progress:
        progress.line("[1/4] a")
        while "25 % (1/4)" not in (seen := capsys.readouterr().err):
            pass
    assert "\x1b" not in seen
    assert "\r" not in seen
    assert "     done after 0 s\n" in capsys.readouterr().err


def test_a_failed_step_is_told_as_failed(capsys):
    with pytest.raises(ZeroDivisionError), ui.Progress("compile"):
        raise ZeroDivisionError
    assert capsys.readouterr().err == "---- compile\n     failed after 0 s\n"


def test_on_a_terminal_one_line_is_written_over_and_never_wraps(terminal):
    with ui.Progress("a title that is longer than the terminal is wide") as progress:
        progress.line("[1/4] a")
        while "\r\x1b[K     " not in terminal.getvalue():
            pass
    updates = [part.split("\r")[0] for part in terminal.getvalue().split("\r\x1b[K")[1:-1]]
    assert updates
    assert all("\n" not in update and len(update) <= 39 for update in updates)


def test_the_width_of_no_terminal_is_taken_as_eighty(capsys):
    assert ui._columns() == 80


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO])
def test_a_reader_that_went_away_does_not_stop_the_work(monkeypatch, number):
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(ui, "sys", types.SimpleNamespace(stderr=Gone()))
    ui.say("nobody hears it")
    with ui.Progress("compile"):
        pass


def test_what_libraries_log_is_seen_only_by_those_who_want_more(capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    library = logging.getLogger("some.library")
    ui.hear_libraries(verbose=True)
    library.warning("try %d failed", 1)
    assert capsys.readouterr().err == "     some.library: try 1 failed\n"
    for _ in range(2):
        ui.hear_libraries(verbose=False)
        library.warning("try %d failed", 2)
        assert capsys.readouterr().err == ""
    assert len(logging.getLogger().handlers) == 1
