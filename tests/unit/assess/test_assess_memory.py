"""Memory to compile and to run: limits, swap, nodes."""

from __future__ import annotations

import pytest

from cpubuild.assess import Needs, assess
from cpubuild.findings import Status

GIB = 1 << 30


@pytest.fixture
def finding(host, change, known):
    def find(check: str, version: str = "0.32.0", needs: Needs | None = None, **parts):
        found = assess(change(host, **parts), known(version), needs=needs)
        return next((f for f in found if f.id == check), None)

    return find


@pytest.mark.parametrize(
    ("available", "swap", "status"),
    [
        (60, 0, Status.OK),
        (4, 0, Status.BLOCKER),
        (4, 8, Status.WARN),
        (2, 8, Status.WARN),
        (0.5, 64, Status.BLOCKER),
    ],
)
def test_compiling(available, swap, status, finding) -> None:
    memory = {"available": int(available * GIB), "swap_total": swap * GIB, "swap_free": swap * GIB}
    assert finding("memory.compile", memory=memory).status is status


def test_nothing_is_compiled_for_a_wheel(finding) -> None:
    assert finding("memory.compile", needs=Needs(source=False), memory={"available": GIB}) is None


def test_a_container_is_told_to_raise_its_limit(finding) -> None:
    found = finding("memory.compile", memory={"limit": 2 * GIB, "used": 0})
    assert "container's memory limit" in found.remedy[0]


@pytest.mark.parametrize(
    ("version", "limit", "available", "status"),
    [
        ("0.32.0", None, 60, Status.OK),
        ("0.32.0", None, 40, Status.WARN),
        ("0.32.0", 16, 40, Status.OK),
        ("0.20.0", 16, 40, Status.WARN),
    ],
)
def test_the_default_cache(version, limit, available, status, finding) -> None:
    memory = {"available": available * GIB, "limit": limit and limit * GIB, "used": 0}
    assert finding("memory.kv_default", version, memory=memory).status is status


@pytest.mark.parametrize("version", ["0.14.1", "0.33.0"])
def test_only_some_releases_take_nearly_everything(version, finding) -> None:
    assert finding("memory.kv_default", version, memory={"available": GIB}) is None


def test_a_stated_size_settles_it(finding) -> None:
    environment = {"VLLM_CPU_KVCACHE_SPACE": "2"}
    memory = {"available": 20 * GIB}
    found = finding("memory.kv_default", memory=memory, environment=environment)
    assert found.status is Status.OK


def test_a_model_that_does_not_fit(finding) -> None:
    needs = Needs(model_bytes=100 * GIB)
    assert finding("memory.run", needs=needs).status is Status.WARN
    assert finding("memory.run").status is Status.OK


def test_a_worker_must_fit_on_its_node(finding, host) -> None:
    node = host.numa[0]
    nodes = tuple(type(node)(id=i, cpus=(i,), memory_total=16 * GIB) for i in range(2))
    one = Needs(model_bytes=20 * GIB)
    two = Needs(model_bytes=20 * GIB, tensor_parallel=2)
    assert finding("memory.numa", needs=one, numa=nodes).status is Status.WARN
    assert finding("memory.numa", needs=two, numa=nodes).status is Status.OK
