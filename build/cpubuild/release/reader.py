"""Put a Release together from the files of a tree; all problems are told at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement

from cpubuild.errors import ExitCode, fail
from cpubuild.release.cmake_facts import CMakeFacts, read_cmake
from cpubuild.release.files import Gather, first_file, unreadable
from cpubuild.release.model import Release, UrlRequirement
from cpubuild.release.project import (
    PROJECT,
    ProjectFacts,
    has_rust,
    python_range,
    read_project,
    read_toolchain,
    supported_minors,
)
from cpubuild.release.python_facts import (
    SETUP,
    SetupFacts,
    read_cpu_modules,
    read_env_names,
    read_kv_cache_argument,
    read_platforms,
    read_setup,
)
from cpubuild.release.requirements import (
    Listed,
    RequirementFile,
    marker_environment,
    pin,
    read_requirement_file,
)
from cpubuild.release.version import read_version

RUNTIME_FILES = ("requirements/cpu.txt", "requirements-cpu.txt")
BUILD_FILES = (
    "requirements/build/cpu.txt",
    "requirements/cpu-build.txt",
    "requirements-build.txt",
)


def read(tree: Path, *, arch: str, version: str | None) -> Release:
    """Read ``tree``; see :func:`cpubuild.release.read_release`."""
    if not tree.is_dir():
        raise unreadable(str(tree), "there is no such folder", "an unpacked vLLM source tree")
    gather = Gather()
    number = gather.take(lambda: read_version(tree, version))
    runtime = gather.take(lambda: runtime_file(tree))
    build = gather.take(lambda: build_file(tree))
    project = gather.take(lambda: read_project(tree))
    setup = gather.take(lambda: read_setup(tree))
    cmake = gather.take(lambda: read_cmake(tree, arch))
    platforms = gather.take(lambda: read_platforms(tree))
    names = gather.take(lambda: read_env_names(tree))
    more_names = gather.take(lambda: read_cpu_modules(tree))
    kv_cache = gather.take(lambda: read_kv_cache_argument(tree))
    toolchain = gather.take(lambda: read_toolchain(tree))
    python, torch, urls = None, None, None
    if project and setup and cmake:
        python = gather.take(lambda: _python(project, setup, cmake))
    if runtime and python:
        torch = gather.take(lambda: _runtime_torch(runtime, arch, python))
        urls = gather.take(lambda: _urls(runtime, arch, python))
    if (
        gather.problems
        or not (number and runtime and build and project and setup and cmake and platforms)
        or python is None
        or torch is None
        or urls is None
        or names is None
        or more_names is None
        or kv_cache is None
    ):
        raise gather.error()
    return Release(
        version=number,
        arch=arch,
        torch=torch,
        torch_build=_torch((e.requirement for e in build.entries), arch, python, build.files[0]),
        torch_project=_torch(project.build_requires, arch, python, PROJECT),
        python=python,
        runtime_requirements=runtime.files[0],
        common_requirements=next((f for f in runtime.files[1:] if "common" in f), None),
        build_requirements=build.files[0],
        gcc_floor=cmake.gcc_floor,
        gcc_fatal=cmake.gcc_fatal,
        cxx_standard=cmake.cxx_standard,
        onednn_tag=cmake.onednn_tag,
        onednn_local_source=cmake.onednn_local_source,
        targets=cmake.targets,
        url_requirements=urls,
        rust=has_rust(tree),
        rust_toolchain=toolchain,
        setuptools_rust=setup.imports_setuptools_rust
        or any(e.name == "setuptools-rust" for e in build.entries),
        platform_detection=platforms.detection,
        cuda_yields_to_cpu=platforms.cuda_yields,
        version_override=setup.version_override,
        index_lines=tuple(dict.fromkeys((*runtime.index_lines, *build.index_lines))),
        env_names=names,
        kv_cache_memory_bytes=kv_cache,
        cmake_python=cmake.pythons,
        cmake_args=setup.cmake_args,
        arch_refusal=cmake.arch_refusal,
        env_names_elsewhere=(setup.env_names | cmake.env_names | more_names) - names,
    )


def runtime_file(tree: Path) -> RequirementFile:
    """The run-time requirements of a CPU build, flattened."""
    name = first_file(tree, RUNTIME_FILES, "the run-time requirements of a CPU build")
    return read_requirement_file(tree, name)


def build_file(tree: Path) -> RequirementFile:
    """The build requirements of a CPU build, flattened."""
    name = first_file(tree, BUILD_FILES, "the build requirements of a CPU build")
    return read_requirement_file(tree, name)


def applying(requirement: Requirement, arch: str, minors: Iterable[str]) -> tuple[str, ...]:
    """The Pythons for which a requirement's marker holds on ``arch``."""
    marker = requirement.marker
    return tuple(
        m for m in minors if marker is None or marker.evaluate(marker_environment(arch, m))
    )


def _python(project: ProjectFacts, setup: SetupFacts, cmake: CMakeFacts) -> str:
    stated, where = (project.python, PROJECT) if project.python else (setup.python_requires, SETUP)
    if stated is None:
        where = f"{PROJECT}, {SETUP}"
        raise unreadable(where, "no range of Pythons is stated", "requires-python")
    return python_range(stated, where, cmake.pythons)


def _runtime_torch(runtime: RequirementFile, arch: str, python: str) -> str:
    where = runtime.files[0]
    torch = _torch((e.requirement for e in runtime.entries), arch, python, where)
    if torch is None:
        raise fail(
            ExitCode.UNSUPPORTED,
            f"{where}: this release names no torch version for {arch}",
            why="a CPU build is made against exactly the torch its release names",
            remedy=(f"choose a release whose {where} has a line torch==VERSION for {arch}",),
        )
    return torch


def _torch(requirements: Iterable[Requirement], arch: str, python: str, where: str) -> str | None:
    minors = supported_minors(python)
    torches = [r for r in requirements if r.name == "torch" and applying(r, arch, minors)]
    pins = tuple(dict.fromkeys(pin(r) for r in torches))
    if len(pins) > 1:
        raise unreadable(
            where,
            f"torch is not one version for {arch}: {', '.join(map(str, torches))}",
            "one torch==VERSION",
        )
    return pins[0] if pins else None


def _urls(runtime: RequirementFile, arch: str, python: str) -> tuple[UrlRequirement, ...]:
    minors = supported_minors(python)
    return tuple(
        _url(entry)
        for entry in runtime.entries
        if entry.requirement.url and applying(entry.requirement, arch, minors)
    )


def _url(entry: Listed) -> UrlRequirement:
    requirement = entry.requirement
    return UrlRequirement(
        name=entry.name, url=requirement.url or "", marker=str(requirement.marker or "")
    )
