"""Threads: which CPUs compute, which are left to others, how many ranks there are, and why."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cpubuild.facts.model import HostFacts, NumaNode
from cpubuild.findings import Finding, Status
from cpubuild.tune.model import Variable
from cpubuild.tune.tree import Tree

BIND = "VLLM_CPU_OMP_THREADS_BIND"
RESERVED = "VLLM_CPU_NUM_OF_RESERVED_CPU"
COUNT = "OMP_NUM_THREADS"
FEW_CORES = 4
"""Up to so many cores none is left to the front end: it sleeps while the engine computes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Threads:
    """``ranks`` are the CPUs that each worker computes on, ``count`` the threads of each.

    ``bound`` is False where threads float over all CPUs; ``node`` is the memory node of the only
    worker, None for one node, several workers or an unknown topology.
    """

    ranks: tuple[tuple[int, ...], ...]
    count: int
    bound: bool
    reserved: int
    node: NumaNode | None = None
    variables: tuple[Variable, ...] = ()
    launcher: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def ranges(cpus: tuple[int, ...]) -> str:
    """CPU numbers as vLLM and taskset read them: 0-3,8."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1][1:] = [cpu]
        else:
            parts.append([cpu])
    return ",".join("-".join(map(str, part)) for part in parts)


def spoken(count: int) -> str:
    """A number of threads in words."""
    return f"{count} thread{'s' * (count != 1)}"


def chosen(facts: HostFacts) -> tuple[int, ...] | None:
    """The CPUs to compute on, by vLLM's own rule for the architecture; None: topology unknown.

    x86 and s390x: the last of each core's siblings. POWER: four of eight. Others have no siblings.
    """
    cpu = facts.cpu
    allowed = frozenset(cpu.allowed)
    if cpu.arch not in ("x86_64", "s390x", "ppc64le"):
        return tuple(sorted(allowed))
    if cpu.arch == "ppc64le":
        return tuple(sorted(n for n in allowed if n % 8 < 4)) or tuple(sorted(allowed))
    groups = [allowed & frozenset(group) for group in cpu.siblings]
    seen = frozenset().union(*groups)
    if allowed - seen and cpu.physical != cpu.logical:
        return None
    lone = [frozenset({n}) for n in allowed - seen]
    return tuple(sorted(max(group) for group in [*groups, *lone] if group))


def nodes(facts: HostFacts) -> tuple[NumaNode, ...]:
    """The memory nodes that have CPUs which may be used."""
    allowed = frozenset(facts.cpu.allowed)
    return tuple(n for n in facts.numa if allowed & frozenset(n.cpus))


def quota(facts: HostFacts, cpus: int) -> int | None:
    """The whole CPUs of a control group's quota where that is less than ``cpus``."""
    given = facts.cpu.quota
    return max(1, int(given)) if given is not None and given < cpus else None


def denied(facts: HostFacts) -> bool:
    """Whether the calls that bind memory to nodes are known to be refused here."""
    said = (facts.container.get_mempolicy, facts.container.mbind)
    return any(s not in (None, "ok") for s in said)


def decide(
    facts: HostFacts, tree: Tree, *, ranks: int, reason: str, environ: Mapping[str, str]
) -> Threads:
    """Choose CPUs for ``ranks`` workers; ``reason`` says why so many."""
    cpus = chosen(facts)
    if cpus is None or not cpus:
        return untold(facts, tree)
    limit = quota(facts, len(cpus))
    where = nodes(facts)
    refused = migrates(facts, tree)
    if limit is not None or refused:
        return floating(facts, tree, cpus, limit, refused=refused)
    if ranks > 1:
        lists = tuple(tuple(c for c in cpus if c in node.cpus) for node in where[:ranks])
        return bound(facts, tree, lists, node=None, reason=reason)
    if len(where) > 1:
        home = max(where, key=lambda n: (len(set(n.cpus) & set(cpus)), -n.id))
        mine = tuple(c for c in cpus if c in home.cpus)
        made = bound(facts, tree, (mine,), node=home, reason=reason)
        return with_launcher(facts, made, home, environ)
    return bound(facts, tree, (cpus,), node=None, reason=reason)


def migrates(facts: HostFacts, tree: Tree) -> bool:
    """Whether binding would end a start: old releases insist on moving pages, which is refused."""
    return denied(facts) and tree.matches("vllm/v1/worker/cpu_worker.py", r"""!= ["']all["']""")


def untold(facts: HostFacts, tree: Tree) -> Threads:
    """Leave binding to vLLM where the kernel does not show which CPUs share a core."""
    cpu = facts.cpu
    cores = min(cpu.physical or cpu.logical, len(cpu.allowed) or cpu.logical)
    reserve = 0 if cores <= FEW_CORES else 1
    words = f"with {len(cpu.allowed) or cpu.logical} CPUs none can be spared for the front end"
    return Threads(
        ranks=(),
        count=max(1, cores - reserve),
        bound=False,
        reserved=reserve,
        variables=named(tree, (RESERVED, "0", words)) if not reserve else (),
        findings=(
            Finding(
                id="tune.threads",
                status=Status.UNKNOWN,
                title="threads are bound by vLLM itself",
                found=f"{cpu.logical} CPUs, {cpu.physical or 'an unknown number of'} cores",
                why="the kernel does not show which CPUs share a core",
            ),
        ),
    )


def named(tree: Tree, *rows: tuple[str, str, str]) -> tuple[Variable, ...]:
    """The rows as variables, without those that the release does not read."""
    return tuple(Variable(name=n, value=v, reason=r) for n, v, r in rows if tree.has(n))


def floating(
    facts: HostFacts, tree: Tree, cpus: tuple[int, ...], limit: int | None, *, refused: bool
) -> Threads:
    """Threads bound to no CPU, as many as the quota gives."""
    count = min(limit or len(cpus), len(cpus))
    why = (
        f"the control group gives {facts.cpu.quota:g} CPUs of {len(cpus)}: bound threads would "
        "wait on CPUs that others use, more threads would be stopped every 100 ms"
        if limit is not None
        else "this release must move pages when it binds threads, and the container refuses that"
    )
    rows = [(COUNT, str(count), f"{spoken(count)}: {why}")]
    if tree.unbound:
        rows.insert(0, (BIND, tree.unbound, why))
    variables = tuple(
        Variable(name=n, value=v, reason=r) for n, v, r in rows if n == COUNT or tree.has(n)
    )
    status = Status.WARN if refused or not tree.unbound else Status.OK
    return Threads(
        ranks=(cpus,),
        count=count,
        bound=False,
        reserved=0,
        variables=variables,
        findings=(
            Finding(
                id="tune.threads",
                status=status,
                title=f"{spoken(count)}, bound to no CPU",
                found=why,
                why="" if tree.unbound else "this release has no word for unbound threads",
            ),
        ),
    )


def bound(
    facts: HostFacts,
    tree: Tree,
    lists: tuple[tuple[int, ...], ...],
    *,
    node: NumaNode | None,
    reason: str,
) -> Threads:
    """Threads on named CPUs, one list for each worker."""
    fewest = min(len(cpus) for cpus in lists)
    reserve = 0 if fewest <= FEW_CORES else 1
    kept = tuple(cpus[:-reserve] if reserve else cpus for cpus in lists)
    total = reserve * len(lists)
    text = "|".join(ranges(cpus) for cpus in kept)
    siblings = len(facts.cpu.allowed) - sum(len(cpus) for cpus in lists)
    shared = f"; {siblings} more share cores or lie elsewhere" if siblings > 0 else ""
    spare = (
        f"with {fewest} CPUs none can be spared for the front end; vLLM would leave one idle"
        if not reserve
        else f"{total} of {sum(len(c) for c in lists)} left to the front end, as vLLM itself does"
    )
    why = f"one thread on each of {' and '.join(str(len(c)) for c in kept)} cores{shared}; {reason}"
    return Threads(
        ranks=kept,
        count=len(kept[0]),
        bound=True,
        reserved=total,
        node=node,
        variables=named(tree, (BIND, text, why), (RESERVED, str(total), spare)),
        findings=(
            Finding(
                id="tune.threads",
                status=Status.OK,
                title=f"{len(kept)} worker{'s' * (len(kept) > 1)}, threads on CPUs {text}",
                found=f"{facts.cpu.logical} CPUs, {facts.cpu.physical or 'unknown'} cores, "
                f"{len(facts.cpu.allowed)} CPUs allowed, memory nodes: "
                f"{len(facts.numa) or 'unknown'}",
                why=why,
            ),
        ),
    )


def with_launcher(
    facts: HostFacts, made: Threads, home: NumaNode, environ: Mapping[str, str]
) -> Threads:
    """Keep one worker's memory on its node where vLLM's own calls are refused.

    A process that may run on one node only gets its pages there, whoever may call what.
    """
    if not denied(facts):
        return made
    cpus = ranges(tuple(c for c in home.cpus if c in facts.cpu.allowed))
    path = environ.get("PATH")
    numactl, taskset = (shutil.which(n, path=path) for n in ("numactl", "taskset"))
    policy = facts.container.get_mempolicy == "ok"
    launcher: tuple[str, ...] = ()
    if numactl and policy:
        launcher = (numactl, f"--physcpubind={cpus}")
    elif taskset:
        launcher = (taskset, "--cpu-list", cpus)
    calls = ", ".join(
        f"{name}: {said}"
        for name, said in (
            ("get_mempolicy", facts.container.get_mempolicy),
            ("mbind", facts.container.mbind),
        )
        if said not in (None, "ok")
    )
    found = Finding(
        id="tune.memory_binding",
        status=Status.WARN,
        title=f"memory cannot be bound to node {home.id}",
        found=calls,
        needed="get_mempolicy and mbind",
        why=(
            f"{Path(launcher[0]).name} keeps all threads on the node's CPUs, so new pages come "
            "from it; pages that do not fit there still come from another node, without a word"
            if launcher
            else "pages can come from another node, which halves the speed of reading them; neither"
            " numactl nor taskset is here to keep the process on one node"
        ),
        remedy=("docker run --cap-add SYS_NICE --security-opt seccomp=unconfined",),
    )
    return Threads(
        ranks=made.ranks,
        count=made.count,
        bound=made.bound,
        reserved=made.reserved,
        node=home,
        variables=made.variables,
        launcher=launcher,
        findings=(*made.findings, found),
    )
