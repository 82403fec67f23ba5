"""The words, judged: equal passes, and every way to be wrong fails."""

from __future__ import annotations

from typing import Any

import pytest

from cpubuild.verify import words


def test_equal_words_pass(words_docs: dict[str, Any]) -> None:
    docs = words_docs
    checks = [
        words.tokenizer(docs["reference"], docs["eager"]),
        words.greedy(docs["reference"], docs["eager"]),
        words.batch(docs["eager"]),
        words.prefix_cache(docs["eager"]),
        words.compiled(docs["eager"], docs["compiled"]),
        words.second(docs["compiled"], docs["second"]),
        words.bfloat16(docs["bfloat16"]),
    ]
    assert [c.status for c in checks] == ["pass"] * 7
    smoke = words.smoke(docs["reference"], docs["eager"])
    assert smoke is not None
    assert (smoke.tokens, smoke.seconds) == (5, 0.5)


def test_one_other_token_fails_and_says_where(words_docs: dict[str, Any]) -> None:
    words_docs["eager"]["batch"][1]["tokens"][1] = 77
    check = words.greedy(words_docs["reference"], words_docs["eager"])
    assert check.status == "fail"
    assert "prompt 2 differs from token 2" in check.summary
    assert "[77]" in check.summary


def test_fewer_tokens_fail(words_docs: dict[str, Any]) -> None:
    words_docs["compiled"] = {"batch": [{"tokens": [5, 6]}, {"tokens": [8, 9]}], "seconds": 1}
    assert words.compiled(words_docs["eager"], words_docs["compiled"]).status == "fail"


def test_missing_answers_fail(words_docs: dict[str, Any]) -> None:
    assert words.first_difference(words_docs["eager"]["batch"], []) == "0 answers to 2 prompts"


def test_equal_tokens_with_other_probabilities_fail(words_docs: dict[str, Any]) -> None:
    words_docs["eager"]["scored"][0]["logprobs"][2] += 0.001
    check = words.greedy(words_docs["reference"], words_docs["eager"])
    assert check.status == "fail"
    assert "log-probabilities differ" in check.summary


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_number_is_not_within_a_bound(words_docs: dict[str, Any], value: float) -> None:
    words_docs["eager"]["scored"][0]["logprobs"][0] = value
    assert words.greedy(words_docs["reference"], words_docs["eager"]).status == "fail"
    words_docs["bfloat16"]["batch"][0]["logprobs"][0] = value
    assert words.bfloat16(words_docs["bfloat16"]).status == "fail"


@pytest.mark.parametrize("shift", [[0.3, 0, 0], [0.1, 0.1, 0.2]])
def test_bfloat16_bounds_largest_and_mean(words_docs: dict[str, Any], shift: list[float]) -> None:
    rows = words_docs["bfloat16"]["batch"]
    rows[0]["logprobs"] = [a + b for a, b in zip(rows[0]["logprobs"], shift, strict=True)]
    assert words.bfloat16(words_docs["bfloat16"]).status == "fail"


def test_bfloat16_may_not_choose_what_float32_finds_unlikely(words_docs: dict[str, Any]) -> None:
    words_docs["bfloat16"]["reference"][0]["best"] = [-0.1, -0.1, -0.1]
    assert words.bfloat16(words_docs["bfloat16"]).status == "fail"


def test_a_cache_that_served_nothing_proves_nothing(words_docs: dict[str, Any]) -> None:
    words_docs["eager"]["again"][0]["cached"] = 0
    assert words.prefix_cache(words_docs["eager"]).status == "warn"
    for row in words_docs["eager"]["again"]:
        row["cached"] = None
    assert words.prefix_cache(words_docs["eager"]).status == "unknown"


def test_a_tokenizer_that_loses_text_fails(words_docs: dict[str, Any]) -> None:
    words_docs["reference"]["round_trips"][0]["back"] = "?"
    assert words.tokenizer(words_docs["reference"], words_docs["eager"]).status == "fail"


def test_a_prompt_encoded_otherwise_fails(words_docs: dict[str, Any]) -> None:
    words_docs["eager"]["encoded"][0] = [0]
    assert words.tokenizer(words_docs["reference"], words_docs["eager"]).status == "fail"


def test_no_prompts_is_unknown(words_docs: dict[str, Any]) -> None:
    words_docs["reference"]["prompts"] = []
    check = words.greedy(words_docs["reference"], words_docs["eager"])
    assert check.status == "unknown"
