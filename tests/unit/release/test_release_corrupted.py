"""Truncated, spliced and random files: a release, or an error that names files. Nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.release.release_trees import FILES, make_tree

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.release import build_requirements, read_release, runtime_requirements

NAMES = sorted(FILES)
FRAGMENTS = st.sampled_from(
    ["(", ")", '"', "[[", "]]", "\\", "#", "\n", "\x00", "${", "}", "if(", "endif()", "NOT", ";"]
)


def check(name: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = make_tree(Path(folder))
        (tree / name).write_bytes(data)
        error = outcome(tree)
    if error is not None:
        assert error.problems
        assert error.exit_code in (ExitCode.SETTINGS, ExitCode.UNSUPPORTED)


def outcome(tree: Path) -> CpuBuildError | None:
    try:
        release = read_release(tree, arch="x86_64")
        runtime_requirements(tree, release, python_version="3.12")
        build_requirements(tree, release)
    except CpuBuildError as error:
        return error
    return None


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(NAMES), st.floats(0, 1))
def test_truncated_files(name: str, share: float):
    data = FILES[name].encode()
    check(name, data[: int(len(data) * share)])


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(NAMES), st.floats(0, 1), st.integers(0, 40), FRAGMENTS | st.text(max_size=6))
def test_files_with_a_part_replaced(name: str, share: float, length: int, put: str):
    text = FILES[name]
    at = int(len(text) * share)
    check(name, (text[:at] + put + text[at + length :]).encode("utf-8", "surrogatepass"))


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(NAMES), st.binary(max_size=200))
def test_files_of_noise(name: str, data: bytes):
    check(name, data)


def test_deep_nesting_is_no_crash():
    for name, text in (
        ("cmake/cpu_extension.cmake", "if(" + "(" * 5000 + "A" + ")" * 5000 + ")\nendif()\n"),
        ("cmake/cpu_extension.cmake", "if(" + "NOT " * 5000 + "A)\nendif()\n"),
        ("vllm/envs.py", "environment_variables = " + "[" * 5000 + "\n"),
        ("vllm/envs.py", "x = " + "-" * 100000 + "1\n"),
        ("setup.py", "setup" + "()" * 5000 + "\n"),
        ("pyproject.toml", "a = " + "[" * 5000 + "\n"),
        ("requirements/cpu.txt", "a; " + "(" * 5000 + "\n"),
    ):
        check(name, text.encode())
