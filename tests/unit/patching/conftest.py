"""Releases and contexts for the tests of the patch series."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cpubuild.patching import PatchContext
from cpubuild.release import Release


@pytest.fixture
def make_release() -> Callable[..., Release]:
    def make(version: str = "0.32.0", **changes: object) -> Release:
        values: dict[str, object] = {
            "version": version,
            "arch": "x86_64",
            "torch": "2.13.0+cpu",
            "torch_build": None,
            "torch_project": None,
            "python": ">=3.11",
            "runtime_requirements": "requirements/cpu.txt",
            "common_requirements": "requirements/common.txt",
            "build_requirements": "requirements/build/cpu.txt",
            "gcc_floor": "12.3",
            "gcc_fatal": True,
            "cxx_standard": 20,
            "onednn_tag": "v3.13",
            "onednn_local_source": True,
            "targets": ("_C", "_C_AVX512", "_C_AVX2"),
            "url_requirements": (),
            "rust": True,
            "rust_toolchain": None,
            "setuptools_rust": True,
            "platform_detection": "env",
            "cuda_yields_to_cpu": True,
            "version_override": True,
            "index_lines": (),
            "env_names": frozenset(),
            "kv_cache_memory_bytes": True,
        }
        return Release(**{**values, **changes})  # type: ignore[arg-type]

    return make


@pytest.fixture
def make_context() -> Callable[..., PatchContext]:
    def make(**changes: object) -> PatchContext:
        values: dict[str, object] = {
            "arch": "x86_64",
            "gcc_version": "12.2.0",
            "gcc_probe_ok": True,
            "x86_target": "_C",
        }
        return PatchContext(**{**values, **changes})  # type: ignore[arg-type]

    return make
