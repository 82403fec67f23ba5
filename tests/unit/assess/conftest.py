"""Hosts made of thin air: one that suits 0.32.0, and ways to change it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from packaging.version import Version

from cpubuild.facts.model import (
    Compiler,
    Container,
    Cpu,
    Disk,
    Distro,
    HostFacts,
    Interpreter,
    Libc,
    Libraries,
    Memory,
    NumaNode,
    Tool,
)
from cpubuild.release import Release, known_release, known_versions

GIB = 1 << 30
X86_OPTIONS = ("-mavx512bf16", "-mavx512vnni", "-mamx-tile", "-mamx-bf16")
ARM_OPTIONS = (
    "-march=armv8.2-a+dotprod+fp16",
    "-march=armv8.2-a+bf16+dotprod+fp16",
    "-march=armv8.2-a+bf16+dotprod+fp16+i8mm",
)
AMX_WORDS = (
    "avx avx2 f16c fma avx512f avx512bw avx512dq avx512vl avx512_bf16 avx512_vnni "
    "amx_tile amx_bf16 amx_int8"
)
TOOLS = ("git", "cmake", "ninja", "ccache", "lscpu")


def gxx(version: str = "14.2.0", path: str = "/usr/bin/g++", **changes: Any) -> Compiler:
    options = tuple((option, True) for option in (*X86_OPTIONS, *ARM_OPTIONS))
    made = Compiler(
        path=path,
        cc=path.replace("g++", "gcc"),
        kind="gnu",
        version=version,
        works=True,
        cxx20=True,
        options=options,
    )
    return replace(made, **changes)


def good_host() -> HostFacts:
    return HostFacts(
        cpu=Cpu(
            arch="x86_64",
            vendor="GenuineIntel",
            model="Intel(R) Xeon(R) Processor",
            flags=frozenset(AMX_WORDS.split()),
            logical=8,
            physical=8,
            allowed=tuple(range(8)),
        ),
        memory=Memory(total=64 * GIB, available=60 * GIB, swap_total=0, swap_free=0),
        numa=(NumaNode(id=0, cpus=tuple(range(8)), memory_total=64 * GIB),),
        disks=tuple(
            Disk(
                path=f"/{purpose}",
                purpose=purpose,
                free=100 * GIB,
                free_inodes=10_000_000,
                filesystem="ext4",
                writable=True,
            )
            for purpose in ("state", "tmp", "cache")
        ),
        distro=Distro(
            id="debian",
            version="13",
            codename="trixie",
            pretty="Debian GNU/Linux 13 (trixie)",
            family="apt",
        ),
        libc=Libc(name="glibc", version="2.41"),
        kernel="6.12",
        compilers=(gxx(),),
        tools=tuple(Tool(name=n, path=f"/usr/bin/{n}", version="4.0.0") for n in TOOLS),
        interpreters=(
            Interpreter(
                path="/usr/bin/python3.13",
                version="3.13.5",
                implementation="CPython",
                headers=True,
                venv=True,
            ),
        ),
        libraries=Libraries(
            numa_header=True,
            numa_link=True,
            numa_runtime="/usr/lib/libnuma.so.1",
            tcmalloc="/usr/lib/libtcmalloc_minimal.so.4",
            libiomp=None,
            libgomp="/usr/lib/libgomp.so.1",
        ),
        container=Container(
            kind="none",
            get_mempolicy="ok",
            mbind="ok",
            shm=32 * GIB,
            root=False,
            can_install=True,
            loopback=(("127.0.0.1", "ok"), ("::1", "ok")),
        ),
        environment=(),
    )


@pytest.fixture
def host() -> HostFacts:
    """A host that 0.32.0 suits: Debian 13, AMX, 64 GiB."""
    return good_host()


@pytest.fixture
def change() -> Callable[..., HostFacts]:
    """``change(host, cpu={...}, libc={...}, compilers=(...))``: parts by dict, the rest whole."""

    def apply(facts: HostFacts, **parts: Any) -> HostFacts:
        made = {
            name: replace(getattr(facts, name), **value) if isinstance(value, dict) else value
            for name, value in parts.items()
            if name != "environment"
        }
        if "environment" in parts:
            made["environment"] = tuple(parts["environment"].items())
        return replace(facts, **made)

    return apply


@pytest.fixture
def make_gxx() -> Callable[..., Compiler]:
    """Make a g++ that passes every probe unless told otherwise."""
    return gxx


@pytest.fixture
def release() -> Release:
    """0.32.0 on x86_64."""
    found = known_release("0.32.0", "x86_64")
    assert found is not None
    return found


@pytest.fixture
def known() -> Callable[[str, str], Release]:
    """A recorded release, made up from the nearest recorded one where the version is not."""

    def find(version: str, arch: str = "x86_64") -> Release:
        wanted = Version(version)
        older = [v for v in known_versions() if Version(v) <= wanted]
        nearest = older[-1] if older else known_versions()[0]
        recorded = known_release(nearest, arch) or known_release(nearest, "x86_64")
        assert recorded is not None
        targets = recorded.targets if arch == "x86_64" else ("_C",)
        return replace(recorded, version=version, arch=arch, targets=targets)

    return find
