"""Parallel jobs from memory and cores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild.choose.jobs import compile_shortfall, jobs_for, usable_cores
from cpubuild.choose.needs import Needs
from cpubuild.choose.tables import needs_table
from cpubuild.facts.model import Memory

GIB = 1 << 30


def memory(gib: float, **changes) -> Memory:
    values = {"total": 512 * GIB, "swap_total": 0, "swap_free": 0, **changes}
    return Memory(available=int(gib * GIB), **values)


@pytest.mark.parametrize(
    ("gib", "cores", "jobs"),
    [(100, 2, 2), (5, 8, 1), (6.2, 8, 2), (7.9, 8, 3), (9.8, 8, 4), (1.0, 8, 1), (100, 1, 1)],
)
def test_jobs(gib: float, cores: int, jobs: int) -> None:
    assert jobs_for(memory(gib), cores)[0] == jobs


@given(st.floats(0, 400), st.integers(1, 256), st.booleans())
def test_jobs_fit_in_memory_or_are_one(gib: float, cores: int, debug: bool) -> None:
    needs, row = Needs(debug_info=debug), needs_table()["compile"]
    jobs, reason = jobs_for(memory(gib), cores, needs)
    heavy = row["heaviest_gib"] if debug else row["heaviest_no_debug_gib"]
    assert 1 <= jobs <= cores
    assert reason
    if jobs > 1:
        assert row["reserve_gib"] + heavy + (jobs - 1) * row["other_gib"] <= gib + 1e-6
    if compile_shortfall(memory(gib), needs):
        assert jobs == 1


@given(st.floats(0, 400), st.floats(0, 100), st.integers(1, 64))
def test_more_memory_never_means_fewer_jobs(gib: float, more: float, cores: int) -> None:
    assert jobs_for(memory(gib), cores)[0] <= jobs_for(memory(gib + more), cores)[0]


def test_the_cgroup_counts_and_not_the_machine() -> None:
    caged = memory(200, limit=8 * GIB, used=2 * GIB)
    assert jobs_for(caged, 16)[0] == 1
    assert compile_shortfall(memory(200, limit=3 * GIB, used=0)) > 0


def test_without_debug_information_more_fit() -> None:
    assert jobs_for(memory(6), 8, Needs(debug_info=False))[0] > jobs_for(memory(6), 8)[0]


def test_every_target_has_its_own_heaviest_file(release) -> None:
    few = jobs_for(memory(12), 8, Needs(single_target=False), release)[0]
    assert few < jobs_for(memory(12), 8, Needs(), release)[0]


def test_what_was_asked_for_is_taken_and_the_reason_says_what_fits() -> None:
    jobs, reason = jobs_for(memory(6), 8, Needs(jobs=7))
    assert jobs == 7
    assert "asked for" in reason


@pytest.mark.parametrize(
    ("quota", "allowed", "cores"),
    [(None, (0, 1, 2), 3), (1.5, (0, 1, 2), 1), (0.5, (0, 1), 1), (16.0, (0, 1), 2), (2.0, (), 2)],
)
def test_cores_are_bounded_by_affinity_and_quota(quota, allowed, cores, host, change) -> None:
    assert usable_cores(change(host, cpu={"quota": quota, "allowed": allowed}).cpu) == cores
