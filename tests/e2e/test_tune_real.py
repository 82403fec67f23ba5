"""Tuning the real vLLM: what is computed, and a short measurement with the tiny model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e


def test_the_installed_release_takes_what_is_computed(tool: Any, installed: Any) -> None:
    document = tool.document("tune")
    names = {v["name"]: v["value"] for v in document["variables"]}
    assert document["release"] == installed["receipt"]["vllm"]["version"].split("+")[0]
    assert document["fits"]
    for path in names.get("LD_PRELOAD", "").split(":"):
        assert not path or Path(path).is_file()
    assert not [f for f in document["findings"] if f["id"] == "tune.names"]
    if len(os.sched_getaffinity(0)) == 2:
        assert names["VLLM_CPU_NUM_OF_RESERVED_CPU"] == "0"


def test_a_short_measurement_is_never_worse_than_the_default(tool: Any, installed: Any) -> None:
    before = tool.document("tune")["findings"]
    measured = tool.document("tune", "--measure", "--quick")["measured"]
    trials = measured["trials"]
    assert trials[0]["name"] == "vLLM's default"
    assert [t for t in trials if t["failure"]] == []
    (chosen,) = (t for t in trials if t["chosen"])
    assert chosen["single"] >= trials[0]["single"]
    assert chosen["batch"] >= trials[0]["batch"]
    assert measured["kept"] is None  # of the tiny model
    assert Path(measured["logs"]).is_dir()
    ids = [f["id"] for f in tool.document("tune")["findings"]]
    assert ids == [f["id"] for f in before]
