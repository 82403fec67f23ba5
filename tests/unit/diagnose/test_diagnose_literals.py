from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpubuild.diagnose import load_rules
from cpubuild.diagnose.lint import all_patterns
from cpubuild.diagnose.literals import Gate, gate_word, literal_runs


@pytest.mark.parametrize(
    ("pattern", "runs"),
    [
        (r"numa\.h: No such", ["numa.h:", "no", "such"]),
        (r"a(?:bc|de)f+g", ["a", "f", "g"]),
        (r"colou?r", ["colo", "r"]),
        (r"x{2}yz*w", ["y", "w"]),
        (r"[abc\]]tail", ["tail"]),
        (r"\bword\b\d+", ["word"]),
        (r"one|two", []),
        (r"pip-build-env", ["pip", "build", "env"]),
        (r"say 'this'", ["say", "this"]),
    ],
)
def test_literal_runs(pattern: str, runs: list[str]) -> None:
    assert literal_runs(pattern) == runs


@given(st.lists(st.text("abc", min_size=1, max_size=4), max_size=12), st.text("abc", max_size=40))
def test_the_gate_finds_every_word_and_no_other(words: list[str], text: str) -> None:
    gate = Gate(words)
    assert gate.words(text) == {w for w in words if w in text}
    assert gate.opens(text) == any(w in text for w in words)


PATTERNS = sorted({p for r in load_rules() for p in all_patterns(r) if gate_word(p)})
PLAIN = [p for p in PATTERNS if "(?!" not in p and "(?<" not in p.replace("(?P<", "")]


@settings(max_examples=150)
@given(st.data())
def test_whatever_matches_a_rule_passes_its_gate(data: st.DataObject) -> None:
    pattern = data.draw(st.sampled_from(PLAIN))
    text = data.draw(st.from_regex(re.compile(pattern, re.ASCII)))
    word = gate_word(pattern)
    assert word is not None
    assert word in text.lower()
