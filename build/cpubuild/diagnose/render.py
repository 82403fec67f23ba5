"""A diagnosis and the rules as lines of text; meaning survives without colour."""

from __future__ import annotations

from collections.abc import Iterator

from cpubuild.diagnose.model import Cause, Diagnosis, Evidence
from cpubuild.diagnose.rules import Rule, load_rules

SHOWN = 240
SURE = {"high": "sure", "medium": "likely", "low": "possible"}


def render_diagnosis(diagnosis: Diagnosis, *, verbose: bool = False) -> tuple[str, ...]:
    """The answer as lines: causes in order, that nothing failed, or that the cause is unknown."""
    if diagnosis.healthy:
        return (f"Nothing in {diagnosis.lines} lines says that anything failed.",)
    return tuple(_lines(diagnosis, verbose=verbose))


def _lines(diagnosis: Diagnosis, *, verbose: bool) -> Iterator[str]:
    for number, cause in enumerate(diagnosis.causes, start=1):
        if number > 1:
            yield ""
        yield from _cause(cause, number, verbose=verbose)
    if diagnosis.unknown:
        yield "The cause is unknown: no rule knows this failure."
        if diagnosis.exit_status is not None:
            yield f"  exit status {diagnosis.exit_status}"
        if diagnosis.first_error is not None:
            yield "  the likeliest first error:"
            yield _evidence(diagnosis.first_error)
        else:
            yield "  no line of the log looks like an error"
        yield "  to collect:"
        yield from (f"    - {text}" for text in diagnosis.collect)
    elif verbose and diagnosis.first_error is not None:
        yield ""
        yield "first error in the log:"
        yield _evidence(diagnosis.first_error)


def _cause(cause: Cause, number: int, *, verbose: bool) -> Iterator[str]:
    yield f"{number}. {cause.title} [{cause.id}] ({SURE[cause.confidence]})"
    shown = cause.evidence if verbose else cause.evidence[:3]
    yield from (_evidence(e) for e in shown)
    yield f"  why: {cause.explanation}"
    yield "  remedy:"
    yield from (f"    - {text}" for text in cause.remedies)
    if cause.secondary:
        names = ", ".join(s.id for s in cause.secondary if s.id != "wrapper")
        if names:
            yield f"  follows from it: {names}"
        if verbose:
            yield from (_evidence(e) for s in cause.secondary for e in s.evidence)
    if verbose and cause.foreseen_by:
        yield "  foreseen by: " + ", ".join(cause.foreseen_by)


def _evidence(evidence: Evidence) -> str:
    where = f"{evidence.file}:{evidence.line}" if evidence.file else f"line {evidence.line}"
    text = evidence.text.strip()
    return f"  {where}: {text[:SHOWN]}{' ...' if len(text) > SHOWN else ''}"


def render_rules(rules: tuple[Rule, ...] | None = None) -> tuple[str, ...]:
    """One line per rule: id, phase, title."""
    rules = load_rules() if rules is None else rules
    width = max((len(r.id) for r in rules), default=0)
    return tuple(f"{r.id:<{width}}  {r.phase:<8} {r.title}" for r in sorted(rules, key=_key))


def _key(rule: Rule) -> tuple[str, str]:
    return (rule.phase, rule.id)
