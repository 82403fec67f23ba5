"""How many compilers may run at once, from the cores and the memory that are really there."""

from __future__ import annotations

import math

from cpubuild.choose.needs import Needs
from cpubuild.choose.tables import gib, needs_table, words
from cpubuild.facts.model import Cpu, Memory
from cpubuild.release import Release


def usable_cores(cpu: Cpu) -> int:
    """CPUs this process may use at once: its affinity, bounded by the cgroup's quota."""
    allowed = len(cpu.allowed) or cpu.logical or 1
    if cpu.quota is None:
        return allowed
    return max(1, min(allowed, math.floor(cpu.quota + 0.01)))


def copies(needs: Needs, release: Release | None) -> int:
    """How many times the heaviest file is compiled."""
    if needs.single_target or release is None:
        return 1
    return max(1, len(release.targets))


def one_job_bytes(needs: Needs) -> int:
    """Bytes that a compile with a single job needs at its peak."""
    row = needs_table()["compile"]
    each = row["heaviest_gib"] if needs.debug_info else row["heaviest_no_debug_gib"]
    return gib(each + row["reserve_gib"])


def jobs_for(
    memory: Memory, cores: int, needs: Needs | None = None, release: Release | None = None
) -> tuple[int, str]:
    """The number of parallel compile jobs, at least 1, and the reason in a sentence.

    The heaviest file (once for each target) must fit beside as many ordinary ones as there are
    other jobs. Swap is not counted: a compiler that swaps is slower than one job fewer.
    """
    needs = needs or Needs()
    row = needs_table()["compile"]
    usable = memory.usable
    spare = usable - gib(row["reserve_gib"])
    heavy = one_job_bytes(needs) - gib(row["reserve_gib"])
    fitting = 0
    for jobs in range(1, max(1, cores) + 1):
        heavies = min(jobs, copies(needs, release))
        if heavies * heavy + (jobs - heavies) * gib(row["other_gib"]) > spare:
            break
        fitting = jobs
    asked = needs.jobs
    have = f"{words(usable)} of memory and {cores} core{'s' if cores != 1 else ''}"
    if fitting == 0:
        return 1, f"{have}: less than the {words(one_job_bytes(needs))} of one job"
    if asked is not None:
        return max(1, asked), f"asked for; {have} would bear {fitting}"
    if fitting < cores:
        return fitting, f"{have}: memory bears {fitting} (heaviest file {words(heavy)})"
    return fitting, f"{have}: one job per core"


def compile_shortfall(memory: Memory, needs: Needs | None = None) -> int:
    """Bytes missing for even one compile job, 0 when it fits."""
    return max(0, one_job_bytes(needs or Needs()) - memory.usable)
