"""A bootstrap with nothing to do: told from the receipt, until what shapes a build moves."""

from __future__ import annotations

import dataclasses

import pytest

from cpubuild import bootstrap, jsonio, settings
from cpubuild.state import RECEIPT, State

ASKED = settings.resolve(flags={}, environ={}).settings


@pytest.fixture
def state(tmp_path):
    """A state root whose current environment answers the default settings."""
    made = State(root=tmp_path / "state")
    env = made.envs / "0.32.0-1"
    site = env / "lib" / "python3.11" / "site-packages"
    libraries = (site / "torch" / "lib" / "libtorch_cpu.so", site / "vllm" / "_C.abi3.so")
    record = site / "vllm-0.32.0+cpu.dist-info" / "RECORD"
    for path in (env / "bin" / "python", env / "bin" / "vllm", env / "env.sh", record, *libraries):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    record.write_text("vllm/_C.abi3.so,sha256=0,0\n")
    request = bootstrap.request_fingerprint(ASKED)
    jsonio.write(env / RECEIPT, {"requests": [request], "verify": {"verdict": "pass"}})
    made.current.symlink_to(env)
    return made


def test_the_same_request_is_answered_by_the_receipt(state):
    kept = bootstrap.unchanged(ASKED, state)
    assert kept is not None
    assert kept["verify"]["verdict"] == "pass"


@pytest.mark.parametrize(
    "change", [{"profile": "full"}, {"vllm": "0.31.0"}, {"vllm": "latest"}, {"targets": "all"}]
)
def test_another_request_is_not(state, change):
    assert bootstrap.unchanged(dataclasses.replace(ASKED, **change), state) is None


@pytest.mark.parametrize("where", ["templates", "patches", "."])
def test_a_tool_that_changed_looks_again(state, tmp_path, monkeypatch, where):
    """Any file of the tool may shape a build, whether or not the version moved."""
    folders = {name: tmp_path / "tool" / name for name in ("patches", "templates")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    monkeypatch.setattr(bootstrap, "__file__", str(tmp_path / "tool" / "bootstrap.py"))
    monkeypatch.setattr(bootstrap.render, "shipped", folders.__getitem__)
    before = bootstrap.tool_content()
    assert bootstrap.tool_content() == before
    (tmp_path / "tool" / where / "lean.cmake").write_text("set(A 1)\n")
    assert bootstrap.tool_content() != before
    assert bootstrap.unchanged(ASKED, state) is None


@pytest.mark.parametrize(
    "name", ["bin/python", "env.sh", "lib/python3.11/site-packages/vllm/_C.abi3.so"]
)
def test_an_environment_that_lost_a_part_is_not_unchanged(state, name):
    (state.current_env() / name).unlink()
    assert bootstrap.unchanged(ASKED, state) is None
