"""Judgements about the instruction set."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cpubuild.assess.base import Context, fine, state
from cpubuild.choose.levels import (
    UNKNOWN,
    flags_known,
    lacks_avx512_library,
    least,
    level_words,
    supported,
)
from cpubuild.choose.tables import needs_table
from cpubuild.errors import ExitCode
from cpubuild.facts.isa import NOT_SUPPORTED, isa_of, x86_reason, x86_target
from cpubuild.facts.model import Cpu
from cpubuild.findings import Finding, Status

GUEST_REMEDY = (
    "set the guest's CPU type to host (Proxmox: qm set ID --cpu host; libvirt: "
    "<cpu mode='host-passthrough'/>; QEMU: -cpu host) and start the guest again"
)


def virtual(cpu: Cpu) -> bool:
    """Whether the CPU is a guest's."""
    return bool(cpu.hypervisor) or "hypervisor" in cpu.flags


def level(ctx: Context) -> Iterator[Finding]:
    """What the CPU's own flags allow."""
    cpu, lowest = ctx.facts.cpu, least(ctx.facts.cpu.arch)
    if lowest is None:
        return
    needed, flags = lowest
    words = level_words(cpu)
    evidence = (f"model: {cpu.model or 'not stated'}", x86_reason(cpu))
    if words == UNKNOWN:
        yield state(
            "isa.level",
            Status.UNKNOWN,
            "the kernel shows no CPU flags",
            needed=needed,
            why="Without /proc/cpuinfo nothing can be said about the instruction set.",
            remedy=("mount /proc into this environment", "lscpu"),
            evidence=evidence,
        )
        return
    if words != NOT_SUPPORTED:
        yield fine("isa.level", words, needed=f"at least {needed}", evidence=evidence)
        return
    absent = " ".join(sorted(flags - cpu.flags))
    why = (
        f"vLLM's kernels use {needed} everywhere; without it a build is refused, or it ends with "
        "an illegal instruction (signal 4, exit status 132)."
    )
    yield state(
        "isa.level",
        Status.BLOCKER,
        f"{cpu.model or cpu.arch}{f' without {absent}' if absent else ''}",
        needed=needed,
        why=why if absent or cpu.arch != "x86_64" else f"{x86_reason(cpu).capitalize()}.",
        remedy=(GUEST_REMEDY,)
        if virtual(cpu)
        else ("another machine: no release supports this CPU",),
        evidence=evidence,
        exit_code=ExitCode.UNSUPPORTED,
    )


def bf16(ctx: Context) -> Iterator[Finding]:
    """Whether bfloat16 is done by the CPU itself."""
    cpu = ctx.facts.cpu
    if cpu.arch not in ("x86_64", "aarch64") or not supported(cpu):
        return
    if {"AVX512_BF16", "ARM_BF16", "AMX_BF16"} & isa_of(cpu):
        yield fine("isa.bf16", "yes")
        return
    yield state(
        "isa.bf16",
        Status.WARN if cpu.arch == "aarch64" else Status.OK,
        "no BF16 instructions",
        why="bfloat16 models run, converted in software: slower, and old releases lack kernels "
        "for it.",
        remedy=("vllm serve MODEL --dtype float32", "vllm serve MODEL --dtype half"),
    )


def hidden(ctx: Context) -> Iterator[Finding]:
    """Flags that a virtual machine keeps from its guest."""
    cpu = ctx.facts.cpu
    if cpu.arch != "x86_64" or not flags_known(cpu):
        return
    missing: dict[str, str] = {}
    for row in needs_table()["implied"]:
        if row["has"] in cpu.flags:
            missing |= {f: f"{row['has']} without it" for f in row["also"] if f not in cpu.flags}
    for row in needs_table()["named"]:
        if re.search(row["model"], cpu.model):
            missing |= {f: f"{row['name']} has it" for f in row["flags"] if f not in cpu.flags}
    if not missing:
        found = "a virtual machine that shows its flags" if virtual(cpu) else "no"
        yield fine("isa.hidden", found)
        return
    names = " ".join(sorted(missing))
    yield state(
        "isa.hidden",
        Status.WARN,
        f"{names} not shown",
        needed="the flags of the real CPU",
        why="The CPU can do more than the kernel shows: "
        + (
            "the virtual CPU model hides it."
            if virtual(cpu)
            else "firmware or the kernel's command line switched it off."
        ),
        remedy=(GUEST_REMEDY,)
        if virtual(cpu)
        else ("look for clearcpuid= and noxsave in /proc/cmdline, and at the firmware's settings",),
        evidence=tuple(f"{flag}: {why}" for flag, why in sorted(missing.items())),
    )


def target(ctx: Context) -> Iterator[Finding]:
    """Whether this release builds a library for this level and loads it."""
    cpu, release = ctx.facts.cpu, ctx.release
    picked = x86_target(cpu)
    if picked is None:
        return
    if lacks_avx512_library(release) and picked == "_C_AVX512":
        yield state(
            "isa.target",
            Status.BLOCKER if not ctx.needs.source else Status.WARN,
            f"{release.version} loads _C (built with BF16 and AMX) on every AVX512 CPU",
            needed="a library for AVX512 without BF16",
            why="This CPU has AVX512 without BF16: that library can end with an illegal one.",
            remedy=(
                "take 0.20.0 or newer, which has a third library for such CPUs (price: a newer "
                "torch)",
                "patch the loader to take _C_AVX2 (price: AVX2 speed)",
            ),
            exit_code=ExitCode.UNSUPPORTED,
        )
        return
    yield fine(
        "isa.target",
        picked if picked in release.targets else "_C, compiled for this host alone",
        evidence=(x86_reason(cpu),),
    )


def avx(ctx: Context) -> Iterator[Finding]:
    """Packages that need AVX beside vLLM's own kernels."""
    names = {d.name for d in ctx.around.distributions or ()}
    if ctx.facts.cpu.arch == "x86_64" and "nixl" in names:
        if flags_known(ctx.facts.cpu) and "avx" not in ctx.facts.cpu.flags:
            yield state(
                "isa.avx",
                Status.WARN,
                "nixl is installed and the CPU shows no AVX",
                why="The UCX library inside nixl is built with AVX and dies when it is imported.",
                remedy=("pip uninstall nixl", GUEST_REMEDY),
            )
        else:
            yield fine("isa.avx", "nixl is installed and the CPU has AVX")


JUDGES = (level, bf16, hidden, target, avx)
