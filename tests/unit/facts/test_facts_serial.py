from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.facts.collect import collect
from cpubuild.facts.serial import facts_from_json, facts_to_json, read_facts

HOSTS = Path(__file__).parents[2] / "hosts"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return facts_to_json(collect(HOSTS / "avx2--zen3", disks={}))


def test_sets_are_sorted_lists(document: dict[str, Any]) -> None:
    assert document["cpu"]["flags"] == sorted(document["cpu"]["flags"])
    assert json.loads(json.dumps(document)) == document


def test_everything_wrong_is_said_at_once_with_its_place(document: dict[str, Any]) -> None:
    broken = copy.deepcopy(document)
    broken["cpu"]["logical"] = "8"
    broken["cpu"]["flags"] = "avx2"
    broken["cpu"]["quota"] = True
    broken["memory"]["colour"] = 1
    del broken["distro"]["id"]
    broken["libc"]["name"] = "bionic"
    broken["compilers"][0]["works"] = 1
    broken["compilers"][0]["options"][0] = ["-mavx2"]
    with pytest.raises(CpuBuildError) as caught:
        facts_from_json(broken)
    said = "\n".join(problem.what for problem in caught.value.problems)
    assert caught.value.exit_code is ExitCode.SETTINGS
    for part in (
        "'8' is not a whole number @ $.cpu.logical",
        "'avx2' is not a list @ $.cpu.flags",
        "True is not a number @ $.cpu.quota",
        "colour",
        "$.distro.id",
        "bionic",
        "1 is not true or false @ $.compilers",
        "does not have 2 parts",
    ):
        assert part in said


def test_a_missing_optional_part_has_its_default(document: dict[str, Any]) -> None:
    shorter = copy.deepcopy(document)
    del shorter["reach"], shorter["cpu"]["offline"]
    assert facts_from_json(shorter) == facts_from_json(document)


@pytest.mark.parametrize("document", [None, [], "x", 3, {}, {"cpu": []}])
def test_what_is_no_host_is_refused(document: Any) -> None:
    with pytest.raises(CpuBuildError):
        facts_from_json(document)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\xff"])
def test_a_file_that_is_no_document(tmp_path: Path, text: str) -> None:
    path = tmp_path / "host.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(CpuBuildError) as caught:
        read_facts(path)
    assert str(path) in str(caught.value)


def test_a_file_is_read(tmp_path: Path, document: dict[str, Any]) -> None:
    path = tmp_path / "host.json"
    path.write_text(json.dumps(document))
    assert read_facts(path) == facts_from_json(document)


def test_a_damaged_recording_is_a_settings_error(tmp_path: Path) -> None:
    (tmp_path / "recorded.json").write_text("{")
    with pytest.raises(CpuBuildError) as caught:
        collect(tmp_path, disks={})
    assert caught.value.exit_code is ExitCode.SETTINGS


def test_an_empty_folder_is_a_host_of_unknowns(tmp_path: Path) -> None:
    facts = collect(tmp_path, disks={"state": tmp_path}, environ={"VLLM_X": "1", "PATH": "/bin"})
    assert facts.cpu.arch == "unknown"
    assert facts.libraries.numa_header is None
    assert facts.libc.name == "unknown"
    assert facts.disks == ()
    assert facts.environment == ()
    assert facts_from_json(facts_to_json(facts)) == facts
