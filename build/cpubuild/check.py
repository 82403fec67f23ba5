"""Foresee what goes wrong on a host with a release: findings, a verdict, what mends it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cpubuild import jsonio, speed, ui, verdict
from cpubuild.assess import GROUPS, Check, Needs, Surroundings, assess, blockers, registry
from cpubuild.errors import ExitCode, fail
from cpubuild.facts.model import HostFacts
from cpubuild.findings import Finding, Status
from cpubuild.release import Release
from cpubuild.system import Package, install_command, missing_packages, one_line
from cpubuild.verdict import Verdict

SCHEMA = 1
ORDER = (Status.BLOCKER, Status.UNKNOWN, Status.WARN, Status.OK)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckReport:
    """All findings that were asked for, and the verdict, which rests on every finding."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    exit_code: ExitCode

    @property
    def groups(self) -> dict[str, tuple[Finding, ...]]:
        """The findings by group, in the groups' order, empty groups left out."""
        parts = {
            group: tuple(f for f in self.findings if f.id.split(".")[0] == group)
            for group in GROUPS
        }
        return {group: found for group, found in parts.items() if found}

    def to_json(self) -> dict[str, Any]:
        """The document of ``data/schemas/check.json``."""
        groups = [
            {"id": group, "status": worst(found).value, "findings": [f.id for f in found]}
            for group, found in self.groups.items()
        ]
        document = {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "groups": groups,
            "findings": self.findings,
            "exit_code": int(self.exit_code),
        }
        plain: dict[str, Any] = jsonio.plain(document)
        return plain

    def lines(self, *, verbose: bool = False) -> list[str]:
        """The report for people: one line a finding, then what to do about what is not well."""
        rows: list[str] = []
        for group, found in self.groups.items():
            rows.append(f"{group}")
            for finding in found:
                rows.append(finding_line(finding))
                if verbose:
                    rows += evidence_lines(finding)
        rows += to_do(self.findings)
        rows += ["", self.verdict.summary]
        return rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Fix:
    """What --fix may do: ``commands`` to run now, or ``block``, lines to paste, when it may not."""

    packages: tuple[Package, ...]
    commands: tuple[tuple[str, ...], ...]
    allowed: bool
    block: tuple[str, ...]


def run_check(
    facts: HostFacts,
    release: Release,
    *,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    needs: Needs | None = None,
    around: Surroundings | None = None,
    measured: speed.Speed | None = None,
) -> CheckReport:
    """Judge everything, and report what ``only`` and ``skip`` (ids or groups) leave.

    Raises a SETTINGS error for a name that is neither. The exit code is that of the gravest
    blocker reported, 0 without one.
    """
    wanted, unwanted = names(only), names(skip)
    everything = assess(facts, release, needs=needs, around=around)
    if measured is not None:
        everything += speed.judge(measured, facts.cpu)
    everything = tuple(sorted(everything, key=lambda f: GROUPS.index(f.id.split(".")[0])))
    chosen = tuple(
        f for f in everything if (not wanted or belongs(f, wanted)) and not belongs(f, unwanted)
    )
    codes = [f.exit_code for f in blockers(chosen)]
    return CheckReport(
        verdict=verdict.judge(facts, release, everything, needs=needs, around=around),
        findings=chosen,
        exit_code=min(codes, default=ExitCode.OK),
    )


def names(given: Iterable[str]) -> frozenset[str]:
    """Ids and groups from options (commas part them); raises SETTINGS for what is neither."""
    asked = [part.strip() for text in given for part in text.split(",") if part.strip()]
    known = (*GROUPS, *registry())
    for name in asked:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3)
            raise fail(
                ExitCode.SETTINGS,
                f"there is no check or group called {name}",
                why=f"did you mean {', '.join(close)}?" if close else "",
                remedy=("invoke check --list",),
            )
    return frozenset(asked)


def belongs(finding: Finding, chosen: frozenset[str]) -> bool:
    """Whether a finding's id or group is among the chosen."""
    return finding.id in chosen or finding.id.split(".")[0] in chosen


def list_checks() -> tuple[Check, ...]:
    """Every check there is, by group."""
    return tuple(registry().values())


def explain(check: str) -> tuple[str, ...]:
    """What a check means, in lines; raises SETTINGS for an unknown id."""
    names((check,))
    row = registry().get(check)
    if row is None:
        return tuple(f"{c.id}  {c.title}" for c in list_checks() if c.group == check)
    lines = (f"{row.id}  {row.title}", "", row.text)
    return (*lines, "", f"foresees: {', '.join(row.cases)}") if row.cases else lines


def worst(findings: Iterable[Finding]) -> Status:
    """The gravest status: blocker, unknown, warn, ok."""
    return min((f.status for f in findings), key=ORDER.index, default=Status.OK)


def finding_line(finding: Finding) -> str:
    """A finding in one line; the mark says its status without colour."""
    needed = finding.needed if finding.status is not Status.OK else ""
    found = finding.found + (f" (needed: {needed})" if needed else "")
    return f"  {ui.mark(finding.status.value)} {finding.id}: {finding.title}" + (
        f": {found}" if found else ""
    )


def evidence_lines(finding: Finding) -> list[str]:
    """What a finding rests on."""
    why = [finding.why] if finding.why else []
    return [f"         {line}" for line in (*why, *finding.evidence)]


def to_do(findings: Iterable[Finding]) -> list[str]:
    """Why and what to do, for everything that is not well, the gravest first."""
    bad = sorted(
        (f for f in findings if f.status is not Status.OK and (f.why or f.remedy)),
        key=lambda f: ORDER.index(f.status),
    )
    rows: list[str] = []
    for finding in bad:
        rows += ["", f"{ui.mark(finding.status.value)} {finding.id}: {finding.found}"]
        rows += [f"     why: {finding.why}"] if finding.why else []
        rows += [f"     do:  {remedy}" for remedy in finding.remedy]
    return rows


def fix_plan(facts: HostFacts, release: Release) -> Fix:
    """The packages that are missing and how they come here; nothing is run."""
    packages = missing_packages(facts, release)
    commands = install_command(facts.distro, packages, root=facts.container.root)
    return Fix(
        packages=packages,
        commands=commands,
        allowed=facts.container.can_install and bool(commands),
        block=tuple(block(facts, packages, commands)),
    )


def block(
    facts: HostFacts, packages: tuple[Package, ...], commands: tuple[tuple[str, ...], ...]
) -> list[str]:
    """The lines to paste on this distribution; a comment alone where nothing can be installed."""
    pretty = facts.distro.pretty or facts.distro.id or "this system"
    if facts.libc.name == "musl":
        return [f"# {pretty}: not supported, torch publishes no build for musl"]
    if not packages:
        return [f"# {pretty}: nothing is missing that has a package here"]
    reasons = [f"# {' '.join(p.names)}: {p.reason}" for p in packages]
    if not commands:
        return [f"# {pretty}: its package tool is not known; install these", *reasons]
    return [f"# {pretty}", *reasons, one_line(commands)]


def schema() -> Mapping[str, Any]:
    """The JSON schema of ``CheckReport.to_json``."""
    import json
    from importlib.resources import files

    path = files("cpubuild") / "data" / "schemas" / "check.json"
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document
