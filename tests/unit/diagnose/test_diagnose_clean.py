from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild.diagnose.clean import LINE_LIMIT, clean


def one(raw: str) -> str:
    (line,) = clean(raw, number=1, serial=1)
    return line.text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("\x1b[1;31merror:\x1b[0m x", "error: x"),
        ("[0;31merror: x[0m", "error: x"),
        ("#42 511.5   CMake Error", "  CMake Error"),
        ("#42 CACHED", "CACHED"),
        ("x [multiproc_executor.py:1] [m]", "x [multiproc_executor.py:1] [m]"),
        ("27.05   Failed to clone", "  Failed to clone"),
        ("(EngineCore_DP0 pid=7) ERROR 11-18 13:44:09 [core.py:842] boom", "boom"),
        ("(Worker_TP1 pid=12, ip=10.0.0.1) boom", "boom"),
        ("ERROR 11-21 23:44:54 engine.py:366] boom", "boom"),
        ("WARNING 02-01 09:54:47 _custom_ops.py:20] boom", "boom"),
        ("2025-11-18T13:44:09.123456789Z boom", "boom"),
        ("2025-11-18T13:44:09.1+00:00 stdout F boom", "boom"),
        ("2025-11-18 13:44:09,123 boom", "boom"),
        ("Nov 18 13:44:09 host vllm[77]: boom", "boom"),
        ("[18262.690086] traps: boom", "traps: boom"),
        ("[Tue Nov 18 13:44:09 2025] boom", "boom"),
        ("vllm-1  | boom", "boom"),
        ("      │ boom", "      boom"),
        ("  ╰─▶ Because", "  Because"),
        ("  ╰─> [12 lines of output]", "  [12 lines of output]"),
        ("> RuntimeError: boom", "RuntimeError: boom"),
        ("##[error]boom", "boom"),
        ("cc1plus: error: \u2018-mfoo\u2019", "cc1plus: error: '-mfoo'"),
        ("a\u00a0b\u200bc", "a bc"),
        ("boom\r\n", "boom"),
        ('{"log":"boom \\u001b[31mred\\n","stream":"stderr","time":"x"}', "boom red"),
        ('{"log": 3}', '{"log": 3}'),
        ('{"log":"unfinished', '{"log":"unfinished'),
    ],
)
def test_what_carried_a_line_is_taken_off(raw: str, text: str) -> None:
    assert one(raw) == text


def test_versions_and_numbers_are_no_prefix() -> None:
    assert one("3.26 or higher is required") == "3.26 or higher is required"
    assert one("12.3.0") == "12.3.0"


def test_a_redrawn_bar_leaves_each_of_its_lines_with_one_number() -> None:
    lines = list(clean(" 10%\r 20%\rerror: x", number=7, serial=9))
    assert [(line.number, line.text.strip()) for line in lines] == [
        (7, "10%"),
        (7, "20%"),
        (7, "error: x"),
    ]


def test_the_level_of_a_log_line_is_kept() -> None:
    (line,) = clean("(X pid=1) WARNING 02-01 09:54:47 [a.py:2] m", number=1, serial=1)
    assert line.level == "WARNING"


def test_a_monster_line_keeps_its_ends() -> None:
    text = one("head" + "x" * 10_000_000 + "tail")
    assert len(text) <= LINE_LIMIT + 10
    assert text.startswith("head")
    assert text.endswith("tail")


@given(st.text(max_size=400))
def test_cleaning_never_fails_and_leaves_nothing_that_moves_a_cursor(raw: str) -> None:
    for line in clean(raw, number=1, serial=1):
        assert not any(ord(c) < 32 for c in line.text.replace("\n", ""))
        assert "\x1b" not in line.raw
