"""Requirement files as pip reads them, what applies where, and profiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.unit.release.release_trees import make_tree

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.release import (
    build_requirements,
    profile_split,
    profiles,
    read_release,
    runtime_requirements,
)
from cpubuild.release.requirements import logical_lines, pin, read_requirement_file


def test_lines_are_joined_and_stripped_of_comments():
    text = "# top\n\na==1 # why\nb>=2, \\\n  <3\nc @ https://x/y#egg=c\n  # indented\nd\\\n"
    assert list(logical_lines(text)) == [
        (3, "a==1"),
        (4, "b>=2,   <3"),
        (6, "c @ https://x/y#egg=c"),
        (8, "d"),
    ]


def test_files_are_followed_once_and_places_kept(tmp_path: Path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r/a.txt").write_text("-r b.txt\n--requirement=b.txt\n-i https://x\nA_b==1\n")
    (tmp_path / "r/b.txt").write_text("-r a.txt\n-i https://x\n\nc --hash=sha256:00\n")
    read = read_requirement_file(tmp_path, "r/a.txt")
    assert [(e.name, e.file, e.line) for e in read.entries] == [
        ("c", "r/b.txt", 4),
        ("a-b", "r/a.txt", 4),
    ]
    assert read.files == ("r/a.txt", "r/b.txt")
    assert read.index_lines == ("-i https://x",)


def test_every_bad_line_is_told(tmp_path: Path):
    (tmp_path / "a.txt").write_text("==1\n-r none.txt\n-r ../up.txt\n-e .\n--pre\nok\n")
    with pytest.raises(CpuBuildError) as caught:
        read_requirement_file(tmp_path, "a.txt")
    assert [p.what.split(":")[0] + ":" + p.what.split(":")[1] for p in caught.value.problems] == [
        "a.txt:1",
        f"none.txt: there is no such file in {tmp_path}",
        "a.txt:3",
        "a.txt:4",
    ]


@pytest.mark.parametrize(
    ("text", "version"),
    [("t==1.2+cpu", "1.2+cpu"), ("t == 1", "1"), ("t>=1", None), ("t==1.*", None), ("t", None)],
)
def test_pins(text: str, version: str | None):
    assert pin(Requirement(text)) == version


def test_runtime_requirements_apply_to_architecture_and_python(tmp_path: Path):
    tree = make_tree(tmp_path)
    x86 = read_release(tree, arch="x86_64")
    old = runtime_requirements(tree, x86, python_version="3.11.7")
    assert [e.name for e in old] == ["numpy", "torch", "torchvision", "triton"]
    new = runtime_requirements(tree, x86, python_version="3.12")
    assert [(e.name, e.file, e.line) for e in new] == [
        ("numpy", "requirements/common.txt", 1),
        ("six", "requirements/common.txt", 2),
        ("torch", "requirements/cpu.txt", 3),
        ("torchvision", "requirements/cpu.txt", 5),
        ("triton", "requirements/cpu.txt", 7),
    ]
    arm = read_release(tree, arch="aarch64")
    assert [
        str(e.requirement.specifier) for e in runtime_requirements(tree, arm, python_version="3.12")
    ] == [
        "",
        ">=1.16",
        "==2.13.0",
        "",
    ]


def test_build_requirements_leave_torch_out_and_keep_python_markers(tmp_path: Path):
    tree = make_tree(tmp_path)
    assert build_requirements(tree, read_release(tree, arch="x86_64")) == (
        "cmake>=3.26",
        "setuptools==78.1.1",
        'tomli; python_version < "3.12"',
    )
    assert "scons" in build_requirements(tree, read_release(tree, arch="aarch64"))


def test_the_text_profile_says_what_it_drops_and_why(tmp_path: Path):
    tree = make_tree(tmp_path)
    listed = runtime_requirements(tree, read_release(tree, arch="x86_64"), python_version="3.12")
    split = profile_split(listed, "text")
    assert [e.name for e in split.kept] == ["numpy", "six", "torch"]
    assert [d.listed.name for d in split.dropped] == ["torchvision", "triton"]
    assert all(d.reason and d.lost for d in split.dropped)
    assert profile_split(listed, "full").kept == listed


def test_triton_from_an_index_is_kept(tmp_path: Path):
    tree = make_tree(tmp_path, requirements_cpu_txt="torch==2.6.0+cpu\ntriton==3.2.0\n")
    listed = runtime_requirements(tree, read_release(tree, arch="x86_64"), python_version="3.12")
    assert profile_split(listed, "text").dropped == ()


def test_an_unknown_profile_names_those_there_are():
    with pytest.raises(CpuBuildError) as caught:
        profile_split((), "audio")
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert set(caught.value.problems[0].remedy) == {f"--profile {name}" for name in profiles()}


def test_every_entry_of_the_profile_table_is_complete():
    for profile in profiles().values():
        assert profile["title"]
        for rule in profile.get("drop", []):
            assert set(rule) <= {"name", "only", "reason", "lost", "needed_by"}
            assert rule["reason"].endswith(".")
            assert rule["lost"]
