"""Short names, ids with revisions, and the table of what is known."""

from __future__ import annotations

import pytest

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.models import names

# From the model cards, in millions: all parameters.
CARDS = {
    "qwen2.5-0.5b-instruct": 494.0,
    "qwen2.5-1.5b-instruct": 1543.7,
    "qwen2.5-3b-instruct": 3085.9,
    "qwen2.5-7b-instruct": 7615.6,
    "qwen2.5-14b-instruct": 14770.0,
    "qwen2.5-32b-instruct": 32763.9,
    "qwen2.5-72b-instruct": 72706.2,
    "qwen2-0.5b": 494.0,
    "qwen2-7b-instruct": 7615.6,
    "qwen2.5-coder-0.5b-instruct": 494.0,
}


@pytest.mark.parametrize("name", CARDS)
def test_parameters_follow_from_the_shapes(name: str) -> None:
    known = {k.name: k for k in names.known()}[name]
    assert round(known.parameters / 1e6, 1) == CARDS[name]
    assert known.size == 2 * known.parameters


def test_names_are_unique_and_lead_to_ids() -> None:
    assert len({k.name for k in names.known()}) == len({k.id for k in names.known()})
    for known in names.known():
        assert known.id.lower().partition("/")[2] == known.name
        assert names.reference(known.name) == names.Reference(id=known.id)


def test_a_quantised_variant_takes_less_and_not_less_than_its_bits() -> None:
    by_name = {k.name: k for k in names.known()}
    whole, eight, four = (
        by_name["qwen2.5-7b-instruct" + end] for end in ("", "-gptq-int8", "-gptq-int4")
    )
    assert whole.size > eight.size > four.size > whole.size / 4
    assert (whole.bits, eight.bits, four.bits) == (16, 8, 4)


@pytest.mark.parametrize(
    ("text", "id_", "revision"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct", None),
        ("qwen/qwen2.5-7b-instruct@v1", "Qwen/Qwen2.5-7B-Instruct", "v1"),
        ("QWEN2-7B@main", "Qwen/Qwen2-7B", "main"),
        ("a/b", "a/b", None),
        ("a/b@refs/pr/1", "a/b", "refs/pr/1"),
        ("unsloth/Qwen2.5-7B", "unsloth/Qwen2.5-7B", None),
    ],
)
def test_what_a_name_means(text: str, id_: str, revision: str | None) -> None:
    assert names.reference(text) == names.Reference(id=id_, revision=revision)


@pytest.mark.parametrize(
    "text",
    ["", "qwen", "a/b/c", "../b", "a/..", "a/b@../c", "a b/c", "a/b\n", "/a", "a/", "-a/b", "a/b@"],
)
def test_what_means_nothing(text: str) -> None:
    with pytest.raises(CpuBuildError) as caught:
        names.reference(text)
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert repr(text) in str(caught.value)


def test_the_nearest_name_is_told() -> None:
    with pytest.raises(CpuBuildError) as caught:
        names.reference("qwen2.5-0.5b-instuct")
    assert "did you mean qwen2.5-0.5b-instruct" in caught.value.problems[0].remedy[0]
