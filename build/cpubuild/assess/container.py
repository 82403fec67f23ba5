"""Judgements about what surrounds the process."""

from __future__ import annotations

from collections.abc import Iterator

from cpubuild.assess.base import Context, fine, state
from cpubuild.choose.jobs import usable_cores
from cpubuild.choose.levels import among
from cpubuild.choose.tables import MIB, needs_table, words
from cpubuild.findings import Finding, Status
from cpubuild.system import absent, install_command, missing_packages, names_for, one_line

CAGES = ("docker", "podman", "kubernetes", "lxc")
SECCOMP_REMEDY = {
    "kubernetes": (
        'securityContext: {capabilities: {add: ["SYS_NICE"]}, seccompProfile: {type: Unconfined}}',
    ),
    "lxc": ("lxc.seccomp.profile =   # in the container's configuration",),
}
DOCKER_SECCOMP = ("docker run --cap-add SYS_NICE --security-opt seccomp=unconfined",)
SHM_REMEDY = {
    "kubernetes": (
        'volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: "4Gi"}}] at /dev/shm',
    ),
}
DOCKER_SHM = ("docker run --shm-size=4g", "docker run --ipc=host")
CPUS_REMEDY = {
    "kubernetes": "resources: whole CPUs, requests equal to limits, on a node whose CPU manager "
    "is static: they are then given as a cpuset, not as a quota",
    "lxc": "lxc.cgroup2.cpuset.cpus instead of a quota, in the container's configuration",
    "none": "systemd: AllowedCPUs= instead of CPUQuota=",
}
DOCKER_CPUS = "docker run --cpuset-cpus instead of --cpus"
REMOUNT = ("mount -o remount,size=4G /dev/shm",)


def seccomp(ctx: Context) -> Iterator[Finding]:
    """Whether the NUMA system calls work, by calling them."""
    around = ctx.facts.container
    calls = {"get_mempolicy": around.get_mempolicy, "mbind": around.mbind}
    evidence = tuple(f"{name}: {answer or 'not tried'}" for name, answer in calls.items())
    denied = [f"{name}: {answer}" for name, answer in calls.items() if answer not in (None, "ok")]
    if denied:
        old = among(ctx.release.version, "<0.9")
        no_kernel_support = all("ENOSYS" in entry for entry in denied)
        yield state(
            "container.seccomp",
            Status.WARN,
            ", ".join(denied),
            needed="get_mempolicy and mbind",
            why="Memory cannot be bound to NUMA nodes (get_mempolicy: Operation not permitted): "
            "slower on several nodes, harmless on one."
            + (" Releases before 0.9 stop: numa_migrate_pages failed." if old else ""),
            remedy=("a kernel with CONFIG_NUMA; harmless on one node",)
            if no_kernel_support
            else SECCOMP_REMEDY.get(around.kind, DOCKER_SECCOMP),
            evidence=evidence,
        )
    elif None in calls.values():
        yield state("container.seccomp", Status.UNKNOWN, "not tried", evidence=evidence)
    else:
        yield fine("container.seccomp", "get_mempolicy and mbind work", evidence=evidence)


def shm(ctx: Context) -> Iterator[Finding]:
    """The size of /dev/shm, where worker processes exchange data."""
    size, least = ctx.facts.container.shm, needs_table()["shm"]["least_mib"] * MIB
    if size is None:
        yield state(
            "container.shm",
            Status.UNKNOWN,
            "no /dev/shm, or not measured",
            needed=words(least),
            remedy=("mount -t tmpfs tmpfs /dev/shm",),
        )
    elif size < least:
        kind = ctx.facts.container.kind
        remedy = SHM_REMEDY.get(kind, DOCKER_SHM if kind in CAGES else REMOUNT)
        yield state(
            "container.shm",
            Status.WARN,
            words(size),
            needed=words(least),
            why="Workers share a ring of about 240 MiB there; without room they die under load "
            "(EngineDeadError, SIGBUS, exit status 135).",
            remedy=remedy,
        )
    else:
        yield fine("container.shm", words(size), needed=words(least))


def cgroup(ctx: Context) -> Iterator[Finding]:
    """Limits of CPUs and memory that programs do not see by themselves."""
    cpu, memory = ctx.facts.cpu, ctx.facts.memory
    limits: list[str] = []
    if memory.limit is not None and memory.limit < memory.total:
        limits.append(f"memory {words(memory.limit)} of {words(memory.total)}")
    if cpu.quota is not None:
        limits.append(f"{cpu.quota:g} CPUs of bandwidth")
    if len(cpu.allowed) < cpu.logical:
        limits.append(f"{len(cpu.allowed)} of {cpu.logical} CPUs")
    version = f" (cgroup v{memory.cgroup_version})" if memory.cgroup_version else ""
    if not limits:
        yield fine("container.cgroup", f"no limits{version}")
        return
    threads_too_many = cpu.quota is not None and usable_cores(cpu) < len(cpu.allowed)
    if threads_too_many:
        count = usable_cores(cpu)
        yield state(
            "container.cgroup",
            Status.WARN,
            f"{', '.join(limits)}{version}",
            why="vLLM starts a thread for every allowed core, and a quota throttles them all; jobs "
            "and memory here are counted within the limits.",
            remedy=(
                f"export VLLM_CPU_OMP_THREADS_BIND={cpu_list(cpu.allowed[:count])}",
                CPUS_REMEDY.get(ctx.facts.container.kind, DOCKER_CPUS),
            ),
        )
    else:
        yield fine("container.cgroup", f"{', '.join(limits)}{version}; counted with")


def cpu_list(cpus: tuple[int, ...]) -> str:
    """CPU numbers as ranges: 0-3,8."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][1] + 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in parts)


def wsl(ctx: Context) -> Iterator[Finding]:
    """The Windows subsystem gives half of the memory unless told."""
    if ctx.facts.container.kind == "wsl2":
        yield fine(
            "container.wsl",
            f"WSL2 with {words(ctx.facts.memory.total)}",
            why="It gets half of Windows' memory unless .wslconfig says otherwise.",
        )


def lscpu(ctx: Context) -> Iterator[Finding]:
    """Vllm reads the topology from lscpu."""
    if ctx.facts.tool("lscpu") is not None:
        yield fine("container.lscpu", "there")
        return
    looked = absent(ctx.facts, "lscpu")
    names = names_for(ctx.facts.distro, "lscpu")
    line = one_line(install_command(ctx.facts.distro, names, root=ctx.facts.container.root))
    yield state(
        "container.lscpu",
        Status.WARN if looked else Status.UNKNOWN,
        "no lscpu (util-linux)" if looked else "not looked for",
        why="vLLM asks lscpu for the cores of each NUMA node and stops without it.",
        remedy=tuple(filter(None, (line, "export VLLM_CPU_OMP_THREADS_BIND=nobind"))),
    )


def can_install(ctx: Context) -> Iterator[Finding]:
    """Whether missing packages could be installed from here."""
    missing = [p for p in missing_packages(ctx.facts, ctx.release) if p.required]
    if not missing:
        yield fine("container.can_install", "nothing is missing")
        return
    names = " ".join(dict.fromkeys(name for p in missing for name in p.names))
    commands = install_command(ctx.facts.distro, missing, root=ctx.facts.container.root)
    if ctx.facts.container.can_install:
        yield fine("container.can_install", f"{names} can be installed with --fix")
        return
    yield state(
        "container.can_install",
        Status.WARN,
        f"{names} missing, and this user cannot install packages",
        needed="root, or sudo without a password",
        why="Someone with the right has to run the command.",
        remedy=tuple(filter(None, (one_line(commands),))),
        evidence=tuple(f"{' '.join(p.names)}: {p.reason}" for p in missing),
    )


JUDGES = (seccomp, shm, cgroup, wsl, lscpu, can_install)
