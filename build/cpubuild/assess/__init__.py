"""Judge a host against a release: findings, all at once, each with its reason and its remedy."""

from __future__ import annotations

from collections.abc import Iterable

from cpubuild.assess import (
    container,
    disk,
    environment,
    existing,
    host,
    isa,
    known,
    libraries,
    memory,
    network,
    packages,
    python,
    toolchain,
)
from cpubuild.assess.base import Context, Judge
from cpubuild.assess.registry import GROUPS, Check, registry
from cpubuild.assess.surroundings import Surroundings, look_around
from cpubuild.choose.jobs import jobs_for
from cpubuild.choose.needs import Needs
from cpubuild.errors import CpuBuildError, Problem
from cpubuild.facts.model import HostFacts
from cpubuild.findings import Finding, Status
from cpubuild.release import Release

__all__ = [
    "GROUPS",
    "Check",
    "Needs",
    "Surroundings",
    "assess",
    "blockers",
    "jobs_for",
    "look_around",
    "registry",
    "stop_on",
]

JUDGES: tuple[Judge, ...] = (
    *host.JUDGES,
    *packages.JUDGES,
    *isa.JUDGES,
    *toolchain.JUDGES,
    *libraries.JUDGES,
    *python.JUDGES,
    *memory.JUDGES,
    *disk.JUDGES,
    *network.JUDGES,
    *container.JUDGES,
    *environment.JUDGES,
    *existing.JUDGES,
    *known.JUDGES,
)


def assess(
    facts: HostFacts,
    release: Release,
    *,
    needs: Needs | None = None,
    around: Surroundings | None = None,
) -> tuple[Finding, ...]:
    """All findings about ``facts`` for ``release``, in the order of the groups.

    ``around`` is what ``look_around`` observed; without it those checks say nothing. Pure:
    reads no file and starts nothing.
    """
    ctx = Context(
        facts=facts,
        release=release,
        needs=needs or Needs(),
        around=around or Surroundings(),
    )
    return tuple(finding for judge in JUDGES for finding in judge(ctx))


def blockers(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that end a run."""
    return tuple(f for f in findings if f.status is Status.BLOCKER)


def stop_on(findings: Iterable[Finding]) -> None:
    """Raise one error with every blocker; its exit code is that of the gravest (lowest code)."""
    found = blockers(findings)
    if not found:
        return
    problems = [
        Problem(
            what=f"{f.title}: {f.found}" + (f" (needed: {f.needed})" if f.needed else ""),
            why=f.why,
            remedy=f.remedy,
            exit_code=f.exit_code,
        )
        for f in found
    ]
    raise CpuBuildError(*problems, exit_code=min(p.exit_code for p in problems))
