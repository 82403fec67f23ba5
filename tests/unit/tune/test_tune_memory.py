"""What fits: the sum never exceeds what is free, and what is missing is told in bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tune.conftest import HOSTS

from cpubuild.facts.collect import replay
from cpubuild.facts.model import NumaNode
from cpubuild.findings import Status
from cpubuild.tune import memory
from cpubuild.tune.shape import Shape
from cpubuild.tune.threads import Threads

GIB = 1 << 30
ONE = Threads(ranks=((0, 1),), count=2, bound=True, reserved=0)


def shape(elements=494_000_000, **changes):
    given = {
        "architecture": "Qwen2ForCausalLM",
        "dtype": "bfloat16",
        "elements": elements,
        "fixed": 0,
        "layers": 24,
        "heads": 14,
        "kv_heads": 2,
        "head_dim": 64,
        "hidden": 896,
        "widest": 4864,
        "vocabulary": 151_936,
        "longest": 32_768,
    }
    return Shape(**{**given, **changes})


def demand(free, model, ranks=1, width=2):
    c = memory.constants()
    return memory.Demand(
        free=free,
        granted=int(free * 0.95),
        weights=model.weights("bfloat16"),
        engine=int(c["engine_bytes"]),
        token=model.token("bfloat16"),
        width=width,
        ranks=ranks,
    )


def decide(free, model=None, *, whole=False, chunked=True, ranks=1):
    model = model or shape()
    asked = demand(free, model, ranks)
    return memory.decide_or_eager(model, asked, whole=whole, chunked=chunked)


def test_a_small_model_with_much_memory_gets_all_that_vllm_would_take():
    fit = decide(24 * GIB)
    assert (fit.length, fit.sequences, fit.step) == (32_768, 128, 2048)
    assert fit.cache <= 0.4 * 24 * GIB


def test_less_memory_means_shorter_contexts_then_fewer_sequences():
    fit = decide(int(4.2 * GIB))
    assert not fit.missing
    assert fit.sequences < 128
    assert fit.length <= 32_768


def test_what_is_missing_makes_it_fit_when_it_is_there():
    tight = decide(3 * GIB)
    assert tight.missing > 0
    enough = decide(3 * GIB + int(tight.missing / 0.95) + 2)
    assert enough.missing == 0
    assert enough.eager
    almost = decide(3 * GIB + int(tight.missing / 0.95) - (1 << 20))
    assert almost.missing > 0


def test_without_compiled_code_comes_before_not_at_all():
    sizes = range(3 * GIB, 6 * GIB, 32 << 20)
    seen = [(bool(f.missing), f.eager) for f in map(decide, sizes)]
    assert seen == sorted(seen, reverse=True)  # missing, then eager, then as usual
    assert {(True, True), (False, True), (False, False)} == set(seen)


@given(
    free=st.integers(1 << 20, 2000 * GIB),
    elements=st.integers(1 << 16, 400_000_000_000),
    layers=st.integers(1, 120),
    heads=st.sampled_from([1, 2, 8, 64]),
    longest=st.sampled_from([512, 4096, 131_072, 1_000_000]),
    whole=st.booleans(),
    chunked=st.booleans(),
)
def test_the_sum_stays_within_what_may_be_planned_with(
    free, elements, layers, heads, longest, whole, chunked
):
    model = shape(elements, layers=layers, kv_heads=heads, longest=longest)
    fit = decide(free, model, whole=whole, chunked=chunked)
    if fit.missing:
        assert fit.cache == fit.length == 0
        return
    asked = fit.demand
    assert asked.fixed + fit.activations + fit.cache <= asked.granted
    assert 1 <= fit.sequences <= 128
    assert 0 < fit.length <= longest
    assert fit.length * asked.token <= fit.cache
    assert not whole or fit.cache % GIB == 0
    assert chunked or fit.length <= fit.step


def test_a_cache_in_whole_gib_needs_one_at_least():
    fit = decide(int(4.2 * GIB), whole=True)
    assert fit.missing
    assert decide(6 * GIB, whole=True).cache == GIB * (decide(6 * GIB, whole=True).cache // GIB)


def test_workers_share_the_cache():
    one, two = decide(64 * GIB), decide(64 * GIB, ranks=2)
    assert two.cache == one.cache // 2
    assert two.tokens == one.tokens


@pytest.mark.parametrize(
    ("available", "limit", "used", "free"),
    [
        (20 * GIB, None, None, 20 * GIB),
        (20 * GIB, 3 * GIB, GIB, 2 * GIB),
        (20 * GIB, GIB, 2 * GIB, 0),
    ],
)
def test_free_is_what_the_control_group_leaves(make_host, available, limit, used, free):
    facts = make_host(memory={"available": available, "limit": limit, "used": used})
    assert memory.free(facts, ONE) == free


def test_a_worker_on_one_of_two_nodes_has_that_nodes_share(make_host):
    facts = make_host(memory={"total": 64 * GIB, "available": 60 * GIB, "limit": None})
    node = NumaNode(id=0, cpus=(0, 1), memory_total=16 * GIB)
    assert memory.free(facts, replace(ONE, node=node)) == 15 * GIB


def test_a_node_that_holds_less_than_the_host_says_is_what_counts(make_host):
    """A virtual machine whose balloon took half of the node: vLLM's worker counts the node."""
    node = NumaNode(id=0, cpus=(0, 1), memory_total=12 * GIB, memory_available=10 * GIB)
    memory_of = {"total": 24 * GIB, "available": 23 * GIB, "limit": None}
    facts = replace(make_host(memory=memory_of), numa=(node,))
    assert memory.free(facts, ONE) == 10 * GIB
    two = replace(ONE, ranks=((0,), (1,)))
    assert memory.free(facts, two) == 20 * GIB
    other = replace(node, id=1, cpus=(2, 3), memory_available=4 * GIB)
    home = replace(ONE, node=node)  # the only worker, kept on one of two nodes
    assert memory.free(replace(facts, numa=(node, other)), home) == 10 * GIB
    apart = replace(two, ranks=((0, 1), (2, 3)))
    assert memory.free(replace(facts, numa=(node, other)), apart) == 8 * GIB


def test_findings_name_bytes_and_what_to_do():
    model = shape()
    missing = memory.findings(model, "bfloat16", decide(3 * GIB))
    assert [f.status for f in missing] == [Status.BLOCKER]
    assert f"{decide(3 * GIB).missing} bytes are missing" in missing[0].title
    assert "control group" in missing[0].remedy[0]
    fine, context = memory.findings(model, "bfloat16", decide(24 * GIB))
    assert (fine.status, context.status) == (Status.OK, Status.OK)
    long = shape(longest=10_000_000)
    short = memory.findings(long, "bfloat16", decide(24 * GIB, long))[1]
    assert short.status is Status.WARN
    assert "10000000" in short.title


def test_the_numbers_of_a_real_host(make_host):
    facts = replay(HOSTS / "amx-bf16--sapphire-rapids-vm")
    asked = memory.demand(facts, shape(), "float32", ONE)
    assert asked.weights == 4 * 494_000_000
    assert asked.token == 2 * 24 * 2 * 64 * 4
    assert asked.granted < asked.free == facts.room() < facts.memory.usable
