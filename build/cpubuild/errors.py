"""The failures this tool can end with, and the one exit code each class of failure has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """Process exit codes; provisioning scripts branch on them (docs/exit-codes.md)."""

    OK = 0
    BUG = 1
    SETTINGS = 2
    UNSUPPORTED = 3
    PREREQUISITE = 4
    DOWNLOAD = 5
    PATCH = 6
    COMPILE = 7
    VERIFY = 8
    BUSY = 75


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "done, or nothing to do",
    ExitCode.BUG: "a defect of this tool",
    ExitCode.SETTINGS: "a setting or an argument is wrong",
    ExitCode.UNSUPPORTED: "this host cannot run this release",
    ExitCode.PREREQUISITE: "something the host must provide is missing",
    ExitCode.DOWNLOAD: "a download failed or its hash did not match",
    ExitCode.PATCH: "a patch does not apply",
    ExitCode.COMPILE: "the build failed",
    ExitCode.VERIFY: "the result is not what it must be",
    ExitCode.BUSY: "another run holds the lock, or it was interrupted; try again",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One thing that is wrong: what, why it matters, and the commands or settings that mend it."""

    what: str
    why: str = ""
    remedy: tuple[str, ...] = ()
    exit_code: ExitCode = ExitCode.BUG


class CpuBuildError(Exception):
    """One or more problems that end a run; carries everything a message needs.

    ``exit_code`` is that of the first problem unless given. ``log`` names the file that holds
    the whole output of a failed command; ``tail`` its last lines.
    """

    def __init__(
        self,
        *problems: Problem,
        exit_code: ExitCode | None = None,
        log: Path | None = None,
        tail: tuple[str, ...] = (),
    ) -> None:
        super().__init__("; ".join(p.what for p in problems))
        self.problems = problems
        self.exit_code = exit_code if exit_code is not None else problems[0].exit_code
        self.log = log
        self.tail = tail


def fail(
    exit_code: ExitCode,
    what: str,
    *,
    why: str = "",
    remedy: tuple[str, ...] = (),
    log: Path | None = None,
    tail: tuple[str, ...] = (),
) -> CpuBuildError:
    """Build the error for a single problem (the caller raises it)."""
    problem = Problem(what=what, why=why, remedy=remedy, exit_code=exit_code)
    return CpuBuildError(problem, log=log, tail=tail)
