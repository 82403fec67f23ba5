"""Judgements about the machine and its operating system."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from cpubuild.assess.base import Context, fine, state
from cpubuild.choose.jobs import usable_cores
from cpubuild.choose.levels import least, version_of
from cpubuild.choose.tables import needs_table
from cpubuild.errors import ExitCode
from cpubuild.findings import Finding, Status
from cpubuild.system import compilers_of

STEAL_WARN_PERCENT = 10.0
ALSO_RUNS = ("ppc64le", "s390x", "riscv64")


def system(ctx: Context) -> Iterator[Finding]:
    """The distribution, and whether its package names are known."""
    distro = ctx.facts.distro
    name = distro.pretty or distro.id or "not stated"
    if distro.family == "unknown":
        yield state(
            "host.os",
            Status.WARN,
            name,
            needed="a distribution with apt, dnf, zypper or pacman",
            why="Packages cannot be installed or named here; everything else works.",
            remedy=(
                "install a C++ compiler, libnuma with headers and git by hand, then --no-system",
            ),
        )
    elif distro.family != "apk" and not compilers_of(distro):
        yield fine("host.os", name, why="Not in the package table: the family's names are used.")
    else:
        yield fine("host.os", name)


def arch(ctx: Context) -> Iterator[Finding]:
    """The architecture, and how well releases are kept working on it."""
    cpu = ctx.facts.cpu
    if least(cpu.arch) is None:
        yield state(
            "host.arch",
            Status.BLOCKER,
            cpu.arch or "not stated",
            needed="x86_64, aarch64, ppc64le, s390x or riscv64",
            why="vLLM's CPU backend has no kernels for another architecture.",
            remedy=("another machine",),
            exit_code=ExitCode.UNSUPPORTED,
        )
    elif cpu.arch in ALSO_RUNS:
        yield state(
            "host.arch",
            Status.WARN,
            cpu.arch,
            needed="x86_64 or aarch64 for the tested path",
            why="New kernels are written for x86_64 and aarch64 first, and releases do break on "
            f"{cpu.arch}; there are no wheels, and several dependencies compile here too.",
            remedy=("take a release known to build here, or the newest (--vllm latest)",),
        )
    else:
        yield fine("host.arch", cpu.arch)


def libc(ctx: Context) -> Iterator[Finding]:
    """The C library, which torch's wheels decide about."""
    have, lowest = ctx.facts.libc, needs_table()["torch"]["glibc"]
    found = f"{have.name} {have.version}".strip()
    if have.name == "musl":
        yield state(
            "host.libc",
            Status.BLOCKER,
            found,
            needed=f"glibc {lowest} or newer",
            why="torch publishes no build for musl, so vLLM cannot run on Alpine and its like.",
            remedy=("run a glibc distribution in a container: debian:13-slim, ubuntu:24.04",),
            exit_code=ExitCode.UNSUPPORTED,
        )
        return
    version = version_of(have.version)
    if have.name == "unknown" or version is None:
        yield state("host.libc", Status.UNKNOWN, found, needed=f"glibc {lowest} or newer")
    elif version < Version(lowest):
        yield state(
            "host.libc",
            Status.BLOCKER,
            found,
            needed=f"glibc {lowest} or newer",
            why="Wheels of CPU torch are tagged manylinux_2_28; an older libc cannot load them "
            "(version GLIBC_2.xx not found).",
            remedy=("a newer distribution release, or a container with one",),
            exit_code=ExitCode.UNSUPPORTED,
        )
    else:
        yield fine("host.libc", found, needed=f"glibc {lowest}")


def cores(ctx: Context) -> Iterator[Finding]:
    """The CPUs this process may use, and what vLLM keeps back of them."""
    cpu, usable = ctx.facts.cpu, usable_cores(ctx.facts.cpu)
    found = f"{usable} of {cpu.logical} usable"
    if cpu.offline:
        found += f", {len(cpu.offline)} offline"
    physical = min(cpu.physical or usable, usable)
    if physical <= max(1, ctx.needs.tensor_parallel):
        yield state(
            "host.cores",
            Status.WARN,
            f"{found}, {physical} physical",
            needed="more cores than worker processes",
            why="vLLM keeps one core per worker out of its threads; with nothing left it stops "
            "with an AssertionError (VLLM_CPU_NUM_OF_RESERVED_CPU).",
            remedy=(
                "export VLLM_CPU_NUM_OF_RESERVED_CPU=0",
                "export VLLM_CPU_OMP_THREADS_BIND=nobind",
            ),
        )
    else:
        yield fine("host.cores", found)


def numa(ctx: Context) -> Iterator[Finding]:
    """Memory nodes, which thread binding goes by."""
    nodes = ctx.facts.numa
    if not nodes:
        yield state(
            "host.numa",
            Status.UNKNOWN,
            "the kernel shows no NUMA nodes (no /sys/devices/system/node)",
            why="lscpu then has no node column, and older releases end with KeyError: 'node'.",
            remedy=("export VLLM_CPU_OMP_THREADS_BIND=nobind",),
        )
        return
    yield fine("host.numa", f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}")


def steal(ctx: Context) -> Iterator[Finding]:
    """CPU time the hypervisor gave to others."""
    share = ctx.around.steal_percent
    if share is None:
        return
    if share >= STEAL_WARN_PERCENT:
        yield state(
            "host.steal",
            Status.WARN,
            f"{share:.0f} % of CPU time stolen since boot",
            needed=f"under {STEAL_WARN_PERCENT:.0f} %",
            why="Other guests use the cores of this machine; measurements and timeouts suffer.",
            remedy=("ask for dedicated cores, or a machine that is not oversubscribed",),
        )
    else:
        yield fine("host.steal", f"{share:.1f} %")


JUDGES = (system, arch, libc, cores, numa, steal)
