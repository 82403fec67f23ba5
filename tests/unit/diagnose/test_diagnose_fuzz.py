"""No input makes the diagnosis fail: whatever a log holds, an answer comes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpubuild.diagnose import diagnose_lines, diagnose_paths, load_rules, render_diagnosis
from cpubuild.diagnose.redact import redactor

EXAMPLES = [e for rule in load_rules() for e in rule.examples]
JUNK = st.text(st.characters(codec="utf-8", exclude_categories=()), max_size=60)


def holds(lines: list[str], status: int | None) -> None:
    found = diagnose_lines(lines, exit_status=status)
    json.dumps(found.to_json())
    assert render_diagnosis(found, verbose=True)
    assert not (found.causes and found.unknown)
    for cause in found.causes:
        assert all(1 <= e.line <= max(1, found.lines) for e in cause.evidence)
        assert cause.remedies


@settings(max_examples=60)
@given(st.lists(JUNK, max_size=20), st.one_of(st.none(), st.integers(-64, 300)))
def test_junk(lines: list[str], status: int | None) -> None:
    holds(lines, status)


@settings(max_examples=80)
@given(st.randoms(use_true_random=False), st.one_of(st.none(), st.integers(-64, 300)))
def test_corrupted_examples(source: random.Random, status: int | None) -> None:
    text = list("\n".join(source.sample(EXAMPLES, 3)))
    for _ in range(source.randrange(0, 60)):
        place = source.randrange(len(text))
        text[place] = source.choice(["", "\r", "\n", "\x1b[", "'", "\u2019", "\0", "{", "%", "é"])
    holds("".join(text).split("\n"), status)


@settings(max_examples=40)
@given(st.binary(max_size=3000))
def test_bytes_in_a_file(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path: Path = tmp_path_factory.mktemp("bytes") / "x.log"
    path.write_bytes(data)
    json.dumps(diagnose_paths([path]).to_json())
    gz = path.with_suffix(".gz")
    gz.write_bytes(data)
    json.dumps(diagnose_paths([gz]).to_json())


@given(st.text(max_size=300))
def test_redaction_never_fails(text: str) -> None:
    assert isinstance(redactor(["alice"])(text), str)
