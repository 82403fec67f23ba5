"""Defects of releases, met or not on this host: ``data/known.toml`` and its conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cpubuild.assess.base import Context, state
from cpubuild.assess.surroundings import split_preload
from cpubuild.choose.levels import among, flags_known, version_of
from cpubuild.choose.tables import gib, table
from cpubuild.errors import ExitCode
from cpubuild.findings import Finding, Status

Condition = Callable[[Context], bool]


def torch_is(ctx: Context, minor: str) -> bool:
    """Whether the pinned torch, or an installed one, is of this minor version."""
    installed = [d.version for d in ctx.around.distributions or () if d.name == "torch"]
    versions = (version_of(text) for text in (ctx.release.torch, *installed))
    return any(v is not None and f"{v.major}.{v.minor}" == minor for v in versions)


def tcmalloc_preloaded(ctx: Context) -> bool:
    """Whether LD_PRELOAD names tcmalloc."""
    return any("tcmalloc" in entry for entry in split_preload(ctx.env("LD_PRELOAD") or ""))


CONDITIONS: dict[str, Condition] = {
    "no_avx512": lambda c: flags_known(c.facts.cpu) and "avx512f" not in c.facts.cpu.flags,
    "no_arm_bf16": lambda c: flags_known(c.facts.cpu) and "bf16" not in c.facts.cpu.flags,
    "torch_2_10": lambda c: torch_is(c, "2.10"),
    "torch_2_9": lambda c: torch_is(c, "2.9"),
    "tcmalloc_not_preloaded": lambda c: not tcmalloc_preloaded(c),
    "numa_calls_denied": lambda c: any(
        answer not in (None, "ok")
        for answer in (c.facts.container.get_mempolicy, c.facts.container.mbind)
    ),
    "gpu_present": lambda c: bool(c.around.accelerators),
    "memory_below_10g": lambda c: c.facts.memory.total < gib(10),
    "kv_space_unset": lambda c: c.env("VLLM_CPU_KVCACHE_SPACE") is None,
    "target_device_unset": lambda c: c.env("VLLM_TARGET_DEVICE") is None,
    "setuptools_rust": lambda c: c.release.setuptools_rust,
}


def holds(ctx: Context, row: dict[str, Any]) -> bool:
    """Whether a row is about this release, this architecture and this host."""
    return (
        among(ctx.release.version, row["versions"])
        and (not row["arch"] or ctx.facts.cpu.arch in row["arch"])
        and all(CONDITIONS[name](ctx) for name in row["when"])
    )


def issues(ctx: Context) -> Iterator[Finding]:
    """The rows that hold; those this tool takes care of come out well."""
    for row in table("known.toml")["issue"]:
        if holds(ctx, row):
            handled = "taken care of" if row["status"] == "ok" else f"vLLM {ctx.release.version}"
            yield state(
                row["id"],
                Status(row["status"]),
                handled,
                why=row["why"],
                remedy=tuple(row["remedy"]),
                exit_code=ExitCode.UNSUPPORTED,
            )


def refusal(ctx: Context) -> Iterator[Finding]:
    """What the release's own CMake file says when it stops on every CPU of this architecture."""
    if ctx.release.arch_refusal is not None:
        yield state(
            "release.arch",
            Status.BLOCKER,
            f"vLLM {ctx.release.version} stops on {ctx.facts.cpu.arch}",
            why=ctx.release.arch_refusal,
            remedy=("--vllm latest",),
            exit_code=ExitCode.UNSUPPORTED,
        )


JUDGES = (refusal, issues)
