"""The release reader against the real source distributions, held to a table written by hand."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.integration.sdists import VERSIONS, sdist_archive, sdist_tree, sha256

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.release import (
    Release,
    build_requirements,
    known_release,
    profile_split,
    provenance,
    read_release,
    runtime_requirements,
)
from cpubuild.release.project import supported_minors
from cpubuild.release.version import read_version

pytestmark = pytest.mark.integration

TABLE: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent.parent / "release_table.toml").read_text(encoding="utf-8")
)
ARCHES = ("x86_64", "aarch64")


def test_the_table_holds_every_version_of_the_tests():
    assert tuple(TABLE) == VERSIONS


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("version", VERSIONS)
def test_reads_what_the_table_says(version: str, arch: str):
    release = read_release(sdist_tree(version), arch=arch)
    assert _as_row(release) == _expected(version, arch)
    row = TABLE[version]
    assert release.env_names >= set(row["knows"])
    assert not release.env_names & set(row["lacks"])
    elsewhere = set(row["elsewhere"]) - release.env_names
    assert release.env_names_elsewhere >= elsewhere
    assert not release.env_names & release.env_names_elsewhere


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("arch", ["x86_64", "aarch64", "ppc64le", "s390x", "riscv64"])
def test_every_architecture_is_read_or_refused_by_cmake_itself(version: str, arch: str):
    row = TABLE[version]
    if arch in row["no_torch"]:
        with pytest.raises(CpuBuildError, match=f"no torch version for {arch}") as caught:
            read_release(sdist_tree(version), arch=arch)
        assert caught.value.exit_code is ExitCode.UNSUPPORTED
        return
    release = read_release(sdist_tree(version), arch=arch)
    assert (release.arch_refusal is not None) == (arch in row["refused"])
    assert release.targets[0] == "_C"


@pytest.mark.parametrize("version", VERSIONS)
def test_requirements_of_a_real_tree(version: str):
    tree = sdist_tree(version)
    release = read_release(tree, arch="x86_64")
    row = TABLE[version]
    listed = runtime_requirements(tree, release, python_version="3.11")
    told = {f"{entry.name}{entry.requirement.specifier}" for entry in listed}
    assert told >= set(row["listed"])
    assert all(
        (tree / e.file).read_text().splitlines()[e.line - 1].startswith(e.requirement.name)
        for e in listed
    )
    build = build_requirements(tree, release)
    assert set(build) >= set(row["build_only"])
    assert not any(text.startswith("torch") for text in build)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_text_only_install_names_no_url(version: str):
    tree = sdist_tree(version)
    release = read_release(tree, arch="x86_64")
    listed = runtime_requirements(tree, release, python_version="3.12")
    split = profile_split(listed, "text")
    assert not any(entry.requirement.url for entry in split.kept)
    assert "torch" in {entry.name for entry in split.kept}
    dropped = {d.listed.name for d in split.dropped}
    assert "torchvision" in dropped
    assert ("triton" in dropped) == bool(release.url_requirements)


@pytest.mark.parametrize("arch", ["x86_64", "aarch64", "ppc64le", "s390x", "riscv64"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_recorded_release_is_what_the_tree_says(version: str, arch: str):
    if arch in TABLE[version]["no_torch"]:
        assert known_release(version, arch) is None
        return
    assert known_release(version, arch) == read_release(sdist_tree(version), arch=arch)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_record_names_the_sdist_it_came_from(version: str):
    recorded = provenance(version)
    assert recorded is not None
    assert recorded.sha256 == sha256(sdist_archive(version))


@pytest.mark.parametrize(("commits", "expected"), [(1, "0.32.0"), (3, "0.32.1.dev2")])
def test_a_git_checkout_tells_its_version(tmp_path: Path, commits: int, expected: str):
    def git(*words: str) -> None:
        who = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "tag.gpgSign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    git("init")
    for number in range(commits):
        git("commit", "--allow-empty", "--no-gpg-sign", "-m", str(number))
        if number == 0:
            git("tag", "v0.32.0")
            git("tag", "nightly")
    assert read_version(tmp_path, None).split("+")[0] == expected


@pytest.mark.parametrize("share", [0.1, 0.37, 0.62, 0.9])
@pytest.mark.parametrize(
    "name",
    ["cmake/cpu_extension.cmake", "setup.py", "vllm/envs.py", "vllm/platforms/__init__.py"],
)
def test_a_truncated_file_of_a_real_tree_is_named(tmp_path: Path, name: str, share: float):
    tree = _copy_what_is_read(sdist_tree("0.32.0"), tmp_path)
    text = (tree / name).read_bytes()
    (tree / name).write_bytes(text[: int(len(text) * share)])
    with pytest.raises(CpuBuildError, match=name) as caught:
        read_release(tree, arch="x86_64")
    assert caught.value.exit_code is ExitCode.SETTINGS


def _copy_what_is_read(tree: Path, target: Path) -> Path:
    for pattern in ("*.*", "cmake/*.cmake", "requirements/**/*.txt", "vllm/*.py"):
        _copy(tree, target, pattern)
    for pattern in ("PKG-INFO", "vllm/platforms/*.py", "vllm/utils/*.py", "vllm/engine/*.py"):
        _copy(tree, target, pattern)
    return target


def _copy(tree: Path, target: Path, pattern: str) -> None:
    for path in tree.glob(pattern):
        if path.is_file():
            copy = target / path.relative_to(tree)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())


def _as_row(release: Release) -> dict[str, Any]:
    return {
        "version": release.version,
        "runtime": release.runtime_requirements,
        "common": release.common_requirements,
        "build": release.build_requirements,
        "torch": [release.torch, release.torch_build, release.torch_project],
        "python": list(supported_minors(release.python)),
        "gcc": [release.gcc_floor, release.gcc_fatal],
        "cxx": release.cxx_standard,
        "onednn": release.onednn_tag,
        "onednn_local": release.onednn_local_source,
        "targets": list(release.targets),
        "urls": [f"{u.name} {'-'.join(u.url.split('-')[-3:-1])}" for u in release.url_requirements],
        "rust": release.rust_toolchain if release.rust else "",
        "setuptools_rust": release.setuptools_rust,
        "platform": release.platform_detection,
        "cuda_yields": release.cuda_yields_to_cpu,
        "override": release.version_override,
        "cmake_args": release.cmake_args,
        "index": bool(release.index_lines),
        "kv_cache": release.kv_cache_memory_bytes,
    }


def _expected(version: str, arch: str) -> dict[str, Any]:
    row = {k: v for k, v in TABLE[version].items() if k in _COLUMNS}
    row["version"] = version
    row["torch"] = TABLE[version]["torch"][arch]
    row["onednn"] = TABLE[version]["onednn"][arch] or None
    if arch != "x86_64":
        # Only the x86 part of the CMake code states a compiler floor, has several targets,
        # and only x86 wheels of triton are named by URL.
        row |= {"gcc": [None, False], "targets": ["_C"], "urls": []}
    return row


_COLUMNS = {
    *("runtime", "common", "build", "python", "gcc", "cxx", "onednn_local", "targets", "urls"),
    *("rust", "setuptools_rust", "platform", "cuda_yields", "override", "cmake_args", "index"),
    "kv_cache",
}
