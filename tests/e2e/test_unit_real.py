"""The unit that `tune --out` writes: its command line, run as a service manager runs it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import psutil
import pytest

from cpubuild.verify.target import Target

pytestmark = pytest.mark.e2e

NAME = 'tiny 100% "qwen2" $HOME'


@pytest.fixture
def unit(installed: dict[str, Any], tool: Any, tmp_path: Path) -> str:
    """The unit for a tiny model of a hostile name, with an option of the user's (a quick start)."""
    made = tmp_path / "made"
    made.mkdir()
    target = Target(python=Path(installed["environment"]) / "bin" / "python", folder=made)
    target.prepare(fresh_caches=False)
    reference = target.run(("reference",), name="reference").good("reference")
    assert reference is not None
    shutil.copytree(reference["model"], tmp_path / NAME)
    own = tmp_path / "own.yaml"
    own.write_text("enforce-eager: true\n", encoding="utf-8")
    state = tmp_path / "state"
    state.mkdir()
    (state / "current").symlink_to(installed["environment"])
    out = tmp_path / "out"
    type(tool)(state).document(
        "tune", "--model", str(tmp_path / NAME), "--options", str(own), "--out", str(out)
    )
    return (out / "vllm.service").read_text("utf-8")


def words(unit: str) -> list[str]:
    """The words of ExecStart, as systemd.service(5) reads them."""
    line = re.search(r"(?m)^ExecStart=(.*)$", unit)
    assert line is not None
    found = re.findall(r'"((?:\\.|[^"\\])*)"|(\S+)', line[1])
    read = [re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for quoted, plain in found]
    return [word.replace("%%", "%").replace("$$", "$") for word in read]


def asked(port: int, key: str, body: dict[str, Any]) -> dict[str, Any]:
    request = Request(
        f"http://127.0.0.1:{port}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    with build_opener(ProxyHandler({})).open(request, timeout=120) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def healthy(port: int) -> bool:
    try:
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except OSError:
        return False


def test_what_the_unit_starts_answers_and_ends_in_order(unit: str, tmp_path: Path) -> None:
    argv = words(unit)
    assert argv[-2:] == ["--", "--enforce-eager"]
    argv[-2:-2] = ["--port", "0"]  # the usual one may be taken on this machine
    log = tmp_path / "journal"
    surroundings = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8"}
    with log.open("wb") as out:
        service = psutil.Popen(
            argv,
            env=surroundings,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            umask=0o077,
        )
    family = [service]
    try:
        record = tmp_path / "state" / "server" / "server.json"
        until = time.monotonic() + 600
        port = 0
        while not (port and healthy(port)):
            assert service.poll() is None, log.read_text("utf-8", "replace")[-4000:]
            assert time.monotonic() < until, log.read_text("utf-8", "replace")[-4000:]
            time.sleep(0.5)
            if record.is_file():
                port = json.loads(record.read_text("utf-8"))["port"]
        family += service.children(recursive=True)
        key = (tmp_path / "state" / "server" / "key").read_text("utf-8").strip()
        body = {"model": NAME, "prompt": "人工智能", "max_tokens": 5}
        assert asked(port, key, body)["usage"]["completion_tokens"] == 5
        with pytest.raises(HTTPError) as refused:
            asked(port, "another", body)
        assert refused.value.code == 401
        refused.value.close()
        assert key not in log.read_text("utf-8", "replace")
        service.send_signal(signal.SIGTERM)
        assert service.wait(timeout=90) == 0, "TimeoutStopSec of the unit"
        _, left = psutil.wait_procs(family[1:], timeout=10)
        assert left == []
    finally:
        for process in family:
            if process.is_running():
                process.kill()
