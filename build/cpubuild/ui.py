"""What people see: all of it on stderr, readable without colour, alive without a terminal."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Iterable
from types import TracebackType

from cpubuild.errors import CpuBuildError, Problem

HEARTBEAT_SECONDS = 30.0
COUNTER = re.compile(r"^\[(\d+)/(\d+)\]")
MARKS = {"ok": "ok  ", "warn": "warn", "blocker": "FAIL", "unknown": "??  "}
COLOURS = {"ok": "32", "warn": "33", "blocker": "31", "unknown": "36"}


def coloured() -> bool:
    """Whether stderr takes colour: a terminal, and NO_COLOR not set."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


def say(text: str = "") -> None:
    """Print one line for people."""
    _write(text + "\n")


def _write(text: str) -> None:
    """Write to stderr; when nobody listens any more, the work goes on without a word."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def note(text: str) -> None:
    """Print one line below a step's title."""
    say(f"     {text}")


def mark(status: str) -> str:
    """The four-letter mark of a status."""
    text = MARKS.get(status, status)
    return f"\x1b[{COLOURS.get(status, '0')}m{text}\x1b[0m" if coloured() else text


def lines(rows: Iterable[str]) -> None:
    """Print several lines for people."""
    for row in rows:
        say(row)


def problem_lines(problem: Problem) -> list[str]:
    """A problem as indented lines: what, why, what to do."""
    rows = [f"{mark('blocker')} {problem.what}"]
    if problem.why:
        rows.append(f"     why: {problem.why}")
    rows += [f"     do:  {remedy}" for remedy in problem.remedy]
    return rows


def error_lines(error: CpuBuildError) -> list[str]:
    """An error as lines: every problem, the end of the failed command's output, the log."""
    rows = [row for problem in error.problems for row in problem_lines(problem)]
    if error.tail:
        rows += ["     last lines:", *(f"     | {line}" for line in error.tail[-20:])]
    if error.log:
        rows.append(f"     log: {error.log}")
    rows.append(f"     exit code {int(error.exit_code)}")
    return rows


def hear_libraries(*, verbose: bool) -> None:
    """Let what libraries log (retries, warnings) be seen only when more was asked for.

    Without any handler Python would print it as it comes.
    """
    import logging

    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, logging.NullHandler)]:
        root.removeHandler(handler)

    class Heard(logging.NullHandler):
        """Shows each record as a note."""

        def handle(self, record: logging.LogRecord) -> bool:
            note(f"{record.name}: {record.getMessage()}")
            return True

    root.addHandler(Heard() if verbose else logging.NullHandler())


def _columns() -> int:
    """The width of the terminal: a longer line would not be overwritten by the next."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80


def duration(seconds: float) -> str:
    """Seconds in words: ``41 s``, ``12 min 05 s``."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


class Progress:
    """Shows that a step is alive: a counter line on a terminal, a heartbeat elsewhere.

    Feed it output lines; ninja's ``[n/m]`` becomes percent and remaining time.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.started = time.monotonic()
        self.done = 0
        self.total = 0
        self.first: tuple[float, int] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._tty = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        say(f"---- {self.title}")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._tty:
            _write("\r\x1b[K")
        took = duration(time.monotonic() - self.started)
        say(f"     {'done' if kind is None else 'failed'} after {took}")

    def line(self, text: str) -> None:
        """Take one line of the step's output."""
        found = COUNTER.match(text)
        if found:
            before, self.done, self.total = self.done, int(found[1]), int(found[2])
            if self.first is None or self.done < before:  # the first, or another ninja
                self.first = (time.monotonic(), self.done)

    def status(self) -> str:
        """One line: how far, how long, how long still."""
        elapsed = time.monotonic() - self.started
        if not self.total:
            return f"{self.title}: {duration(elapsed)}"
        text = (
            f"{self.title}: {100 * self.done // self.total} % ({self.done}/{self.total}), "
            f"{duration(elapsed)}"
        )
        since, at = self.first or (self.started, 0)
        if self.done - at >= 5 and self.done < self.total:
            rest = (time.monotonic() - since) / (self.done - at) * (self.total - self.done)
            text += f", about {duration(rest)} left"
        return text

    def _beat(self) -> None:
        pause = 0.5 if self._tty else HEARTBEAT_SECONDS
        while not self._stop.wait(pause):
            if self._tty:
                _write("\r\x1b[K" + f"     {self.status()}"[: _columns() - 1])
            else:
                say(f"     {self.status()}")
