"""serve, ask and chat with the real vLLM and a tiny model: from a start to nothing left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cpubuild.verify.target import Target

pytestmark = pytest.mark.e2e

CPUBUILD = Path(sys.executable).parent / "cpubuild"


@pytest.fixture(scope="module")
def model(installed: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny Qwen2 of verify, made by its own stage in the environment."""
    folder = tmp_path_factory.mktemp("made")
    target = Target(python=Path(installed["environment"]) / "bin" / "python", folder=folder)
    target.prepare(fresh_caches=False)
    answer = target.run(("reference",), name="reference")
    reference = answer.good("reference")
    assert reference is not None, answer.completed.stdout
    named = folder / "tiny-qwen2"
    shutil.copytree(reference["model"], named)
    return named


@pytest.fixture(scope="module")
def root(
    installed: dict[str, Any], tool: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """The tool with a state root of its own, whose environment is the installed one."""
    folder = tmp_path_factory.mktemp("state")
    (folder / "current").symlink_to(installed["environment"])
    made = type(tool)(folder)
    yield made
    made.call("serve", "--stop")


@pytest.fixture
def started(root: Any, model: Path) -> dict[str, Any]:
    """The server: it is started unless it runs already."""
    found: dict[str, Any] = root.document("serve", str(model), "--port", "0")
    return found


def answering(root: Any) -> psutil.Process:
    record = json.loads((root.state / "server" / "server.json").read_text(encoding="utf-8"))
    return psutil.Process(record["server"]["pid"])


def test_it_starts_tuned_and_says_how_it_is(root: Any, started: dict[str, Any]) -> None:
    assert (started["tuned"], started["name"]) == (True, "tiny-qwen2")
    status = root.document("serve", "--status")
    assert status["health"] == "ok"
    assert status["requests"] == {"running": 0.0, "waiting": 0.0}
    assert status["memory"]["processes"] >= 3
    key = (root.state / "server" / "key").read_text(encoding="utf-8").strip()
    family = [answering(root), *answering(root).children(recursive=True)]
    assert not any(key in " ".join(p.cmdline()) for p in family)


def test_it_answers_and_counts(root: Any, started: dict[str, Any]) -> None:
    words = ("--max-tokens", "12", "--temperature", "0")
    found = root.document("ask", "人工智能 on a CPU", *words)
    assert found["tokens"]["completion"] == 12
    assert found["finish_reason"] == "length"
    assert found["tokens_per_s"] > 0
    assert root.document("ask", "人工智能 on a CPU", *words)["text"] == found["text"]
    assert root.document("serve", "--status")["tokens"]["generated"] >= 24


def test_a_chat_sends_what_was_said_before(root: Any, started: dict[str, Any]) -> None:
    done = subprocess.run(
        [str(CPUBUILD), "chat", "--max-tokens", "8", "--json"],
        env=os.environ | {"CPUBUILD_STATE": str(root.state)},
        input="你好\nand now?\n".encode(),
        capture_output=True,
        timeout=600,
        check=True,
    )
    first, second = json.loads(done.stdout)["turns"]
    assert second["tokens"]["prompt"] > first["tokens"]["prompt"] + 8


def test_it_is_measured_by_vllm_s_own_bench(root: Any, started: dict[str, Any]) -> None:
    found = root.document("bench", "--streams", "1,2", "--tokens", "16")
    (run,) = found["runs"]
    assert run["client"].startswith("vllm bench serve")
    for row in run["loads"]:
        # both numbers are rounded
        assert row["tokens_per_s"] * row["seconds"] == pytest.approx(16 * row["streams"], rel=0.2)
        assert 0 < row["first_median"] < row["seconds"]
    assert run["memory"] > 0
    key = (root.state / "server" / "key").read_text(encoding="utf-8").strip()
    kept = [p for p in Path(found["folder"]).rglob("*") if p.is_file()]
    assert len([p for p in kept if p.suffix == ".log"]) == 2
    assert not any(key in p.read_text(encoding="utf-8", errors="replace") for p in kept)


def test_a_second_start_says_what_runs(
    root: Any, started: dict[str, Any], model: Path, tmp_path: Path
) -> None:
    again = root.document("serve", str(model))
    assert (again["changed"], again["pid"]) == (False, started["pid"])
    shutil.copytree(model, tmp_path / "another")
    root.document("serve", str(tmp_path / "another"), code=75)


def test_an_engine_that_is_killed_is_explained_and_leaves_nothing(
    root: Any, started: dict[str, Any], model: Path
) -> None:
    chief = answering(root)
    family = [chief, *chief.children(recursive=True)]
    engine = next(p for p in family if "EngineCore" in " ".join(p.cmdline()))
    engine.send_signal(signal.SIGKILL)
    psutil.wait_procs([chief], timeout=60)
    error = root.document("ask", "still there?", code=8)["error"]
    assert "has ended" in error["problems"][0]["what"]
    assert error["problems"][0]["why"]
    assert error["problems"][0]["remedy"]
    deadline = time.monotonic() + 60
    while any(lives(p) for p in family) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not [p for p in family if lives(p)]


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def test_started_again_and_stopped_nothing_is_left(root: Any, model: Path) -> None:
    assert root.document("serve", str(model), "--port", "0")["changed"] is True
    chief = answering(root)
    family = [chief, *chief.children(recursive=True)]
    stopped = root.document("serve", "--stop")
    assert (stopped["changed"], stopped["port_free"]) == (True, True)
    assert not [p for p in family if lives(p)]
    assert root.document("serve", "--status", code=4)["running"] is False
    assert root.document("serve", "--stop")["changed"] is False
