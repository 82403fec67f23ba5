"""A quick look at speed: one large copy, one small matrix product; under half a second in all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from cpubuild.assess.base import fine, state
from cpubuild.choose.jobs import usable_cores
from cpubuild.choose.tables import MIB, needs_table
from cpubuild.facts.model import Cpu
from cpubuild.findings import Finding, Status

COPY_SECONDS = 0.12
MATMUL_SECONDS = 0.12
Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """``copy_gb`` in GB/s, read and written, of one thread; ``gflops`` of all threads together.

    ``gflops`` is None when numpy is not there; ``load`` is the load average of the last minute.
    """

    copy_gb: float
    gflops: float | None
    load: float | None


def look(clock: Clock = time.perf_counter) -> Speed:
    """Measure; takes about a quarter of a second and 64 MiB of memory."""
    row = needs_table()["speed"]
    copied = best_rate(copier(row["copy_mib"] * MIB), COPY_SECONDS, clock)
    size = row["matmul_size"]
    product = multiplier(size)
    done = best_rate(product, MATMUL_SECONDS, clock) if product else None
    return Speed(
        copy_gb=2 * row["copy_mib"] * MIB * copied / 1e9,
        gflops=2 * size**3 * done / 1e9 if done else None,
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    )


def best_rate(work: Callable[[], object], seconds: float, clock: Clock) -> float:
    """How often a second ``work`` can be done, by its best run within ``seconds``, two at least."""
    end, best, runs = clock() + seconds, float("inf"), 0
    while runs < 2 or clock() < end:
        started = clock()
        work()
        best, runs = min(best, clock() - started), runs + 1
    return 1.0 / max(best, 1e-9)


def copier(size: int) -> Callable[[], object]:
    """Work that copies ``size`` bytes into memory that is there already."""
    source, target = bytearray(size), memoryview(bytearray(size))

    def copy() -> None:
        target[:] = source

    return copy


def multiplier(size: int) -> Callable[[], object] | None:
    """Work that multiplies two float32 matrices; None without numpy."""
    if find_spec("numpy") is None:
        return None
    numpy = import_module("numpy")
    left = numpy.full((size, size), 0.5, dtype=numpy.float32)
    return lambda: left @ left


def judge(speed: Speed, cpu: Cpu) -> tuple[Finding, ...]:
    """The findings of a look at speed: slow means far below any CPU of this kind."""
    return (judge_copy(speed), judge_product(speed, cpu))


def judge_copy(speed: Speed) -> Finding:
    """Memory bandwidth."""
    least = needs_table()["speed"]["copy_least_gb"]
    found, evidence = f"{speed.copy_gb:.1f} GB/s copied by one thread", load_words(speed)
    if speed.copy_gb < least:
        return slow("host.bandwidth", found, f"{least} GB/s or more", evidence)
    return fine("host.bandwidth", found, evidence=evidence)


def judge_product(speed: Speed, cpu: Cpu) -> Finding:
    """Arithmetic."""
    rows = needs_table()["speed"]["matmul_least_gflops"]
    key = "x86_64_avx512" if "avx512f" in cpu.flags else cpu.arch
    if speed.gflops is None:
        why = "numpy is not in the environment of this tool, so no product was measured."
        return state("host.matmul", Status.UNKNOWN, "numpy is absent", why=why)
    cores = usable_cores(cpu)
    each = speed.gflops / cores
    found = f"{speed.gflops:.0f} GFLOP/s on {cores} CPUs"
    if key in rows and each < rows[key]:
        return slow("host.matmul", found, f"{rows[key]:g} per CPU or more", load_words(speed))
    return fine("host.matmul", found, evidence=load_words(speed))


def load_words(speed: Speed) -> tuple[str, ...]:
    """What else ran."""
    return () if speed.load is None else (f"load average {speed.load:.1f}",)


def slow(check: str, found: str, needed: str, evidence: tuple[str, ...]) -> Finding:
    """A warning that names what slows a machine like this."""
    return state(
        check,
        Status.WARN,
        found,
        needed=needed,
        why="Far below what such a CPU gives: it is throttled, oversubscribed, or busy right now.",
        remedy=(
            "look for other load: top, and steal time in vmstat 1",
            "look at the CPU quota, the governor (cpupower frequency-info) and the temperature",
        ),
        evidence=evidence,
    )
