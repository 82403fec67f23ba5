"""Which platform vLLM takes and why, judged."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cpubuild.verify import platform


@pytest.fixture
def unspecified(platform_doc: dict[str, Any]) -> dict[str, Any]:
    platform_doc["version"] = {"value": "0.32.0", "error": None}
    platform_doc["resolved"].update(
        {"class": "UnspecifiedPlatform", "is_cpu": False, "device_type": "", "unspecified": True}
    )
    platform_doc["builtin"][1].update(verdict=None, said=[])
    return platform_doc


def test_the_cpu_platform_passes(platform_doc: dict[str, Any]) -> None:
    check = platform.klass(platform_doc, "/env/bin/python")
    assert (check.status, check.summary) == ("pass", "CpuPlatform")
    assert platform.layers(platform_doc).status == "pass"


def test_a_subclass_is_accepted(platform_doc: dict[str, Any]) -> None:
    platform_doc["resolved"]["class"] = "ZenCpuPlatform"
    assert platform.klass(platform_doc, "python").status == "pass"
    assert platform.answer(platform_doc).cls == "ZenCpuPlatform"


def test_unspecified_is_explained_by_the_version(unspecified: dict[str, Any]) -> None:
    check = platform.klass(unspecified, "/env/bin/python")
    assert check.status == "fail"
    assert 'the version 0.32.0 does not contain "cpu"' in check.summary
    assert any("builtin plugin cpu: no" in line for line in check.evidence)
    assert "cpubuild repair --target /env/bin/python" in check.remedy[0]


def test_unspecified_without_metadata_is_explained(unspecified: dict[str, Any]) -> None:
    unspecified["version"] = {"value": None, "error": "PackageNotFoundError: vllm"}
    assert "no metadata" in platform.klass(unspecified, "python").summary


def test_a_gpu_platform_names_the_plugin(platform_doc: dict[str, Any]) -> None:
    platform_doc["resolved"].update({"class": "CudaPlatform", "is_cpu": False})
    platform_doc["builtin"][0]["verdict"] = "vllm.platforms.cuda.CudaPlatform"
    platform_doc["builtin"][1]["verdict"] = None
    assert "taken by cuda" in platform.klass(platform_doc, "python").summary


def test_two_plugins_at_once_are_what_vllm_said(platform_doc: dict[str, Any]) -> None:
    platform_doc["resolved"] = {"error": "RuntimeError: Only one platform plugin", "said": []}
    check = platform.klass(platform_doc, "python")
    assert check.status == "fail"
    assert "Only one platform plugin" in check.summary


def test_an_import_error_is_the_answer(platform_doc: dict[str, Any]) -> None:
    platform_doc["import_error"] = "OSError: libc10.so: cannot open shared object file"
    check = platform.klass(platform_doc, "python")
    assert check.status == "fail"
    assert "libc10.so" in check.summary
    assert platform.layers(platform_doc).status == "unknown"


def test_layers_name_external_plugins_and_their_faults(platform_doc: dict[str, Any]) -> None:
    platform_doc["external"] = [
        {
            "name": "zen",
            "verdict": None,
            "error": "ImportError: no module zentorch",
            "said": [],
            "distribution": "zentorch 2.13",
        }
    ]
    check = platform.layers(platform_doc)
    assert check.status == "warn"
    line = "external plugin zen of zentorch 2.13: no (ImportError: no module zentorch)"
    assert line in check.evidence


def test_nothing_set_changes_nothing(platform_doc: dict[str, Any]) -> None:
    assert platform.environment(platform_doc, None, {}).status == "pass"


def test_cpu_only_because_of_the_variable(unspecified: dict[str, Any]) -> None:
    caller = copy.deepcopy(unspecified)
    caller["resolved"].update({"class": "CpuPlatform", "is_cpu": True, "unspecified": False})
    check = platform.environment(unspecified, caller, {"VLLM_TARGET_DEVICE": "cpu"})
    assert check.summary.startswith("CPU only because VLLM_TARGET_DEVICE is set")
    assert check.status == "warn"


def test_an_environment_that_takes_the_cpu_away_fails(
    platform_doc: dict[str, Any], unspecified: dict[str, Any]
) -> None:
    healthy = copy.deepcopy(platform_doc)
    healthy["resolved"].update({"class": "CpuPlatform", "is_cpu": True})
    check = platform.environment(healthy, unspecified, {"PYTHONPATH": "/src"})
    assert check.status == "fail"
    assert check.remedy[0].startswith("unset PYTHONPATH")


def test_a_variable_without_effect_passes(platform_doc: dict[str, Any]) -> None:
    check = platform.environment(platform_doc, platform_doc, {"VLLM_TARGET_DEVICE": "cpu"})
    assert check.status == "pass"


def test_a_caller_that_cannot_be_asked_is_a_warning(platform_doc: dict[str, Any]) -> None:
    check = platform.environment(platform_doc, None, {"LD_PRELOAD": "/x.so"}, "died by SIGSEGV")
    assert check.status == "warn"
    assert "SIGSEGV" in check.summary
