"""The torch of a run without a network: remembered, and never in the way."""

from __future__ import annotations

import json

import pytest

from cpubuild import checking, jsonio, picks, survey
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.settings import resolve
from cpubuild.sources import trees
from cpubuild.sources.pipconfig import PipConfig
from cpubuild.sources.torch import TorchChoice, TorchMissing

FOUND = TorchChoice(
    project="torch",
    pin="2.13.0",
    version="2.13.0+cpu",
    filename="torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl",
    url="https://download.pytorch.org/whl/cpu/torch.whl",
    origin="https://download.pytorch.org/whl/cpu",
    reason="the pinned version",
    sha256="0" * 64,
)
GONE = TorchMissing(
    project="torch", pin="2.13.0", why="nobody answered", remedy=("mend the network",)
)


@pytest.fixture
def ask(release, make_facts, state, monkeypatch):
    """Pick Python and torch while the index answers as told."""
    facts = make_facts()
    wished = resolve({"state": str(state.root)}, {}).settings

    def pick(answer):
        monkeypatch.setattr(
            picks,
            "pythons_with_torch",
            lambda pin, found, **named: tuple((i, answer) for i in found),
        )
        return picks.pick_python(release, wished, facts, PipConfig(), state)

    return pick


def test_what_was_found_is_found_again_without_an_index(ask, state):
    interpreter, torch = ask(FOUND)
    assert torch == FOUND
    again, remembered = ask(GONE)
    assert again == interpreter
    assert remembered.sha256 == FOUND.sha256
    assert remembered.reason.startswith("found before")
    assert FOUND.reason in remembered.reason


def test_nothing_remembered_is_told_with_the_reasons(ask):
    with pytest.raises(CpuBuildError) as caught:
        ask(GONE)
    (problem,) = caught.value.problems
    assert problem.exit_code is ExitCode.DOWNLOAD
    assert "nobody answered" in problem.why
    assert problem.remedy[0] == "mend the network"
    assert "--vllm latest" in problem.remedy[-1]


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "{}", json.dumps({"reason": "x", "wheel": 1}), json.dumps({"reason": "x"})],
)
def test_a_memory_of_another_shape_is_no_memory(ask, state, content):
    ask(FOUND)
    (path,) = state.cache.glob("torch-*.json")
    path.write_text(content)
    with pytest.raises(CpuBuildError) as caught:
        ask(GONE)
    assert caught.value.exit_code is ExitCode.DOWNLOAD
    assert ask(FOUND)[1] == FOUND
    assert jsonio.read(path)


@pytest.mark.parametrize("offline", [False, True])
def test_an_ancient_release_is_refused_even_where_it_is_cached(make_facts, state, offline):
    record = {"spec": "0.0.1", "kind": "sdist", "key": "k", "reason": "r", "version": "0.0.1"}
    trees.place(state.sources, "vllm-k", record, lambda tree: None)
    given = {"state": str(state.root), "vllm": "0.0.1", "offline": offline}
    wished = resolve(given, {}).settings
    for look in (
        lambda: survey.choose_source(wished, make_facts(), PipConfig(), state),
        lambda: checking.release_of(wished, make_facts()),
    ):
        with pytest.raises(CpuBuildError, match=r"no vLLM 0\.0\.1 that can be built") as caught:
            look()
        assert caught.value.exit_code is ExitCode.SETTINGS
