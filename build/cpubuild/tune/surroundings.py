"""What of the surroundings would bite a run: taken out, or reported where somebody must decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cpubuild.assess import environment
from cpubuild.assess.base import Context
from cpubuild.assess.surroundings import Surroundings, missing_preloads
from cpubuild.facts.environment import parse
from cpubuild.facts.model import HostFacts
from cpubuild.facts.read import integer
from cpubuild.findings import Finding, Status
from cpubuild.release.known import known_release, known_versions
from cpubuild.tune.model import Variable
from cpubuild.tune.tree import Tree

GONE = {
    "VLLM_TARGET_DEVICE": "it is for builds, and from 0.28 on makes a wrong wheel look right",
    "CUDA_VISIBLE_DEVICES": "a CPU build needs none, and it changes how platforms are recognised",
    "PYTHONPATH": "packages there would win over those of the environment",
    "PYTHONHOME": "it belongs to another Python",
    "KMP_AFFINITY": "vLLM binds its threads itself; two bindings put them on one core",
    "GOMP_CPU_AFFINITY": "vLLM binds its threads itself; two bindings put them on one core",
    "OMP_PLACES": "vLLM binds its threads itself; two bindings put them on one core",
    "OMP_PROC_BIND": "vLLM binds its threads itself; two bindings put them on one core",
    "OMP_NUM_THREADS": "vLLM counts its threads by the CPUs it binds them to",
    "LD_PRELOAD": "what it names is not there, or holds two OpenMP runtimes",
}
JUDGES = (
    environment.target_device,
    environment.visible_devices,
    environment.ld_preload,
    environment.pythonpath,
    environment.vllm_names,
    environment.kv_space,
    environment.omp_bind,
    environment.one_thread,
)
THP = "sys/kernel/mm/transparent_hugepage/enabled"
OVERCOMMIT = "proc/sys/vm/overcommit_memory"


def removed(
    environ: Mapping[str, str], own: tuple[Variable, ...], *, legacy: frozenset[str]
) -> tuple[tuple[str, str], ...]:
    """Names to take out of the surroundings, with the reason.

    ``own`` variables replace what is there; ``legacy`` are names that would win over an option.
    """
    mine = {v.name for v in own}
    found = [
        (name, why)
        for name, why in GONE.items()
        if environ.get(name) and name not in mine and (name != "LD_PRELOAD" or broken(environ))
    ]
    found += [
        (name, "it would win over the option that is set here")
        for name in sorted(legacy)
        if environ.get(name)
    ]
    return tuple(found)


def broken(environ: Mapping[str, str]) -> bool:
    """Whether LD_PRELOAD names what is not there, or two OpenMP runtimes."""
    value = environ.get("LD_PRELOAD", "")
    return bool(missing_preloads(value)) or len(environment.openmp_runtimes(value)) > 1


def replaced(environ: Mapping[str, str], own: tuple[Variable, ...]) -> tuple[Finding, ...]:
    """Values of the surroundings that give way to others, except where the environment lies."""
    there = [(v.name, environ[v.name], v.value) for v in own if environ.get(v.name)]
    changed = [row for row in there if row[1] != row[2] and row[0] != "VIRTUAL_ENV"]
    if not changed:
        return ()
    found = Finding(
        id="tune.replaced",
        status=Status.WARN,
        title=f"replaced: {', '.join(name for name, _, _ in changed)}",
        found="; ".join(f"{name}={before}, now {now}" for name, before, now in changed),
        why="what is computed here replaces it where this tool starts vLLM",
        remedy=(f"unset {' '.join(name for name, _, _ in changed)}",),
    )
    return (found,)


def reported(
    environ: Mapping[str, str], facts: HostFacts, tree: Tree, release: str
) -> tuple[Finding, ...]:
    """What `check` would say of these surroundings, for the release that is installed."""
    known = known_release(release.split("+")[0], facts.cpu.arch)
    known = known or known_release(known_versions()[-1], facts.cpu.arch)
    if known is None:
        return ()
    names = tree.variables or frozenset()
    context = Context(
        facts=replace(facts, environment=parse(environ)),
        release=replace(known, env_names=names, env_names_elsewhere=frozenset()),
        around=Surroundings(preload_missing=missing_preloads(environ.get("LD_PRELOAD", ""))),
    )
    found = (finding for judge in JUDGES for finding in judge(context))
    return tuple(f for f in found if f.status is not Status.OK)


def kernel(facts: HostFacts, root: Path) -> tuple[Finding, ...]:
    """Swap, overcommit and huge pages: what they mean for a run. Nothing is changed."""
    return (swap(facts), overcommit(text(root / OVERCOMMIT)), huge_pages(text(root / THP)))


def text(path: Path) -> str | None:
    """A small file, None if it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


def swap(facts: HostFacts) -> Finding:
    """Swap saves nothing here: every token reads all weights."""
    total = facts.memory.swap_total >> 20
    return Finding(
        id="tune.swap",
        status=Status.OK,
        title=f"{total} MiB of swap" if total else "no swap",
        why="every token reads all weights: a model that is swapped out makes seconds of each "
        "token; swap counts for nothing in the sums here"
        + ("" if total else ", and without it the kernel ends what asks for too much"),
    )


def overcommit(value: str | None) -> Finding:
    """Strict accounting refuses what would never be used."""
    mode = integer(value)
    strict = mode == 2
    if mode is None:
        return Finding(
            id="tune.overcommit", status=Status.UNKNOWN, title="the overcommit mode is not known"
        )
    return Finding(
        id="tune.overcommit",
        status=Status.WARN if strict else Status.OK,
        title=f"vm.overcommit_memory is {mode}",
        why="strict accounting counts what is reserved, not what is used: mapping the weights and "
        "tcmalloc's arenas can be refused (Cannot allocate memory) with memory free"
        if strict
        else "memory counts when it is used",
        remedy=("sysctl vm.overcommit_memory=0   # as root; not done here",) if strict else (),
    )


def huge_pages(value: str | None) -> Finding:
    """Transparent huge pages: fewer misses when weights are read, if the allocator asks."""
    mode = next((w.strip("[]") for w in (value or "").split() if w.startswith("[")), None)
    if mode is None:
        return Finding(
            id="tune.huge_pages",
            status=Status.UNKNOWN,
            title="the mode of transparent huge pages is not known",
        )
    said = {
        "always": "large allocations get them; memory can look fuller than it is",
        "madvise": "only memory that asks for them gets them, which torch's weights do not",
        "never": "none are used; reading weights misses the address cache more often",
    }
    return Finding(
        id="tune.huge_pages",
        status=Status.OK,
        title=f"transparent huge pages: {mode}",
        why=said.get(mode, ""),
        remedy=()
        if mode == "always"
        else ("echo always > /sys/kernel/mm/transparent_hugepage/enabled   # as root; a choice",),
    )
