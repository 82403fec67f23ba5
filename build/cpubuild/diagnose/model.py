"""What a diagnosis is: causes with their evidence, or an honest "unknown"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cpubuild.diagnose.rules import Confidence

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """One line that shows something: its number from 1, its text, its file if there are several."""

    line: int
    text: str
    file: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        found: dict[str, Any] = {"line": self.line, "text": self.text}
        return found | ({"file": self.file} if self.file is not None else {})


@dataclass(frozen=True, kw_only=True, slots=True)
class Secondary:
    """Something the log shows too that follows from the cause and needs no remedy of its own."""

    id: str
    title: str
    evidence: tuple[Evidence, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "id": self.id,
            "title": self.title,
            "evidence": [e.to_json() for e in self.evidence],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """One cause: the rule's id and title, how sure, what it means, remedies in order."""

    id: str
    title: str
    confidence: Confidence
    explanation: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[str, ...]
    secondary: tuple[Secondary, ...] = ()
    phase: str = ""
    foreseen_by: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "id": self.id,
            "title": self.title,
            "confidence": self.confidence,
            "phase": self.phase,
            "explanation": self.explanation,
            "evidence": [e.to_json() for e in self.evidence],
            "remedies": list(self.remedies),
            "secondary": [s.to_json() for s in self.secondary],
            "foreseen_by": list(self.foreseen_by),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """The answer to one log: causes ranked, the first real error, what to collect if unknown.

    ``unknown`` is true when something failed and no rule knows why; a log without any sign of
    failure has no causes and is not unknown. ``lines`` counts the lines read.
    """

    causes: tuple[Cause, ...]
    first_error: Evidence | None
    unknown: bool
    exit_status: int | None = None
    collect: tuple[str, ...] = ()
    lines: int = 0

    @property
    def healthy(self) -> bool:
        """Whether nothing in the input says that anything failed."""
        return not self.causes and not self.unknown

    def to_json(self) -> dict[str, Any]:
        """As plain data, as ``data/schemas/diagnose.json`` describes it."""
        return {
            "schema": SCHEMA,
            "causes": [c.to_json() for c in self.causes],
            "first_error": self.first_error.to_json() if self.first_error else None,
            "unknown": self.unknown,
            "exit_status": self.exit_status,
            "collect": list(self.collect),
            "lines": self.lines,
        }
