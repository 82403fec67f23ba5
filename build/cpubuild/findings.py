"""Findings: what was judged about a host, a release or an environment, in one shape."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cpubuild.errors import ExitCode


class Status(StrEnum):
    """How a finding came out; ``unknown`` is never read as ``ok`` or as absent."""

    OK = "ok"
    WARN = "warn"
    BLOCKER = "blocker"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One judgement with its reason.

    ``id`` is stable and dotted (``toolchain.gxx``). ``found`` and ``needed`` hold the values in
    words, ``why`` a sentence, ``remedy`` commands or settings in order of preference,
    ``evidence`` the raw lines it rests on, ``exit_code`` what a blocker ends a run with.
    """

    id: str
    status: Status
    title: str
    found: str = ""
    needed: str = ""
    why: str = ""
    remedy: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    exit_code: ExitCode = ExitCode.PREREQUISITE
