"""Lines that are alike but for their digits are read once, unless a pattern asks for digits."""

from __future__ import annotations

import re

import pytest

from cpubuild.diagnose.familiar import Familiar, any_digits, wants_digits
from cpubuild.diagnose.scan import knowledge


def familiar(*patterns: str) -> Familiar[str]:
    return Familiar(patterns)


def test_a_line_is_known_by_its_shape() -> None:
    found = familiar("No such file")
    found.learn("[12/455] Building a.cpp.o", ("told",))
    assert found.recall("[13/99] Building a.cpp.o") is None
    assert found.recall("[14/455] Building a.cpp.o") == ("told",)


def test_what_may_depend_on_its_digits_is_not_kept() -> None:
    found = familiar(r"No kernel .{0,80}(?:fp8|int8)", r"exit code (?:137|-9)\b")
    for line in ("No kernel for fp4", "exit code 138"):
        found.learn(line, ("told",))
        assert found.recall(line) is None
    for line in ("a kernel in jit_avx2.cpp", "the code of exit 12"):
        found.learn(line, ("told",))
        assert found.recall(line) == ("told",)


@pytest.mark.parametrize("pattern", ["^a1", "a1$", "[0-9]x1", r"(?<=x)1", r"(.)\1 1", r"(?!1)x"])
def test_a_pattern_that_cannot_be_widened_says_so(pattern: str) -> None:
    assert any_digits(pattern) is None


def test_a_widened_pattern_matches_all_that_the_pattern_does() -> None:
    wide = any_digits(r"(?P<n1>\d{2,3}) of 7 fp8")
    assert wide is not None
    assert wide.search("12 of 7 fp8")
    assert wide.search("99 OF 3 fp4")
    assert not wide.search("1 of 7 fp8")
    for pattern in knowledge().patterns:
        if wants_digits(pattern):
            any_digits(pattern)


def test_lines_of_a_long_build_are_kept() -> None:
    found = Familiar[str](knowledge().patterns)
    line = "[1/455] Building CXX object CMakeFiles/dnnl.dir/src/cpu/x64/jit_avx_kernel.cpp.o"
    found.learn(line, ())
    assert found.recall(re.sub("^.1", "[2", line)) == ()
