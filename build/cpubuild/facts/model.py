"""The facts about a host, as frozen data; ``None`` always means unknown, never absent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Arch = Literal["x86_64", "aarch64", "ppc64le", "s390x", "riscv64"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cpu:
    """The processor as the kernel shows it.

    ``flags`` are the raw words of /proc/cpuinfo (``flags`` on x86, ``Features`` on ARM).
    ``logical`` counts the CPUs online, ``physical`` the cores behind them, ``allowed`` the CPU
    numbers this process may use, ``quota`` the cgroup's CPU bandwidth in CPUs (None: no limit).
    ``hypervisor`` names what a virtual machine runs under ("unnamed" if it does not say), None when
    no sign of one is seen. ``siblings`` are the CPUs online of each core that the kernel's topology
    shows; empty: it shows none.
    """

    arch: str
    vendor: str
    model: str
    flags: frozenset[str]
    logical: int
    physical: int | None
    allowed: tuple[int, ...]
    offline: tuple[int, ...] = ()
    quota: float | None = None
    hypervisor: str | None = None
    siblings: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NumaNode:
    """One NUMA node: CPU numbers, memory in bytes and what of it is free or file cache."""

    id: int
    cpus: tuple[int, ...]
    memory_total: int | None = None
    memory_available: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Memory in bytes. ``limit`` and ``used`` are the cgroup's, None when it sets none.

    ``limit`` is the smallest on the way up; ``used`` is what of it cannot be had any more (file
    cache can, a fuller group above takes away).
    """

    total: int
    available: int
    swap_total: int
    swap_free: int
    cgroup_version: int | None = None
    limit: int | None = None
    used: int | None = None

    @property
    def usable(self) -> int:
        """Bytes this process can still take before the kernel or the cgroup stops it."""
        if self.limit is None:
            return self.available
        return max(0, min(self.available, self.limit - (self.used or 0)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """Free space, in bytes, of the filesystem that holds ``path`` (what exists of it)."""

    path: str
    purpose: str
    free: int
    free_inodes: int | None
    filesystem: str
    writable: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Distro:
    """The distribution, as os-release says it; ``family`` keys the package table."""

    id: str
    version: str
    codename: str
    pretty: str
    family: Literal["apt", "dnf", "zypper", "pacman", "apk", "unknown"]
    like: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Libc:
    """The C library: ``glibc`` or ``musl`` and its version."""

    name: Literal["glibc", "musl", "unknown"]
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiler:
    """One C++ compiler and what probe compiles showed of it.

    ``options`` maps a compiler option (``-mamx-bf16``) to whether an intrinsic or an empty file
    compiled with it; ``cxx20`` whether ``<concepts>`` works; ``failure`` is the first error line
    of a compiler that cannot compile anything.
    """

    path: str
    cc: str | None
    kind: Literal["gnu", "clang", "unknown"]
    version: str
    target: str = ""
    works: bool = False
    cxx20: bool = False
    options: tuple[tuple[str, bool], ...] = ()
    failure: str = ""

    def accepts(self, option: str) -> bool | None:
        """Whether the probe compiled with ``option``; None when it was not tried."""
        return dict(self.options).get(option)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A program on PATH: ``path`` is None when there is none, ``version`` when it does not say."""

    name: str
    path: str | None
    version: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Interpreter:
    """One Python: ``path`` is resolved; ``headers``: has Python.h, ``venv``: has ensurepip.

    ``asked`` is the wish (a path, a name) that led to it; None where none did.
    """

    path: str
    version: str
    implementation: str
    headers: bool
    venv: bool
    free_threaded: bool = False
    asked: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Libraries:
    """Libraries by their real test: the header by a compile, the run-time object by a search.

    Paths are absolute, by soname, None when not found; ``numa_header`` None: it was not tried.
    """

    numa_header: bool | None
    numa_link: bool | None
    numa_runtime: str | None
    tcmalloc: str | None
    libiomp: str | None
    libgomp: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """What surrounds the process: ``kind`` is docker, podman, lxc, kubernetes, wsl2, vm or none.

    ``get_mempolicy`` and ``mbind`` say whether the call works ("ok"), else the errno name.
    ``shm`` is the size of /dev/shm in bytes. ``loopback`` pairs each loopback address with "ok"
    or with why no connection to it came about; empty when that was not tried.
    """

    kind: str
    get_mempolicy: str | None
    mbind: str | None
    shm: int | None
    root: bool
    can_install: bool
    loopback: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """Whether a source answered: ``url`` or name, ``ok``, seconds it took, why not."""

    name: str
    ok: bool
    seconds: float
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """Everything observed about a host; built by ``facts.collect.collect``."""

    cpu: Cpu
    memory: Memory
    numa: tuple[NumaNode, ...]
    disks: tuple[Disk, ...]
    distro: Distro
    libc: Libc
    kernel: str
    compilers: tuple[Compiler, ...]
    tools: tuple[Tool, ...]
    interpreters: tuple[Interpreter, ...]
    libraries: Libraries
    container: Container
    environment: tuple[tuple[str, str], ...] = ()
    reach: tuple[Reach, ...] = ()

    def node(self, cpus: Iterable[int] = ()) -> NumaNode | None:
        """The memory node that a worker on ``cpus`` (none: on any) looks at: its first CPU's."""
        first = min(cpus, default=min(self.cpu.allowed, default=None))
        return next((node for node in self.numa if first in node.cpus), None)

    def room(self, cpus: Iterable[int] = ()) -> int:
        """Bytes that one worker on ``cpus`` can take, as vLLM itself counts them.

        In a virtual machine a node can hold less than the host says it has.
        """
        node = self.node(cpus)
        if node is None or node.memory_available is None:
            return self.memory.usable
        return min(self.memory.usable, node.memory_available)

    def tool(self, name: str) -> Tool | None:
        """The program called ``name`` if it is on PATH."""
        return next((t for t in self.tools if t.name == name and t.path), None)
