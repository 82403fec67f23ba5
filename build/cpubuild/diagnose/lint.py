"""Hold the rules against what every rule must be."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cpubuild.diagnose.judge import Context, Found, best, judge
from cpubuild.diagnose.literals import gate_word
from cpubuild.diagnose.remedies import FIELD, certain
from cpubuild.diagnose.rules import Rule, load_line_kinds, load_lookups, load_rules
from cpubuild.diagnose.scan import Scan

CHECK_ID = re.compile(
    r"(?:host|isa|toolchain|libraries|python|memory|disk|network|container|environment|existing|release)"
    r"\.[a-z0-9_]+"
)
_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
_UNBOUNDED = re.compile(r"\.[*+]|\{\d+,\}")
_QUANTIFIED_INSIDE = re.compile(r"\((?:\?:|\?P<\w+>)?[^()]*[*+}][^()]*\)(?:[*+]|\{\d*,\d*\})")


def lint_rules(rules: tuple[Rule, ...] | None = None) -> tuple[str, ...]:
    """Every fault of the rules, one line each; empty when they are as they must be.

    Each rule has examples it answers to as the first cause and counterexamples it does not
    answer to; two rules that claim one example have an order; names that rules refer to exist;
    patterns are linear and hold a literal word.
    """
    rules = load_rules() if rules is None else rules
    return (
        *_ids(rules),
        *(fault for rule in rules for fault in _patterns(rule)),
        *(fault for rule in rules for fault in _fields(rule)),
        *(fault for rule in rules for fault in _references(rule, rules)),
        *(fault for rule in rules for fault in _examples(rule, rules)),
    )


def _ids(rules: tuple[Rule, ...]) -> Iterator[str]:
    seen: set[str] = set()
    for rule in rules:
        if rule.id in seen:
            yield f"{rule.id}: the id is used twice"
        if not re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", rule.id):
            yield f"{rule.id}: an id is lower-case words joined by hyphens"
        seen.add(rule.id)


def all_patterns(rule: Rule) -> Iterator[str]:
    """Every pattern a rule uses."""
    for match in rule.match:
        yield from (*match.any, *match.all, *match.near, *match.absent, *match.unless)


def _patterns(rule: Rule) -> Iterator[str]:
    for match in rule.match:
        gated = (*match.any, *match.all, *match.near, *match.absent)
        if not (gated or match.exit):
            yield f"{rule.id}: a match that asks for nothing"
        for pattern in gated:
            if gate_word(pattern) is None:
                yield f"{rule.id}: no literal word of four letters in {pattern!r}"
    for pattern in all_patterns(rule):
        yield from (f"{rule.id}: {fault} in {pattern!r}" for fault in pattern_faults(pattern))


def _fields(rule: Rule) -> Iterator[str]:
    """Fields of the explanation that a match may leave without a value."""
    for name in FIELD.findall(certain(rule.explanation)):
        if not all(f"(?P<{name}>" in pattern for m in rule.match for pattern in m.any or ("",)):
            yield f"{rule.id}: {{{name}}} has no value in every match; write it in [[ ]]"


def pattern_faults(pattern: str) -> Iterator[str]:
    """What makes a pattern wrong or slow."""
    try:
        re.compile(pattern)
    except re.error as error:
        yield f"not a regular expression ({error})"
    shape = _CLASS.sub("c", pattern)
    if _UNBOUNDED.search(shape):
        yield "an unbounded gap"
    if _QUANTIFIED_INSIDE.search(shape):
        yield "a repetition inside a repetition"


def _references(rule: Rule, rules: tuple[Rule, ...]) -> Iterator[str]:
    known = {r.id for r in rules}
    for other in (*rule.explains, *rule.after):
        if other not in known:
            yield f"{rule.id}: there is no rule {other}"
    for check in rule.foreseen_by:
        if not CHECK_ID.fullmatch(check):
            yield f"{rule.id}: {check} is no check id"
    for table in rule.lookup:
        if table not in load_lookups():
            yield f"{rule.id}: there is no lookup table {table}"
    if not any(rule.remedies.values()):
        yield f"{rule.id}: no remedy"


def _examples(rule: Rule, rules: tuple[Rule, ...]) -> Iterator[str]:
    if not rule.examples or not rule.counterexamples:
        yield f"{rule.id}: needs an example and a counterexample"
    for example in rule.examples:
        found = claims(example, rules)
        mine = next((f for f in found if f.rule.id == rule.id), None)
        if mine is None:
            yield f"{rule.id}: does not answer to its example {example[:80]!r}"
            continue
        for other in found:
            if other is not mine and not ordered(mine, other):
                yield f"{rule.id}: {other.rule.id} claims {example[:80]!r} too, without an order"
            first = first_cause(example)
        if first != rule.id:
            yield f"{rule.id}: {first} comes first for {example[:80]!r}"
    for example in rule.counterexamples:
        if first_cause(example) == rule.id:
            yield f"{rule.id}: answers to its counterexample {example[:80]!r}"


def first_cause(text: str) -> str | None:
    """The id of the first cause of a piece of log."""
    scan = Scan()
    scan.feed(text.splitlines())
    causes = judge(scan, Context()).causes
    return causes[0].id if causes else None


def claims(text: str, rules: tuple[Rule, ...]) -> list[Found]:
    """The rules that hold for a piece of log."""
    scan = Scan()
    scan.feed(text.splitlines())
    context = Context()
    statuses = set(scan.statuses)
    return [f for rule in rules if (f := best(rule, scan, context, statuses))]


def ordered(one: Found, other: Found) -> bool:
    """Whether it is stated which of two findings comes first."""
    return precedes(one, other) or precedes(other, one)


def precedes(one: Found, other: Found) -> bool:
    """Whether ``one`` is stated to come before ``other``: by precedence, else by tier."""
    if _explains(one.rule, other.rule):
        return True
    return one.order[0] < other.order[0] and not _explains(other.rule, one.rule)


def _explains(one: Rule, other: Rule) -> bool:
    """Whether ``one`` names ``other`` as what follows from it, or is named by it."""
    return other.id in one.explains or one.id in other.after


def lint_line_kinds() -> tuple[str, ...]:
    """Faults of the patterns about lines in general."""
    kinds = load_line_kinds()
    names = ("noise", "wrapper", "success", "strong", "weak", "exit")
    patterns = [(name, p) for name in names for p in getattr(kinds, name)]
    return tuple(
        f"{name}: {fault} in {pattern!r}"
        for name, pattern in patterns
        for fault in (
            *pattern_faults(pattern),
            *(() if gate_word(pattern) else ("no literal word",)),
        )
    )
