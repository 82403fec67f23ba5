"""Getting models through the hubs' real clients, from a hub of our own that fails as told."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest
from tests.tinymodel import model_files

from cpubuild import jsonio, models
from cpubuild.calls import Call, Outcome
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.models import hubs, keeping, store
from cpubuild.models.verb import model
from cpubuild.sidecar import sidecar
from cpubuild.state import State

from .modelhub import COMMIT, OWNER, Hub

FOREIGN = re.compile(r"(HF_|MODELSCOPE_|VLLM_|HUGGING)")
SCHEMA = json.loads(
    resources.files("cpubuild").joinpath("data", "schemas", "model.json").read_text("utf-8")
)
BOTH = pytest.mark.parametrize("source", ["hf", "modelscope"])


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clients, installed once from the package index for all tests of this process."""
    state = State(root=tmp_path_factory.mktemp("clients"))
    log = state.root / "log"
    sidecar(state, hubs.SIDECAR, hubs.REQUIREMENTS, folder=log, offline=False)
    return state.tools


@pytest.fixture
def hub(httpserver: Any) -> Hub:
    hub = Hub()
    httpserver.expect_request(re.compile(".*")).respond_with_handler(hub.answer)
    return hub


class Tool:
    """The verb on a state root of the test's own, its hubs pointing to loopback."""

    def __init__(self, root: Path, url: str) -> None:
        self.state = State(root=root)
        kept = {k: v for k, v in os.environ.items() if not FOREIGN.match(k)}
        self.environ = kept | {
            "HF_ENDPOINT": url,
            "MODELSCOPE_ENDPOINT": url,
            "MODELSCOPE_DOWNLOAD_MAX_RETRIES": "2",
            "MODELSCOPE_CACHE": str(root / "unused"),
            "HF_HOME": str(root / "unused"),
            "HOME": str(root / "home"),
            "NO_PROXY": "*",
        }

    def __call__(self, action: str, name: str | None = None, **more: Any) -> Outcome:
        flags = {"state": str(self.state.root), "offline": more.pop("offline", False)}
        options = {"action": action, "name": name, "from_": None, "revision": None, **more}
        call = Call(flags=flags, options=options, verbose=False, environ=self.environ)
        outcome = model(call)
        jsonschema.validate(json.loads(jsonio.dumps(outcome.document)), SCHEMA)
        return outcome

    def refused(self, *words: str, **more: Any) -> CpuBuildError:
        with pytest.raises(CpuBuildError) as caught:
            self(*words, **more)
        return caught.value


@pytest.fixture
def tool(tmp_path: Path, tools: Path, hub: Hub, httpserver: Any) -> Tool:
    made = Tool(tmp_path / "state", httpserver.url_for("").rstrip("/"))
    made.state.prepare()
    made.state.tools.rmdir()
    made.state.tools.symlink_to(tools)
    return made


def files_of(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir()}


@BOTH
def test_a_model_is_fetched_checked_and_stored_once(tool: Tool, hub: Hub, source: str) -> None:
    hub.files["pytorch_model.bin"] = b"no"
    hub.files["modeling.py"] = b"no"
    done = tool("get", OWNER, from_=source)
    shown = done.document["model"]
    assert (done.document["changed"], shown["whole"]) == (True, True)
    assert (shown["id"], shown["revision"], shown["hub"]) == (OWNER, COMMIT, source)
    assert shown["path"] == tool.state.models / source / OWNER / COMMIT / "files"
    assert files_of(shown["path"]) == model_files()
    assert {f.status for f in done.document["findings"]} == {"ok"}
    receipt = jsonio.read(shown["path"].parent / "model.json")
    assert receipt is not None
    hashes = {row["path"]: row["sha256"] for row in receipt["files"]}
    assert hashes == {n: hashlib.sha256(c).hexdigest() for n, c in model_files().items()}
    assert models.find(OWNER, tool.state, tool.environ) == shown["path"]
    assert models.find("tiny-qwen@c0ff", tool.state, tool.environ) == shown["path"]
    assert keeping.unfinished(tool.state) == ()
    hub.asked.clear()
    again = tool("get", OWNER, from_=source)
    assert again.document["changed"] is False
    assert len(hub.asked) == 1  # which commit it is now
    hub.asked.clear()
    assert not tool("get", OWNER, from_=source, revision=COMMIT).document["changed"]
    assert not tool("get", OWNER, from_=source, offline=True).document["changed"]
    assert hub.asked == []


@BOTH
def test_a_cut_connection_is_continued_where_it_ended(tool: Tool, hub: Hub, source: str) -> None:
    hub.files = model_files(padding=6_000_000)
    hub.cuts = 2
    done = tool("get", OWNER, from_=source)
    assert files_of(done.document["model"]["path"]) == hub.files
    starts = [r for r in hub.ranges if re.fullmatch(r"model.safetensors bytes=[1-9]\d*-\d*", r)]
    assert len(starts) == 2


@BOTH
def test_what_has_come_is_kept_for_the_next_run(tool: Tool, hub: Hub, source: str) -> None:
    hub.files = model_files(padding=6_000_000)
    hub.cuts = 1000
    error = tool.refused("get", OWNER, from_=source)
    assert error.exit_code is ExitCode.DOWNLOAD
    assert "bytes are kept to continue from" in str(list(error.problems))
    (begun,) = tool("list").document["unfinished"]
    assert (begun["id"], begun["revision"]) == (OWNER, COMMIT)
    assert store.stored(tool.state) == ()
    hub.cuts = 0
    hub.ranges.clear()
    assert tool("get", OWNER, from_=source).document["changed"]
    assert any(re.search(r"bytes=[1-9]", r) for r in hub.ranges)
    assert tool("list").document["unfinished"] == ()


@BOTH
def test_an_interrupted_run_leaves_no_process_and_is_continued(
    tool: Tool, hub: Hub, source: str
) -> None:
    hub.files = model_files(padding=6_000_000)
    hub.cuts, hub.hold = 1, threading.Event()
    program = [str(Path(sys.executable).with_name("cpubuild")), "model", "get", OWNER]
    program += ["--from", source, "--state", str(tool.state.root), "--json"]
    running = subprocess.Popen(
        program, env=tool.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    partial = tool.state.models / keeping.PARTIAL
    until(lambda: hubs.bytes_in(partial) > 10_000_000)
    running.send_signal(signal.SIGTERM)
    out, _ = running.communicate(timeout=60)
    hub.hold.set()
    assert running.returncode == ExitCode.BUSY
    assert json.loads(out)["error"]["problems"][0]["what"] == "interrupted"
    left = [p for p in psutil.process_iter() if str(tool.state.root) in " ".join(words(p))]
    assert left == []
    hub.hold = None
    done = tool("get", OWNER, from_=source)
    assert files_of(done.document["model"]["path"]) == hub.files
    assert any(re.fullmatch(r"model.safetensors bytes=\d{8}-\d*", r) for r in hub.ranges)


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline, "it never came so far"
        time.sleep(0.05)


def words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@BOTH
@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_wrong_content_is_thrown_away_and_comes_anew(
    tool: Tool, hub: Hub, source: str, name: str
) -> None:
    right = hub.files[name]
    hub.lies[name] = right[:-1] + b" "
    error = tool.refused("get", OWNER, from_=source)
    assert error.exit_code is ExitCode.DOWNLOAD
    assert name in str(error)
    assert "content" in str(error)
    assert "thrown away" in str(error)
    assert store.stored(tool.state) == ()
    hub.lies.clear()
    assert tool("get", OWNER, from_=source).document["changed"]


@BOTH
def test_a_file_that_stays_truncated_is_refused(tool: Tool, hub: Hub, source: str) -> None:
    hub.lies["model.safetensors"] = hub.files["model.safetensors"][:-10]
    error = tool.refused("get", OWNER, from_=source)
    assert error.exit_code is ExitCode.DOWNLOAD
    assert store.stored(tool.state) == ()


@BOTH
def test_an_id_that_there_is_not(tool: Tool, source: str) -> None:
    error = tool.refused("get", "team/nothing", from_=source)
    assert error.exit_code is ExitCode.DOWNLOAD
    assert "has no team/nothing" in str(error)
    assert "127.0.0.1" in str(error) or "localhost" in str(error)
    assert list(tool.state.models.glob("*")) == []


def test_a_revision_that_there_is_not(tool: Tool) -> None:
    error = tool.refused("get", OWNER, revision="v9")
    assert f"has no revision v9 of {OWNER}" in str(error)


@BOTH
@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_model_names_the_token(tool: Tool, hub: Hub, source: str, status: int) -> None:
    hub.refuses, hub.error_code = status, "GatedRepo"
    error = tool.refused("get", OWNER, from_=source)
    assert error.exit_code is ExitCode.DOWNLOAD
    assert "access is refused" in str(error)
    assert "TOKEN" in " ".join(error.problems[0].remedy)


@BOTH
def test_without_a_network_the_error_names_what_can_be_used(tool: Tool, source: str) -> None:
    dead = "http://127.0.0.1:9"
    tool.environ |= {"HF_ENDPOINT": dead, "MODELSCOPE_ENDPOINT": dead}
    error = tool.refused("get", OWNER, from_=source)
    assert error.exit_code is ExitCode.DOWNLOAD
    assert f"{OWNER} cannot be fetched: {dead} does not answer" in str(error)
    remedy = " ".join(error.problems[0].remedy)
    assert all(word in remedy for word in ("mirror", "folder", "archive", "tiny model")[1:])
    assert "ENDPOINT" in remedy


def test_offline_no_hub_and_no_index_is_asked(tool: Tool, hub: Hub) -> None:
    tool.state.tools.unlink()
    error = tool.refused("get", OWNER, offline=True)
    assert error.exit_code is ExitCode.DOWNLOAD
    assert "this run is offline" in str(error)
    assert hub.asked == []


def test_a_full_disk_is_foreseen(tool: Tool, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(keeping.shutil, "disk_usage", lambda _: usage._replace(free=10_000_000))
    error = tool.refused("get", OWNER)
    assert error.exit_code is ExitCode.PREREQUISITE
    assert "0.01 GB are free" in str(error)
    assert not any("/resolve/" in line for line in hub.asked)


def test_a_disk_that_fills_up_meanwhile(
    tool: Tool, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files = model_files(padding=6_000_000)
    tool.state.models.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(tool.state.models)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    monkeypatch.setattr(keeping, "need_room", lambda *_: None)  # room was there when it looked
    try:
        error = tool.refused("get", OWNER)
        assert error.exit_code is ExitCode.PREREQUISITE
        assert "the disk was full before all of" in str(error)
        assert store.stored(tool.state) == ()
    finally:
        subprocess.run(["umount", str(tool.state.models)], check=True)


def test_weights_that_do_not_fit_the_configuration_are_not_stored(tool: Tool, hub: Hub) -> None:
    hub.files = model_files(num_hidden_layers=3)
    error = tool.refused("get", OWNER)
    assert error.exit_code is ExitCode.VERIFY
    assert "3 layers are asked for" in str(error)
    assert store.stored(tool.state) == ()


def test_a_repository_without_safetensors(tool: Tool, hub: Hub) -> None:
    hub.files = {"config.json": b"{}", "pytorch_model.bin": b"x"}
    assert "only weights as .bin" in str(tool.refused("get", OWNER))


@BOTH
def test_a_stored_model_that_lost_a_file_is_told_and_mended(
    tool: Tool, hub: Hub, source: str
) -> None:
    path = tool("get", OWNER, from_=source).document["model"]["path"]
    (path / "tokenizer.json").unlink()
    with pytest.raises(CpuBuildError, match="not whole any more"):
        models.find(OWNER, tool.state, tool.environ)
    assert tool("check", OWNER).exit_code is ExitCode.VERIFY
    hub.asked.clear()
    assert tool("get", OWNER, from_=source).document["changed"]
    assert tool("check", OWNER).document["verdict"] == "pass"
    big = [a for a in hub.asked if a.startswith("GET") and a.endswith("model.safetensors")]
    assert big == []


def test_check_finds_a_flipped_bit(tool: Tool) -> None:
    path = tool("get", OWNER).document["model"]["path"] / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    done = tool("check", OWNER)
    assert done.exit_code is ExitCode.VERIFY
    first = done.document["findings"][0]
    assert (first.id, first.status) == ("model.hashes", "blocker")
    assert "model.safetensors has the wrong content" in first.found


def test_rm_takes_the_model_and_what_was_begun(tool: Tool, hub: Hub) -> None:
    hub.cuts, hub.cut_at = 1000, 60
    tool.refused("get", OWNER)
    removed = tool("rm", OWNER).document["removed"]
    assert len(removed) == 1
    hub.cuts = 0
    tool("get", OWNER)
    done = tool("rm", "tiny-qwen")
    assert done.document["bytes"] > 10_000
    assert store.stored(tool.state) == ()
    assert [p.name for p in tool.state.models.iterdir()] == [".partial"]
    with pytest.raises(CpuBuildError, match="no stored model"):
        tool("rm", OWNER)


def test_no_token_is_written_anywhere(tool: Tool, hub: Hub) -> None:
    secret = "hf_abcdefghijklmnopqrstuvwxyz"
    tool.environ["HF_TOKEN"] = secret
    tool("get", OWNER)
    hub.refuses = 500
    assert secret not in str(tool.refused("get", OWNER).problems)
    for path in tool.state.root.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
