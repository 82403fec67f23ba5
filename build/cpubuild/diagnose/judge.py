"""From what a scan saw to a ranked diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cpubuild.diagnose.clean import Line
from cpubuild.diagnose.model import Cause, Diagnosis, Evidence, Secondary
from cpubuild.diagnose.remedies import fill, remedies_for
from cpubuild.diagnose.rules import CONFIDENCES, TIERS, Confidence, Match, Rule
from cpubuild.diagnose.scan import Hit, Scan, Seen, canonical, joined
from cpubuild.facts.model import HostFacts

EVIDENCE_LINES = 8
EVIDENCE_CHARACTERS = 600
NOTHING = Seen()


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """What is known beside the log: exit status, host or package family, architecture, release."""

    exit_status: int | None = None
    host: HostFacts | None = None
    family: str | None = None
    distro: str | None = None
    arch: str | None = None
    release: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A rule that holds: by which match, with which hits, how sure."""

    rule: Rule
    match: Match
    hits: tuple[Hit, ...]
    confidence: Confidence

    @property
    def position(self) -> int:
        """Where the earliest of its lines stands; after everything when only a status shows it."""
        return min((h.serial for h in self.hits), default=1 << 62)

    @property
    def order(self) -> tuple[int, int, int]:
        """Tier, then confidence, then position."""
        return (
            TIERS.index(self.match.tier),
            CONFIDENCES.index(self.confidence),
            self.position,
        )

    @property
    def groups(self) -> dict[str, str]:
        """What the patterns captured, the earliest hit winning."""
        merged: dict[str, str] = {}
        for hit in sorted(self.hits, key=lambda h: h.serial, reverse=True):
            merged |= hit.groups
        return merged


def judge(scan: Scan, context: Context) -> Diagnosis:
    """Rank the causes of what ``scan`` saw; say unknown when something failed without a cause."""
    statuses = set(scan.statuses)
    if context.exit_status:
        statuses.add(canonical(context.exit_status))
    found = [
        f
        for rule in scan.known.rules
        if (f := best(rule, scan, context, statuses)) and _counts(f, scan, context)
    ]
    found.sort(key=lambda f: f.order)
    heads = _heads(found)
    causes = tuple(_cause(head, below, scan, context) for head, below in heads)
    first = _first_error(scan)
    failed = bool(context.exit_status) or (
        context.exit_status is None and first is not None and scan.success < scan.failed.last
    )
    unknown = failed and not causes
    return Diagnosis(
        causes=causes,
        first_error=first if causes or failed else None,
        unknown=unknown,
        exit_status=context.exit_status,
        collect=COLLECT if unknown else (),
        lines=scan.serial,
    )


COLLECT = (
    "the whole log from its first line, not its tail",
    "the command's exit status (echo $?); `dmesg | tail -50` if it is 132, 135, 137 or 139",
    "the output of `cpubuild check -v --json` on this host",
    "for a run: VLLM_LOGGING_LEVEL=DEBUG and the same command again",
    "`cpubuild diagnose --bundle out.tar.gz <logs>` packs these without tokens and names",
)


def best(rule: Rule, scan: Scan, context: Context, statuses: set[int]) -> Found | None:
    """The strongest match of ``rule`` that holds."""
    options = [f for match in rule.match if (f := _holds(rule, match, scan, context, statuses))]
    return min(options, key=lambda f: f.order, default=None)


def _holds(
    rule: Rule, match: Match, scan: Scan, context: Context, statuses: set[int]
) -> Found | None:
    def seen(pattern: str) -> Seen:
        return scan.seen.get((pattern, match.unless), NOTHING)

    if match.exit and not statuses & set(match.exit):
        return None
    if any(seen(p).count for p in match.absent):
        return None
    every = [seen(p) for p in match.all]
    some = [s for p in match.any if (s := seen(p)).count]
    if not all(s.count for s in every) or (match.any and not some):
        return None
    close = [s for p in match.near if (s := seen(p)).count and _close(s, some, match.within)]
    if (match.near and not close) or not _values_fit(match, some):
        return None
    hits = [h for s in some for h in s.hits[:3]] + [h for s in (*every, *close) for h in s.hits[:2]]
    return Found(
        rule=rule,
        match=match,
        hits=tuple(sorted(hits, key=lambda h: h.serial)),
        confidence=_confidence(rule, match, context, statuses),
    )


def _close(near: Seen, some: Sequence[Seen], within: int) -> bool:
    """Whether a kept position of ``near`` lies within ``within`` lines of one of ``some``."""
    there = sorted(p for s in some for p in s.where)
    return any(abs(a - b) <= within for a in near.where for b in there)


def _values_fit(match: Match, some: Sequence[Seen]) -> bool:
    for group, wanted_one in ((match.same, True), (match.differs, False)):
        if group:
            values = set().union(*(s.values.get(group, set()) for s in some))
            if (len(values) == 1) is not wanted_one:
                return False
    return True


def _confidence(rule: Rule, match: Match, context: Context, statuses: set[int]) -> Confidence:
    if statuses & set(rule.exit):
        return "high"
    place = CONFIDENCES.index(match.confidence)
    if match.arch and context.arch not in match.arch:
        place = len(CONFIDENCES) - 1
    if context.release and rule.releases and not _within(context.release, rule.releases):
        place += 1
    return CONFIDENCES[min(place, len(CONFIDENCES) - 1)]


def _within(release: str, specifiers: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(specifiers).contains(Version(release), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True


def _counts(found: Found, scan: Scan, context: Context) -> bool:
    """Whether a finding stands against what says that all went well."""
    if context.exit_status == 0:
        return found.rule.persistent and found.match.tier == "cause"
    if found.match.tier == "notice" and not context.exit_status:
        told = [line.serial for status, line in scan.statuses.items() if status in found.match.exit]
        return scan.success < max((*(h.serial for h in found.hits), *told), default=-1)
    return True


def _heads(found: list[Found]) -> list[tuple[Found, list[Found]]]:
    """Causes in order, each with what is secondary to it."""
    by_id = {f.rule.id: f for f in found}
    head: dict[str, str] = {}
    for cause in found:
        for other in cause.rule.explains:
            if other in by_id and other != cause.rule.id:
                head.setdefault(other, cause.rule.id)
        for other in cause.rule.after:
            if other in by_id and other != cause.rule.id:
                head.setdefault(cause.rule.id, other)
    causes = [f for f in found if _top(f.rule.id, head) == f.rule.id]
    if causes and causes[0].match.tier == "cause":
        for lesser in [f for f in causes if f.match.tier != "cause"]:
            head[lesser.rule.id] = causes[0].rule.id
            causes.remove(lesser)
    below: dict[str, list[Found]] = {f.rule.id: [] for f in causes}
    for finding in found:
        top = _top(finding.rule.id, head)
        if top != finding.rule.id:
            below[top].append(finding)
    return [(f, below[f.rule.id]) for f in causes]


def _top(rule_id: str, head: dict[str, str]) -> str:
    """Follow ``head`` upwards; a circle ends at the id it started from."""
    visited = [rule_id]
    while (above := head.get(visited[-1])) is not None:
        if above in visited:
            return min(visited[visited.index(above) :])
        visited.append(above)
    return visited[-1]


def _cause(found: Found, below: Sequence[Found], scan: Scan, context: Context) -> Cause:
    rule, groups = found.rule, found.groups
    secondary = [
        Secondary(id=f.rule.id, title=f.rule.title, evidence=_evidence(f.hits)[:2]) for f in below
    ]
    wrappers = [w for w in scan.wrappers if w.serial > found.position][:2]
    if wrappers:
        secondary.append(
            Secondary(
                id="wrapper",
                title="only says that something failed",
                evidence=tuple(_line(w) for w in wrappers),
            )
        )
    shown = _evidence(found.hits)
    status = [line for code, line in scan.statuses.items() if code in rule.exit]
    return Cause(
        id=rule.id,
        title=rule.title,
        confidence=found.confidence,
        explanation=fill(rule.explanation, groups),
        evidence=(shown or tuple(_line(line) for line in status))[:EVIDENCE_LINES],
        remedies=remedies_for(rule, groups, family=context.family, distro=context.distro),
        secondary=tuple(secondary),
        phase=rule.phase,
        foreseen_by=rule.foreseen_by,
    )


def _evidence(hits: Sequence[Hit]) -> tuple[Evidence, ...]:
    lines = {(line.serial, line.raw): line for hit in hits for line in hit.lines}
    return tuple(_line(line) for _, line in sorted(lines.items(), key=lambda item: item[0][0]))


def _line(line: Line) -> Evidence:
    return Evidence(line=line.number, text=line.raw[:EVIDENCE_CHARACTERS], file=line.file)


def _first_error(scan: Scan) -> Evidence | None:
    if scan.message:
        text, _ = joined(scan.message)
        head = scan.message[0]
        return Evidence(line=head.number, text=text.strip()[:EVIDENCE_CHARACTERS], file=head.file)
    for line in (*scan.weak[:1], *scan.wrappers[:1]):
        return Evidence(
            line=line.number, text=line.text.strip()[:EVIDENCE_CHARACTERS], file=line.file
        )
    return None
