"""Time a fixed workload on an engine, and tell how much of the CPUs others used meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Prompts of PROMPT tokens (bytes) that no two runs share, so that nothing is cached.
RUNS = 5
BATCH = 8
PROMPT = 384
GENERATED = 12


def stat_fields(path: Path) -> list[str]:
    """The fields of a file of /proc after a name in parentheses or the first word."""
    line = path.read_text(encoding="utf-8", errors="replace").splitlines()[0]
    return line[line.rfind(")") + 1 :].split() if ")" in line else line.split()[1:]


def busy_seconds() -> float:
    """CPU seconds this machine has spent on anything, a hypervisor's share included."""
    numbers = [int(n) for n in stat_fields(Path("/proc/stat"))[:8]]
    return (sum(numbers) - numbers[3] - numbers[4]) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """CPU seconds of this process and everything below it."""
    parents, spent = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = stat_fields(entry / "stat")
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(int(n) for n in fields[11:15])
        except (OSError, IndexError, ValueError):
            continue
    family = {os.getpid()}
    while more := {p for p, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(spent.get(p, 0) for p in family) / os.sysconf("SC_CLK_TCK")


def accounts() -> tuple[float, float, float] | None:
    """(time, CPU seconds of the machine, CPU seconds of ours); None where /proc does not say."""
    try:
        return time.monotonic(), busy_seconds(), own_seconds()
    except (OSError, ValueError, IndexError):
        return None


def workload(run: int) -> list[dict[str, Any]]:
    """The prompts of one run: each its own tokens from the first on."""
    return [
        {
            "ids": [(5 * (BATCH * run + row) + 7 * i + i * i // 5) % 256 for i in range(PROMPT)],
            "tokens": [0] * GENERATED,
        }
        for row in range(BATCH)
    ]


def speed(ask: Callable[[list[dict[str, Any]]], Any]) -> dict[str, Any]:
    """Seconds of each timed run of the workload, after one that does not count."""
    ask(workload(0))
    before = accounts()
    runs = []
    for run in range(1, RUNS + 1):
        prompts = workload(run)
        started = time.monotonic()
        ask(prompts)
        runs.append(round(time.monotonic() - started, 4))
    after = accounts()
    others = None
    if before is not None and after is not None:
        took, machine, ours = (b - a for a, b in zip(before, after, strict=True))
        others = round(max(0.0, machine - ours) / took, 3)
    return {
        "tokens": BATCH * (PROMPT + GENERATED),
        "runs": runs,
        "cpus": len(os.sched_getaffinity(0)),
        "others": others,
    }
