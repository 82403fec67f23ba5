"""Whole small trees through read_release, and what it says of trees it cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.release.release_trees import EXTENSION, FILES, make_tree

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.release import UrlRequirement, read_release, version
from cpubuild.run import Completed


def refusal(tree: Path, arch: str = "x86_64", **given: str) -> CpuBuildError:
    with pytest.raises(CpuBuildError) as caught:
        read_release(tree, arch=arch, **given)
    return caught.value


def test_reads_every_field_of_a_tree(tmp_path: Path):
    release = read_release(make_tree(tmp_path), arch="x86_64")
    assert (release.version, release.arch) == ("1.2.3", "x86_64")
    assert (release.torch, release.torch_build, release.torch_project) == (
        "2.13.0+cpu",
        "2.13.0+cpu",
        "2.13.0",
    )
    assert release.python == ">=3.11,<3.15"
    assert release.runtime_requirements == "requirements/cpu.txt"
    assert release.common_requirements == "requirements/common.txt"
    assert release.build_requirements == "requirements/build/cpu.txt"
    assert (release.gcc_floor, release.gcc_fatal) == ("12.3", True)
    assert release.cxx_standard == 20
    assert (release.onednn_tag, release.onednn_local_source) == ("v3.13", True)
    assert release.targets == ("_C", "_C_AVX2")
    assert release.arch_refusal is None
    assert release.url_requirements[0] == UrlRequirement(
        name="triton",
        url="https://github.com/t/311.whl",
        marker='platform_machine == "x86_64" and python_version == "3.11"',
    )
    assert len(release.url_requirements) == 2
    assert (release.rust, release.rust_toolchain, release.setuptools_rust) == (True, "1.95", True)
    assert (release.platform_detection, release.cuda_yields_to_cpu) == ("env", True)
    assert (release.version_override, release.cmake_args) == (True, True)
    assert release.index_lines == ("--extra-index-url https://download.pytorch.org/whl/cpu",)
    assert release.env_names == {"VLLM_TARGET_DEVICE", "VLLM_MORE"}
    assert release.env_names_elsewhere == {
        "VLLM_VERSION_OVERRIDE",
        "CMAKE_ARGS",
        "VLLM_CPU_X86",
        "FETCHCONTENT_SOURCE_DIR_ONEDNN",
        "VLLM_BY_CONSTANT",
    }
    assert release.kv_cache_memory_bytes is True


def test_the_same_tree_asks_something_else_of_arm(tmp_path: Path):
    release = read_release(make_tree(tmp_path), arch="aarch64")
    assert (release.torch, release.torch_build) == ("2.13.0", None)
    assert (release.gcc_floor, release.gcc_fatal) == (None, False)
    assert release.onednn_tag == "9c5be1c"
    assert release.targets == ("_C",)
    assert release.url_requirements == ()


def test_an_architecture_that_cmake_refuses_is_told_in_its_words(tmp_path: Path):
    pinned = 'torch==2.13.0; platform_machine == "s390x"\n'
    tree = make_tree(tmp_path, requirements_cpu_txt=pinned)
    assert read_release(tree, arch="s390x").arch_refusal == "no such CPU"


def test_an_architecture_without_torch_is_unsupported(tmp_path: Path):
    error = refusal(make_tree(tmp_path), arch="riscv64")
    assert error.exit_code is ExitCode.UNSUPPORTED
    assert "riscv64" in str(error)


def test_a_tree_without_the_newer_parts(tmp_path: Path):
    tree = make_tree(
        tmp_path,
        rust_Cargo_toml=None,
        rust_toolchain_toml=None,
        setup_py='from setuptools import setup\nsetup(python_requires=">=3.8")\n',
        pyproject_toml='[build-system]\nrequires = ["setuptools"]\n',
        CMakeLists_txt='set(PYTHON_SUPPORTED_VERSIONS "3.8" "3.9" "3.10")\n',
        cmake_cpu_extension_cmake="define_gpu_extension_target(_C DESTINATION vllm)\n",
        cmake_utils_cmake="set_property(TARGET t PROPERTY CXX_STANDARD 17)\n",
        vllm_platforms___init___py='is_cpu = "cpu" in version("vllm")\n',
        vllm_engine_arg_utils_py="class EngineArgs:\n    swap_space: int = 4\n",
    )
    release = read_release(tree, arch="x86_64")
    assert (release.rust, release.rust_toolchain, release.setuptools_rust) == (False, None, False)
    assert release.python == ">=3.8,<3.11"
    assert release.cxx_standard == 17
    assert (release.gcc_floor, release.onednn_tag, release.onednn_local_source) == (
        None,
        None,
        False,
    )
    assert (release.platform_detection, release.cuda_yields_to_cpu) == ("version", False)
    assert (release.version_override, release.cmake_args) == (False, False)
    assert release.torch_project is None
    assert release.kv_cache_memory_bytes is False


def test_a_floor_that_only_warns(tmp_path: Path):
    soft = EXTENSION.replace('message(FATAL_ERROR "a newer', 'message(WARNING "a newer')
    release = read_release(make_tree(tmp_path, cmake_cpu_extension_cmake=soft), arch="x86_64")
    assert (release.gcc_floor, release.gcc_fatal) == ("12.3", False)


def test_another_layout_of_the_same_cmake_reads_the_same(tmp_path: Path):
    expected = read_release(make_tree(tmp_path / "a"), arch="x86_64")
    other = (
        EXTENSION.replace("if (", "IF(").replace("\n    ", "\n\t").replace("AND\n", "AND # why\n")
    )
    other = other.replace("GIT_TAG v3.13", "\n#[[ once: GIT_TAG v3.12 ]]\nGIT_TAG\n  v3.13")
    other = other.replace("define_extension_target(_C ", "define_extension_target(\n  _C\n  ")
    tree = make_tree(tmp_path / "b", cmake_cpu_extension_cmake=other)
    assert read_release(tree, arch="x86_64") == expected


def test_all_problems_are_told_at_once_with_file_and_expectation(tmp_path: Path):
    tree = make_tree(
        tmp_path,
        requirements_cpu_txt="torch>=2.0\nthis is no requirement\n",
        requirements_build_cpu_txt=None,
        pyproject_toml="[build-system\n",
        setup_py="def broken(:\n",
        cmake_cpu_extension_cmake="if(TRUE)\n",
        vllm_platforms___init___py="x = 1\n",
        vllm_envs_py="y = 2\n",
        vllm_engine_arg_utils_py="z = 3\n",
        rust_toolchain_toml="[toolchain]\n",
    )
    error = refusal(tree)
    told = [problem.what for problem in error.problems]
    for name in (
        "requirements/cpu.txt:2",
        "requirements/build/cpu.txt or requirements/cpu-build.txt",
        "pyproject.toml",
        "setup.py:1",
        "cmake/cpu_extension.cmake:1",
        "vllm/platforms/__init__.py",
        "vllm/envs.py",
        "vllm/engine/arg_utils.py",
        "rust-toolchain.toml",
    ):
        assert any(what.startswith(name) for what in told), (name, told)
    assert error.exit_code is ExitCode.SETTINGS
    assert all(problem.why.startswith("expected there: ") for problem in error.problems)
    assert all(problem.remedy for problem in error.problems)


@pytest.mark.parametrize(
    "name", [n for n in FILES if not n.startswith(("rust", "vllm/platforms/cpu"))]
)
def test_no_file_may_be_missing(tmp_path: Path, name: str):
    tree = make_tree(tmp_path)
    (tree / name).unlink()
    error = refusal(tree)
    wanted = "neither PKG-INFO nor .git" if name == "PKG-INFO" else name
    assert any(wanted in problem.what for problem in error.problems)


def test_a_file_that_is_no_text_is_named(tmp_path: Path):
    tree = make_tree(tmp_path)
    (tree / "vllm/envs.py").write_bytes(b"\xff\xfe\x00")
    assert "vllm/envs.py: not UTF-8 at byte 0" in str(refusal(tree))


def test_torch_that_is_not_pinned_is_refused(tmp_path: Path):
    tree = make_tree(tmp_path, requirements_cpu_txt="torch>=2.0\n")
    assert "torch" in str(refusal(tree))


def test_two_torches_for_one_architecture_are_refused(tmp_path: Path):
    tree = make_tree(tmp_path, requirements_cpu_txt="torch==2.1\ntorch==2.2\n")
    assert "torch is not one version for x86_64: torch==2.1, torch==2.2" in str(refusal(tree))


def test_more_than_one_onednn_is_never_a_guess(tmp_path: Path):
    text = EXTENSION.replace('"asimd" ASIMD_FOUND', '"new_word" ASIMD_FOUND')
    text = text.replace('CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64"', "ASIMD_FOUND")
    error = refusal(make_tree(tmp_path, cmake_cpu_extension_cmake=text))
    assert "more than one oneDNN may be fetched: 9c5be1c, v3.13" in str(error)


def test_a_folder_that_is_not_there(tmp_path: Path):
    assert "there is no such folder" in str(refusal(tmp_path / "none"))


def test_the_given_version_wins_and_is_normalised(tmp_path: Path):
    assert (
        read_release(make_tree(tmp_path), arch="x86_64", version="v1.2.4rc1").version == "1.2.4rc1"
    )
    assert "no version" in str(refusal(tmp_path, version="latest"))


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ("v0.32.0-0-gabc1234", "0.32.0"),
        ("v0.32.0-15-gabc1234", "0.32.1.dev15+gabc1234"),
        ("v0.33.0rc1-3-gabc1234", "0.33.0rc2.dev3+gabc1234"),
    ],
)
def test_a_checkout_tells_its_version_through_git(tmp_path, monkeypatch, described, expected):
    tree = make_tree(tmp_path, PKG_INFO=None)
    (tree / ".git").mkdir()
    monkeypatch.setattr(version.run, "capture", lambda argv, timeout: done(argv, 0, described))
    assert read_release(tree, arch="x86_64").version == expected


def test_a_checkout_without_tags_says_what_git_said(tmp_path: Path, monkeypatch):
    tree = make_tree(tmp_path, PKG_INFO=None)
    (tree / ".git").mkdir()
    answer = "fatal: No names found"
    monkeypatch.setattr(version.run, "capture", lambda argv, timeout: done(argv, 128, "", answer))
    error = refusal(tree)
    assert answer in str(error)
    assert "--vllm VERSION" in error.problems[0].remedy[1]


def done(argv: list[str], code: int, out: str, err: str = "") -> Completed:
    return Completed(argv=tuple(argv), returncode=code, stdout=out, stderr=err, seconds=0.0)
