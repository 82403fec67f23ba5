"""Instruction sets from raw cpuinfo words, and the kernel library vLLM's loader picks for them.

Only raw words count. Libraries that name a microarchitecture fall back to an older one where a
hypervisor hides a single flag, and lose BF16 and AMX with it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, cast

from cpubuild.facts.model import Cpu

X86Target = Literal["_C", "_C_AVX512", "_C_AVX2"]
NOT_SUPPORTED = "not supported"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Isa:
    arch: str
    name: str
    needs: frozenset[str]
    any: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Level:
    arch: str
    words: str
    target: str | None
    isa: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Target:
    name: X86Target
    picked_by: frozenset[str]
    needs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Table:
    isa: tuple[_Isa, ...]
    levels: tuple[_Level, ...]
    targets: tuple[_Target, ...]


@cache
def _table() -> _Table:
    data = tomllib.loads(files("cpubuild").joinpath("data/isa.toml").read_text("utf-8"))
    return _Table(
        isa=tuple(
            _Isa(
                arch=row["arch"],
                name=row["name"],
                needs=frozenset(row.get("needs", ())),
                any=frozenset(row.get("any", ())),
            )
            for row in data["isa"]
        ),
        levels=tuple(
            _Level(
                arch=row["arch"],
                words=row["words"],
                target=row.get("target"),
                isa=frozenset(row["isa"]),
            )
            for row in data["level"]
        ),
        targets=tuple(
            _Target(
                name=cast(X86Target, row["name"]),
                picked_by=frozenset(row["picked_by"]),
                needs=tuple(row["needs"]),
            )
            for row in data["x86_target"]
        ),
    )


def isa_of(cpu: Cpu) -> frozenset[str]:
    """Return the names of data/isa.toml that this processor's flags fulfil."""
    return frozenset(
        row.name
        for row in _table().isa
        if row.arch == cpu.arch and row.needs <= cpu.flags and (not row.any or row.any & cpu.flags)
    )


def x86_target(cpu: Cpu) -> X86Target | None:
    """Return the library that vLLM's loader imports here; None when it cannot run on this CPU."""
    return _decide(cpu)[0]


def x86_reason(cpu: Cpu) -> str:
    """Say in one sentence why ``x86_target`` is what it is."""
    return _decide(cpu)[1]


def level(cpu: Cpu) -> str:
    """Say in words what this processor can run, "not supported" when it can run nothing."""
    target, isa = x86_target(cpu), isa_of(cpu)
    for row in _table().levels:
        if row.arch == cpu.arch and row.isa <= isa and row.target in (None, target):
            return row.words
    return NOT_SUPPORTED


def _decide(cpu: Cpu) -> tuple[X86Target | None, str]:
    if cpu.arch != "x86_64":
        return None, f"{cpu.arch} has one kernel library, the choice exists on x86_64 only"
    if not cpu.flags:
        return None, "the processor's flags are unknown: /proc/cpuinfo shows none"
    row = next(row for row in _table().targets if row.picked_by <= cpu.flags)
    missing = [word for word in row.needs if word not in cpu.flags]
    seen = _seen(row)
    if not missing:
        return row.name, f"{seen}, so vLLM loads {row.name}{_amx(cpu, row)}"
    hidden = " (a hypervisor may hide what the processor has)" if cpu.hypervisor else ""
    return None, (
        f"{seen}, so vLLM loads {row.name}, which needs {', '.join(missing)}: "
        f"it would stop with an illegal instruction{hidden}"
    )


def _seen(row: _Target) -> str:
    if not row.picked_by:
        return "the flags do not show avx512f"
    if len(row.picked_by) == 1:
        return "the flags show avx512f but not avx512_bf16"
    return "the flags show avx512f and avx512_bf16"


def _amx(cpu: Cpu, row: _Target) -> str:
    if row.name != "_C":
        return ""
    if {"amx_tile", "amx_bf16"} <= cpu.flags:
        return "; AMX is used by it but does not decide"
    return "; AMX is absent, which does not decide"
