"""Threads on recorded hosts: which CPUs, how many, what is left to others, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild.assess.environment import parse_cpus
from cpubuild.facts.collect import replay
from cpubuild.facts.model import NumaNode
from cpubuild.findings import Status
from cpubuild.tune import threads
from cpubuild.tune.tree import Tree, read_tree

GIB = 1 << 30
ANY = Tree(site=None, unbound="nobind")


def decide(facts, tree=ANY, *, ranks=1, environ=None):
    return threads.decide(facts, tree, ranks=ranks, reason="a reason", environ=environ or {})


def values(placed):
    return {v.name: v.value for v in placed.variables}


@pytest.mark.parametrize(
    ("host", "bind", "reserved"),
    [
        ("amx-bf16--sapphire-rapids-vm", "0-1", "0"),  # two cores: both compute
        ("neon-bf16-i8mm--graviton3", "0-3", "0"),
        ("avx2--lxc-cpuset", "4-7", "0"),  # the numbers of the container's cpuset
        ("avx512--skylake-avx512", "0-3", "0"),
        ("vsx--power9", "0-3", "0"),  # four of eight siblings
        ("rvv--spacemit-x60", "0-6", "1"),  # the last is left to the front end
    ],
)
def test_recorded_hosts(make_host, host, bind, reserved):
    found = values(decide(make_host(host)))
    assert found == {threads.BIND: bind, threads.RESERVED: reserved}


@pytest.mark.parametrize(
    ("host", "count"),
    [("avx512--cgroup-v1", 1), ("avx512--docker-seccomp", 2), ("amx-bf16--kubernetes-nested", 4)],
)
def test_a_quota_below_the_cores_leaves_threads_unbound(make_host, host, count):
    placed = decide(make_host(host))
    assert values(placed) == {threads.BIND: "nobind", threads.COUNT: str(count)}
    assert not placed.bound
    assert "CPUs of" in placed.findings[0].found


def test_a_release_without_a_word_for_unbound_threads_is_told_the_number_alone(make_host):
    placed = decide(make_host("avx512--cgroup-v1"), Tree(site=None))
    assert values(placed) == {threads.COUNT: "1"}
    assert placed.findings[0].status is Status.WARN


def siblings(cores, offset):
    return tuple((n, n + offset) for n in range(cores))


def test_one_thread_for_each_core_where_siblings_share_it(make_host):
    facts = make_host(
        "avx512-bf16--zen4",
        cpu={"siblings": siblings(8, 8), "logical": 16, "physical": 8, "allowed": tuple(range(16))},
    )
    found = values(decide(facts))
    assert found == {threads.BIND: "8-14", threads.RESERVED: "1"}


def test_a_cpuset_that_cuts_through_cores_keeps_what_is_allowed(make_host):
    facts = make_host(
        "avx512-bf16--zen4",
        cpu={"siblings": siblings(8, 8), "logical": 16, "physical": 8, "allowed": (0, 1, 9, 10)},
    )
    assert values(decide(facts))[threads.BIND] == "0,9-10"


def test_an_unknown_topology_is_left_to_vllm(make_host):
    placed = decide(make_host("avx512-bf16--zen4", cpu={"siblings": (), "physical": 4}))
    assert threads.BIND not in values(placed)
    assert placed.findings[0].status is Status.UNKNOWN


def two_nodes(make_host, **changes):
    nodes = (
        NumaNode(id=0, cpus=tuple(range(8)), memory_total=64 * GIB),
        NumaNode(id=1, cpus=tuple(range(8, 16)), memory_total=64 * GIB),
        NumaNode(id=2, cpus=(), memory_total=256 * GIB),  # memory alone
    )
    cpu = {
        "siblings": tuple((n,) for n in range(16)),
        "logical": 16,
        "physical": 16,
        "allowed": tuple(range(16)),
        "quota": None,
    }
    memory = {"total": 128 * GIB, "available": 120 * GIB, "limit": None}
    return make_host(cpu=cpu, memory=memory, numa=nodes, **changes)


def test_one_worker_stays_on_one_node(make_host):
    placed = decide(two_nodes(make_host))
    assert values(placed)[threads.BIND] == "0-6"
    assert placed.node is not None
    assert placed.node.id == 0


def test_a_worker_for_each_node_has_a_list_of_its_own(make_host):
    placed = decide(two_nodes(make_host), ranks=2)
    assert values(placed) == {threads.BIND: "0-6|8-14", threads.RESERVED: "2"}
    assert placed.node is None


def programs(tmp_path: Path, *names: str) -> dict[str, str]:
    for name in names:
        path = tmp_path / name
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    return {"PATH": str(tmp_path)}


@pytest.mark.parametrize(
    ("get", "have", "first"),
    [
        ("EPERM", ("numactl", "taskset"), "taskset"),  # numactl itself asks get_mempolicy first
        ("ok", ("numactl", "taskset"), "numactl"),
        ("EPERM", ("numactl",), None),
        ("EPERM", (), None),
    ],
)
def test_where_memory_cannot_be_bound_the_process_is_kept_on_its_node(
    make_host, tmp_path, get, have, first
):
    facts = two_nodes(make_host, container={"get_mempolicy": get, "mbind": "EPERM"})
    placed = decide(facts, environ=programs(tmp_path, *have))
    assert (Path(placed.launcher[0]).name if placed.launcher else None) == first
    assert not placed.launcher or "0-7" in " ".join(placed.launcher)
    lost = next(f for f in placed.findings if f.id == "tune.memory_binding")
    assert "mbind: EPERM" in lost.found
    assert "seccomp" in lost.remedy[0]


def test_a_single_node_needs_no_launcher(make_host, tmp_path):
    facts = make_host(container={"get_mempolicy": "EPERM", "mbind": "EPERM"})
    assert decide(facts, environ=programs(tmp_path, "taskset")).launcher == ()


def test_a_release_that_must_move_pages_does_not_bind_where_that_is_refused(make_host, make_site):
    old = {
        "vllm/utils/ompmultiprocessing.py": "",
        "vllm/v1/worker/cpu_worker.py": (
            'self.local_omp_cpuid = "all"\nif self.local_omp_cpuid != "all":\n    init()\n'
        ),
    }
    tree = read_tree(make_site(files=old))
    facts = make_host(container={"get_mempolicy": "EPERM", "mbind": "EPERM"})
    assert values(decide(facts, tree)) == {threads.BIND: "all", threads.COUNT: "2"}
    assert values(decide(make_host(), tree))[threads.BIND] == "0-1"


def test_what_the_release_does_not_read_is_not_set(make_host, make_site):
    tree = read_tree(make_site(variables=("VLLM_CPU_OMP_THREADS_BIND",)))
    assert values(decide(make_host(), tree)) == {threads.BIND: "0-1"}


@given(st.sets(st.integers(0, 300), min_size=1))
def test_ranges_are_read_back_as_the_same_cpus(cpus):
    assert parse_cpus(threads.ranges(tuple(cpus))) == (frozenset(cpus),)


HOSTS = sorted(p.name for p in (Path(__file__).parents[2] / "hosts").iterdir() if p.is_dir())


@pytest.mark.parametrize("host", HOSTS)
def test_no_host_is_bound_to_what_it_may_not_use(host):
    facts = replay(Path(__file__).parents[2] / "hosts" / host)
    placed = decide(facts)
    allowed = set(facts.cpu.allowed)
    assert all(set(rank) <= allowed and rank for rank in placed.ranks)
    assert placed.count >= 1
    assert facts.cpu.quota is None or placed.count <= max(1, facts.cpu.quota)
    assert all(v.reason for v in placed.variables)
