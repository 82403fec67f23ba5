"""Decide which patches a release needs on this host: sets compared, each answer in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cpubuild.patching.model import Patch, PatchContext, Phase, Selected, When
from cpubuild.patching.series import load
from cpubuild.release import Release


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What a clause answers about."""

    when: When
    release: Release
    context: PatchContext


Clause = Callable[[Case], str | None]


def select(
    release: Release,
    context: PatchContext,
    *,
    phase: Phase = "source",
    series: tuple[Patch, ...] | None = None,
) -> tuple[Selected, ...]:
    """The patches of ``phase`` whose predicate holds, in the series' order, with their reasons."""
    chosen = []
    for patch in load() if series is None else series:
        if phase not in patch.phases:
            continue
        reason = next(filter(None, (holds(when, release, context) for when in patch.when)), None)
        if reason is not None:
            chosen.append(Selected(patch=patch, reason=reason, release=release, context=context))
    return tuple(chosen)


def holds(when: When, release: Release, context: PatchContext) -> str | None:
    """The reason in a sentence if every condition of ``when`` holds, else None."""
    case = Case(when=when, release=release, context=context)
    clauses = []
    for name, clause in CLAUSES.items():
        if getattr(when, name) in (None, ()):
            continue
        words = clause(case)
        if words is None:
            return None
        clauses.append(words)
    return f"vLLM {release.version}: " + ", ".join(filter(None, clauses)) + "."


def in_releases(specifier: str, version: str) -> bool:
    """Whether a release (pre-releases and development versions included) is in a specifier set."""
    return SpecifierSet(specifier).contains(Version(Version(version).public), prereleases=True)


def _releases(case: Case) -> str | None:
    wanted = case.when.releases or ""
    return f"one of the releases {wanted}" if in_releases(wanted, case.release.version) else None


def _arch(case: Case) -> str | None:
    return f"built for {case.context.arch}" if case.context.arch in case.when.arch else None


def _below(context: PatchContext, floor: str | None) -> bool:
    if floor is None or context.gcc_version is None:
        return False
    return Version(context.gcc_version) < Version(floor)


def _gcc_below(case: Case) -> str | None:
    below = _below(case.context, case.when.gcc_below)
    return f"g++ {case.context.gcc_version} is older than {case.when.gcc_below}" if below else None


def _gcc_below_floor(case: Case) -> str | None:
    if _below(case.context, case.release.gcc_floor) is not case.when.gcc_below_floor:
        return None
    word = "below" if case.when.gcc_below_floor else "not below"
    return f"g++ {case.context.gcc_version} is {word} the tree's floor {case.release.gcc_floor}"


def _gcc_probe_ok(case: Case) -> str | None:
    if case.context.gcc_probe_ok is not case.when.gcc_probe_ok:
        return None
    return "it compiled the probes" if case.when.gcc_probe_ok else "it did not compile the probes"


def _options_rejected(case: Case) -> str | None:
    if bool(case.context.rejected_options) is not case.when.options_rejected:
        return None
    return f"g++ does not know {', '.join(case.context.rejected_options) or 'nothing'}"


def _several_targets(case: Case) -> str | None:
    if (len(case.release.targets) > 1) is not case.when.several_targets:
        return None
    return f"the tree builds {', '.join(case.release.targets)}"


def _x86_target_known(case: Case) -> str | None:
    if (case.context.x86_target is not None) is not case.when.x86_target_known:
        return None
    return (
        f"vLLM's loader takes {case.context.x86_target} on this host"
        if case.context.x86_target
        else ""
    )


def _triton(case: Case) -> str | None:
    if case.context.triton is not case.when.triton:
        return None
    return "triton-cpu will " + ("be there" if case.when.triton else "not be there")


def _url_requirements(case: Case) -> str | None:
    if bool(case.release.url_requirements) is not case.when.url_requirements:
        return None
    names = sorted({r.name for r in case.release.url_requirements})
    return f"{', '.join(names) or 'nothing'} is asked for by URL"


def _profile(case: Case) -> str | None:
    return f"profile {case.context.profile}" if case.context.profile in case.when.profile else None


def _drops(case: Case) -> str | None:
    if bool(case.context.drop_requirements) is not case.when.drops:
        return None
    return f"{', '.join(case.context.drop_requirements) or 'nothing'} shall not be required"


def _cuda_yields(case: Case) -> str | None:
    if case.release.cuda_yields_to_cpu is not case.when.cuda_yields_to_cpu:
        return None
    here = "; this host has an NVIDIA library" if case.context.nvidia_library else ""
    order = "after" if case.when.cuda_yields_to_cpu else "before"
    return f"CUDA is looked for {order} the CPU build{here}"


CLAUSES: dict[str, Clause] = {
    "releases": _releases,
    "arch": _arch,
    "gcc_below": _gcc_below,
    "gcc_below_floor": _gcc_below_floor,
    "gcc_probe_ok": _gcc_probe_ok,
    "options_rejected": _options_rejected,
    "several_targets": _several_targets,
    "x86_target_known": _x86_target_known,
    "triton": _triton,
    "url_requirements": _url_requirements,
    "profile": _profile,
    "drops": _drops,
    "cuda_yields_to_cpu": _cuda_yields,
}
