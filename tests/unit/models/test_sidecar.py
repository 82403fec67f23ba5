"""Environments beside the tool's own: made once, whole or not there, named by their content."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cpubuild import sidecar as module
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.sidecar import place, sidecar, whole
from cpubuild.sources.pipconfig import PipConfig
from cpubuild.state import State

WANTED = ("thing>=1", "other")


class Uv:
    """An installer that makes what uv would, and fails when told."""

    made = 0
    offline: bool | None = None
    fails: CpuBuildError | BaseException | None = None

    def __init__(self, *, arguments: Any, environment: Any, offline: bool) -> None:
        Uv.offline = offline

    def create(self, env: Path, *, python: str, folder: Path) -> Path:
        Uv.made += 1
        (env / "bin").mkdir(parents=True)
        (env / "bin" / "python").touch()
        return env / "bin" / "python"

    def lock(self, requirements: Sequence[str], *, python: Path, out: Path, folder: Path) -> None:
        if Uv.fails is not None:
            raise Uv.fails
        out.write_text("thing==1\n")

    def install_lock(self, lock: Path, *, python: Path, folder: Path) -> None:
        site = python.parent.parent / "lib" / "python3.11" / "site-packages"
        info = site / "thing-1.dist-info"
        info.mkdir(parents=True)
        (site / "thing.py").write_text("x = 1\n")
        (info / "RECORD").write_text("thing.py,sha256=a,6\nthing-1.dist-info/RECORD,,\n")

    def freeze(self, python: Path) -> tuple[str, ...]:
        return ("thing==1",)


@pytest.fixture
def uv(monkeypatch: pytest.MonkeyPatch) -> type[Uv]:
    monkeypatch.setattr(module, "Installer", Uv)
    monkeypatch.setattr(module, "read_pip_config", PipConfig)
    monkeypatch.setattr(Uv, "made", 0)
    monkeypatch.setattr(Uv, "fails", None)
    return Uv


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(root=tmp_path / "state")


def made(state: State, *, offline: bool = False) -> Path:
    return sidecar(state, "name", WANTED, folder=state.root / "log", offline=offline)


def test_it_is_made_once(uv: type[Uv], state: State) -> None:
    python = made(state)
    assert python == place(state, "name", WANTED) / "bin" / "python"
    assert made(state) == python
    assert uv.made == 1
    assert (state.root / "lock").is_file()  # so that clean takes it for ours


@pytest.mark.parametrize(
    "spoil", ["bin/python", "sidecar.json", "lib/python3.11/site-packages/thing.py"]
)
def test_one_that_lost_a_file_is_made_again(uv: type[Uv], state: State, spoil: str) -> None:
    env = made(state).parent.parent
    (env / spoil).unlink()
    assert not whole(env)
    made(state)
    assert (uv.made, whole(env)) == (2, True)


def test_one_with_a_file_of_another_size_or_a_lost_package_is_not_whole(
    uv: type[Uv], state: State
) -> None:
    env = made(state).parent.parent
    site = env / "lib/python3.11/site-packages"
    (site / "thing.py").write_text("longer than it was")
    assert not whole(env)
    (site / "thing.py").write_text("x = 1\n")
    assert whole(env)
    (site / "thing-1.dist-info" / "RECORD").rename(site / "RECORD")
    assert not whole(env)


def test_what_is_asked_for_names_it(state: State) -> None:
    assert place(state, "name", WANTED) == place(state, "name", WANTED[::-1])
    assert place(state, "name", WANTED) != place(state, "name", ("thing>=2", "other"))
    assert place(state, "name", WANTED).parent == state.tools


@pytest.mark.parametrize("offline", [True, False])
def test_packages_that_cannot_be_had(uv: type[Uv], state: State, offline: bool) -> None:
    uv.fails = fail(ExitCode.DOWNLOAD, "no index", log=Path("/log"), tail=("the end",))
    with pytest.raises(CpuBuildError, match="thing>=1, other cannot be installed") as caught:
        made(state, offline=offline)
    error = caught.value
    assert (error.exit_code, error.tail, error.log) == (
        ExitCode.DOWNLOAD,
        ("the end",),
        Path("/log"),
    )
    assert ("leave out --offline" in error.problems[0].remedy) is offline
    assert uv.offline is offline
    assert not place(state, "name", WANTED).exists()


def test_an_interrupt_leaves_nothing(uv: type[Uv], state: State) -> None:
    uv.fails = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        made(state)
    assert not place(state, "name", WANTED).exists()
    uv.fails = None
    made(state)


def test_another_failure_stays_what_it_is(uv: type[Uv], state: State) -> None:
    uv.fails = fail(ExitCode.PREREQUISITE, "no interpreter")
    with pytest.raises(CpuBuildError, match="no interpreter"):
        made(state)
