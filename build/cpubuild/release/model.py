"""What a vLLM release asks for, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class UrlRequirement:
    """A requirement that names a URL: its project name, the URL and the marker in words."""

    name: str
    url: str
    marker: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """What one vLLM tree asks of a host with one architecture.

    ``torch`` is the version pinned for ``arch`` by the CPU requirement file, local part included
    when the file has it. ``torch_build`` the one the build requirements pin, ``torch_project``
    the one in pyproject.toml (they may differ; then the run-time file wins). ``python`` is a
    specifier set in words, narrowed by the versions CMake accepts (``cmake_python``). File names
    are relative to the tree. ``targets`` names the extension targets for ``arch`` in CMake's
    order; ``arch_refusal`` is what CMake says when it stops on every CPU of ``arch``.
    ``gcc_floor`` is None when the tree states none; ``gcc_fatal`` whether CMake stops below it
    (else it warns and leaves instructions out). ``onednn_tag`` is None where ``arch`` builds
    without oneDNN. ``platform_detection`` is how a CPU build is recognised: ``version`` (the
    string "cpu" in the version), ``env`` (VLLM_TARGET_DEVICE at run time too). ``env_names`` are
    the variables vllm/envs.py lists, ``env_names_elsewhere`` those that setup.py, CMake and the
    CPU modules read beside them. ``cmake_args`` is whether setup.py passes CMAKE_ARGS on.
    """

    version: str
    arch: str
    torch: str
    torch_build: str | None
    torch_project: str | None
    python: str
    runtime_requirements: str
    common_requirements: str | None
    build_requirements: str
    gcc_floor: str | None
    gcc_fatal: bool
    cxx_standard: int
    onednn_tag: str | None
    onednn_local_source: bool
    targets: tuple[str, ...]
    url_requirements: tuple[UrlRequirement, ...]
    rust: bool
    rust_toolchain: str | None
    setuptools_rust: bool
    platform_detection: Literal["version", "env"]
    cuda_yields_to_cpu: bool
    version_override: bool
    index_lines: tuple[str, ...]
    env_names: frozenset[str]
    kv_cache_memory_bytes: bool
    cmake_python: tuple[str, ...] = ()
    cmake_args: bool = False
    arch_refusal: str | None = None
    env_names_elsewhere: frozenset[str] = frozenset()
