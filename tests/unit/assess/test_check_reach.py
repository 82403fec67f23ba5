"""Which sources ``check`` asks whether they answer, and which releases it knows."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from cpubuild import check, checking
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.sources import reach
from cpubuild.sources.pipconfig import PipConfig

FOLDER = Path(__file__).parents[2] / "hosts"
HOSTS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def indexes_asked(monkeypatch: pytest.MonkeyPatch, config: PipConfig) -> list[str]:
    """The package indexes that are asked on a host whose pip says ``config``."""
    seen: list[str] = []
    monkeypatch.setattr(checking, "read_pip_config", lambda: config)
    monkeypatch.setattr(checking, "probe_reach", lambda sources, **_: seen.extend(sources) or ())
    checking.reachable()
    return [name for name in seen if "github" not in name and "pytorch" not in name]


def test_the_default_index_is_asked_where_pip_names_none(monkeypatch):
    assert indexes_asked(monkeypatch, PipConfig()) == [""]


def test_a_mirror_is_asked_instead_of_the_default_index_behind_it(monkeypatch):
    config = PipConfig(index_url="https://mirror.test/simple/")
    assert indexes_asked(monkeypatch, config) == ["https://mirror.test/simple/pip/"]


def test_indexes_beside_the_default_one_are_asked_too_and_folders_stay_folders(monkeypatch):
    config = PipConfig(extra_index_urls=("file:///srv/simple", "https://more.test/simple"))
    assert indexes_asked(monkeypatch, config) == [
        "",
        "file:///srv/simple",
        "https://more.test/simple/pip/",
    ]


def test_no_index_is_asked_when_pip_is_told_to_use_none(monkeypatch):
    assert indexes_asked(monkeypatch, PipConfig(no_index=True, find_links=("/srv/wheels",))) == []


def test_the_default_index_is_the_one_pip_itself_names(monkeypatch):
    shipped = SimpleNamespace(PyPI=SimpleNamespace(simple_url="https://default.test/simple"))
    monkeypatch.setitem(sys.modules, "pip._internal.models.index", shipped)
    assert reach.default_index_url() == "https://default.test/simple"


def test_a_pip_that_hides_its_default_index_is_no_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "pip._internal.models.index", SimpleNamespace())
    assert reach.default_index_url() is None


def test_a_release_without_a_torch_for_the_architecture_names_those_with_one(host, change):
    facts = change(host, cpu=replace(host.cpu, arch="riscv64"))
    wanted: Any = SimpleNamespace(vllm="0.17.1")
    with pytest.raises(CpuBuildError, match=r"0\.17\.1 names no torch for riscv64") as caught:
        checking.release_of(wanted, facts)
    assert caught.value.exit_code is ExitCode.UNSUPPORTED
    why = caught.value.problems[0].why
    assert "0.20.0" in why
    assert "0.6.3" not in why


@pytest.mark.parametrize("name", HOSTS)
def test_every_recorded_host_is_judged_and_the_document_follows_its_schema(name):
    facts = checking.recorded_facts(str(FOLDER / name))
    assert facts is not None
    wanted: Any = SimpleNamespace(vllm="0.32.0")
    document = check.run_check(facts, checking.release_of(wanted, facts)).to_json()
    jsonschema.Draft202012Validator(dict(check.schema())).validate(document)
    assert document["verdict"]["level"] != "unknown"
