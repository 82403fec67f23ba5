"""What every check is given, and how it states a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cpubuild.assess.registry import registry
from cpubuild.assess.surroundings import Surroundings
from cpubuild.choose.needs import Needs
from cpubuild.errors import ExitCode
from cpubuild.facts.model import HostFacts
from cpubuild.findings import Finding, Status
from cpubuild.release import Release


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """A host, a release, and what is wanted of them."""

    facts: HostFacts
    release: Release
    needs: Needs = field(default_factory=Needs)
    around: Surroundings = field(default_factory=Surroundings)

    def env(self, name: str) -> str | None:
        """The value of an environment variable, None when it is unset or empty."""
        return dict(self.facts.environment).get(name) or None


Judge = Callable[[Context], Iterator[Finding]]


def state(
    check: str,
    status: Status,
    found: str = "",
    *,
    needed: str = "",
    why: str = "",
    remedy: tuple[str, ...] = (),
    evidence: tuple[str, ...] = (),
    exit_code: ExitCode = ExitCode.PREREQUISITE,
) -> Finding:
    """The finding of ``check``, titled by the registry; an unregistered id is a defect."""
    return Finding(
        id=check,
        status=status,
        title=registry()[check].title,
        found=found,
        needed=needed,
        why=why,
        remedy=remedy,
        evidence=evidence,
        exit_code=exit_code,
    )


def fine(
    check: str, found: str = "", *, needed: str = "", why: str = "", evidence: tuple[str, ...] = ()
) -> Finding:
    """A check that came out well."""
    return state(check, Status.OK, found, needed=needed, why=why, evidence=evidence)
