"""A call of a verb and its outcome, the shapes between the faces and what they show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cpubuild.errors import ExitCode, fail
from cpubuild.settings import Resolved, resolve


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call of a verb: ``flags`` are settings, ``options`` the verb's own.

    ``json``: the outcome's document will be printed, so nothing else may go to stdout.
    ``tell`` prints an outcome at once, for a verb that stays; the one it ends with is not printed.
    """

    flags: Mapping[str, Any]
    options: Mapping[str, Any]
    verbose: bool
    environ: Mapping[str, str]
    json: bool = False
    tell: Callable[[Outcome], None] = lambda outcome: None  # noqa: ARG005 - as the faces call it

    def resolved(self) -> Resolved:
        """The settings, all layers merged."""
        return resolve(self.flags, self.environ)

    def names(self, option: str) -> tuple[str, ...]:
        """The names that an option lists with commas; empty when it was not given.

        A list without a single name is a SETTINGS error: it is no way to say all of them.
        """
        given = self.options[option]
        if given is None:
            return ()
        found = tuple(name for part in given.split(",") if (name := part.strip()))
        if not found:
            raise fail(
                ExitCode.SETTINGS,
                f"--{option} {given!r} names nothing",
                why="an empty list would mean the same as leaving the option out",
                remedy=(f"--{option} NAME[,NAME...]", f"leave --{option} out"),
            )
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """``document`` goes out with --json, else ``lines``; both on stdout."""

    document: Mapping[str, Any]
    lines: list[str] = field(default_factory=list)
    exit_code: ExitCode = ExitCode.OK
