"""CMake text: tokens, conditions with unknowns, and what is reached on which architecture."""

from __future__ import annotations

import re

import pytest

from cpubuild.errors import CpuBuildError
from cpubuild.release.cmake import Arg, parse
from cpubuild.release.cmake_facts import gcc_floor
from cpubuild.release.conditions import MalformedConditionError, judge
from cpubuild.release.walk import walk

VALUES = {
    "ON_": "ON",
    "OFF_": "OFF",
    "UNKNOWN": None,
    "GCC": "12.2.0",
    "CPU": "x86_64",
    "ID": "GNU",
}


def condition(text: str) -> bool | None:
    (command,) = parse(f"if({text})", "x.cmake")
    return judge(command.args, VALUES)


def reached(text: str, arch: str = "x86_64") -> list[tuple[str, bool]]:
    walked = walk(parse(text, "x.cmake"), "x.cmake", arch=arch, gcc="12.2")
    return [(r.args[1] or "?", r.certain) for r in walked.named("message")]


def test_commands_with_comments_strings_and_brackets():
    text = 'SET(A "x \\" # y" # note\n  [=[ ] ]=] -DB="c d" (e)) #[[ set(B)\n ]] message("z")'
    first, second = parse(text, "x.cmake")
    assert (first.name, first.line) == ("set", 1)
    assert first.words == ("A", 'x " # y', " ] ", '-DB="c d"', "(", "e", ")")
    assert [a.quoted for a in first.args] == [False, True, True, False, False, False, False]
    assert (second.name, second.line) == ("message", 3)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("set(A", "x.cmake:1"),
        ("set(A)\nset", "x.cmake:2"),
        ("\n)", "x.cmake:2"),
        ('m("a', "x.cmake:1"),
    ],
)
def test_text_that_is_not_cmake_is_named_by_line(text: str, where: str):
    with pytest.raises(CpuBuildError, match=where):
        parse(text, "x.cmake")


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("ON_", True),
        ("OFF_", False),
        ("NOT OFF_", True),
        ("UNKNOWN", None),
        ("NOT UNKNOWN", None),
        ("ON_ OR UNKNOWN", True),
        ("OFF_ AND UNKNOWN", False),
        ("ON_ AND UNKNOWN", None),
        ("OFF_ AND OFF_ OR ON_", True),
        ("OFF_ AND (OFF_ OR ON_)", False),
        ('NOT (ID STREQUAL "GNU" AND GCC VERSION_GREATER_EQUAL 12.3)', True),
        ("ID STREQUAL GNU", True),
        ("GCC VERSION_LESS 12.10", True),
        ('${CPU} MATCHES "x86_64|amd64"', True),
        ("CPU MATCHES arm", False),
        ('UNKNOWN STREQUAL "x"', None),
        ("SET_ELSEWHERE", None),
        ("DEFINED ENV{A}", False),
        ("DEFINED ON_", True),
        ("EXISTS /proc/cpuinfo", None),
        ("TARGET torch AND OFF_", False),
        ("0.5", True),
        ("GCC GREATER 5", None),
        ('CPU MATCHES "["', None),
    ],
)
def test_conditions(text: str, truth: bool | None):
    assert condition(text) is truth


@pytest.mark.parametrize("text", ["", "NOT", "ON_ AND", "ON_ ON_", "ON_ STREQUAL"])
def test_malformed_conditions(text: str):
    with pytest.raises(MalformedConditionError):
        condition(text)


def test_a_parenthesis_that_is_not_closed():
    with pytest.raises(MalformedConditionError, match="not closed"):
        judge((Arg(text="("), Arg(text="ON_")), VALUES)


def test_only_the_branches_of_the_architecture_are_reached():
    text = """
    find_isa(${INFO} "asimd" NEON)
    find_isa(${INFO} "avx512f" AVX512)
    if(NEON)
      message(STATUS arm)
    elseif(AVX512)
      message(STATUS avx512)
    else()
      message(STATUS other)
    endif()
    """
    assert reached(text, "aarch64") == [("arm", True)]
    assert reached(text, "x86_64") == [("avx512", False), ("other", False)]
    assert reached(text, "s390x") == [("other", True)]


def test_what_is_set_in_an_unsure_branch_is_unknown_after_it():
    text = """
    set(A OFF)
    find_isa(${INFO} "avx2" AVX2)
    if(AVX2)
      set(A ON)
    endif()
    if(A)
      message(STATUS maybe)
    endif()
    set(B OFF)
    if(B)
      message(STATUS never)
    endif()
    """
    assert reached(text) == [("maybe", False)]


def test_functions_are_not_entered_and_loops_may_not_run():
    text = """
    function(f)
      message(STATUS inside)
    endfunction()
    foreach(x 1 2)
      message(STATUS loop)
    endforeach()
    """
    assert reached(text) == [("loop", False)]


@pytest.mark.parametrize(
    "text", ["if(A)\n", "endif()", "else()", "if(A) endforeach()", "function(f)\n"]
)
def test_blocks_must_balance(text: str):
    with pytest.raises(CpuBuildError, match=r"x\.cmake:1"):
        reached(text)


@pytest.mark.parametrize(
    ("compared", "said", "floor"),
    [
        ("V VERSION_LESS 11", "FATAL_ERROR", ("11", True)),
        ("${V} VERSION_LESS_EQUAL 11", "FATAL_ERROR", ("11.1", True)),
        ("NOT V VERSION_GREATER 11", "FATAL_ERROR", ("11.1", True)),
        ("V VERSION_LESS 10", "WARNING", ("10", False)),
        ("NOT V VERSION_GREATER_EQUAL 10.0", "WARNING", ("10.0", False)),
        ("V VERSION_LESS 10", "STATUS", (None, False)),
        ("V VERSION_GREATER_EQUAL 15", "WARNING", (None, False)),
        ("TRUE", "FATAL_ERROR", (None, False)),
    ],
)
def test_compiler_floors(compared: str, said: str, floor: tuple[str | None, bool]):
    compared = re.sub(r"\bV\b", "CMAKE_CXX_COMPILER_VERSION", compared)
    commands = parse(f"if({compared})\nmessage({said} x)\nendif()", "x.cmake")
    assert gcc_floor(commands, "x86_64") == floor


def test_the_fatal_floor_goes_before_a_higher_one_that_warns():
    text = """
    if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12.3)
      message(FATAL_ERROR old)
    elseif(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
      message(WARNING slow)
    endif()
    """
    assert gcc_floor(parse(text, "x.cmake"), "x86_64") == ("12.3", True)
