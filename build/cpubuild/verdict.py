"""The verdict: what a host will be able to run of a release, and which release suits it better."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cpubuild.assess import Needs, Surroundings, assess, blockers
from cpubuild.choose.compilers import choose_compiler, meets_floor
from cpubuild.choose.known import known_releases
from cpubuild.choose.levels import UNKNOWN, lacks_avx512_library, level_words
from cpubuild.choose.tables import table
from cpubuild.errors import ExitCode
from cpubuild.facts.isa import NOT_SUPPORTED, x86_target
from cpubuild.facts.model import HostFacts
from cpubuild.findings import Finding, Status
from cpubuild.release import Release

BF16_LOST = "AVX512"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """``level``: what will run, in words ("AMX and BF16", "AVX2 only", "not supported", "unknown").

    ``host_level`` is what the CPU alone could do. ``suits`` is False when a blocker stands in the
    way. ``better_release`` is the newest known release that is not blocked, or reaches a higher
    level; None when there is none.
    """

    level: str
    host_level: str
    release: str
    suits: bool
    blockers: int
    warnings: int
    better_release: str | None
    summary: str


def judge(
    facts: HostFacts,
    release: Release,
    findings: Iterable[Finding],
    *,
    needs: Needs | None = None,
    around: Surroundings | None = None,
) -> Verdict:
    """Draw the conclusion from all findings about a host and a release."""
    findings = tuple(findings)
    stops = blockers(findings)
    hopeless = any(f.exit_code is ExitCode.UNSUPPORTED for f in stops)
    level = NOT_SUPPORTED if hopeless else reached(facts, release)
    better = better_release(facts, release, stopped=bool(stops), needs=needs, around=around)
    return Verdict(
        level=level,
        host_level=level_words(facts.cpu),
        release=release.version,
        suits=not stops,
        blockers=len(stops),
        warnings=sum(f.status is Status.WARN for f in findings),
        better_release=better,
        summary=sentence(release, level, stops, better),
    )


def reached(facts: HostFacts, release: Release) -> str:
    """The level that this release's build reaches here, the compiler considered."""
    level = level_words(facts.cpu)
    if level in (UNKNOWN, NOT_SUPPORTED) or facts.cpu.arch != "x86_64":
        return level
    compiler = choose_compiler(facts, release)
    old = compiler is not None and meets_floor(compiler, release) is False
    if (old and not release.gcc_fatal and "avx512f" in facts.cpu.flags) or (
        lacks_avx512_library(release) and x86_target(facts.cpu) == "_C_AVX512"
    ):
        return BF16_LOST
    if level.startswith("AMX") and not knows_amx(release):
        return "AVX512 and BF16"
    return level


def knows_amx(release: Release) -> bool:
    """Whether the release has AMX kernels: its names, or a library for AVX2 beside, tell."""
    names = release.env_names | release.env_names_elsewhere
    return "_C_AVX2" in release.targets or "VLLM_CPU_AMXBF16" in names


def rank(level: str) -> int:
    """The place of a level in data/isa.toml, 0 the best; what is not there comes last."""
    order = [row["words"] for row in table("isa.toml")["level"]]
    return order.index(level) if level in order else len(order)


def better_release(
    facts: HostFacts,
    release: Release,
    *,
    stopped: bool,
    needs: Needs | None = None,
    around: Surroundings | None = None,
) -> str | None:
    """The newest known release without blockers that is possible at all, or reaches more."""
    here = rank(reached(facts, release))
    for other in known_releases(facts.cpu.arch):
        if other.version == release.version:
            continue
        if not stopped and rank(reached(facts, other)) >= here:
            continue
        if not blockers(assess(facts, other, needs=needs, around=around)):
            return other.version
    return None


def sentence(release: Release, level: str, stops: tuple[Finding, ...], better: str | None) -> str:
    """The verdict in one sentence."""
    words = f"vLLM {release.version}: {level}"
    if stops:
        ids = ", ".join(dict.fromkeys(f.id for f in stops))
        words += f", stopped by {ids}"
    if better:
        words += f"; {better} would suit this host better"
    return words + "."
