"""bench on real sockets: what is asked, what is counted, how failures come out."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.fakevllm import Fake

pytestmark = pytest.mark.integration
CPUBUILD = Path(sys.executable).parent / "cpubuild"


@pytest.fixture
def server() -> Iterator[Fake]:
    made = Fake(0, key="secret", model="far", ways=frozenset({"slow"}))
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def bench(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [str(CPUBUILD), "bench", "--state", str(tmp_path / "state"), "--json", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


def test_every_stream_is_asked_at_once_and_counted(server: Fake, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    url = f"http://127.0.0.1:{server.server_address[1]}"
    there = ("--url", url, "--api-key-file", str(tmp_path / "key"))
    done = bench(tmp_path, *there, "--streams", "1,3", "--tokens", "4")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (run,) = document["runs"]
    assert [r["streams"] for r in run["loads"]] == [1, 3]
    for row in run["loads"]:
        # both numbers are rounded
        assert row["tokens_per_s"] * row["seconds"] == pytest.approx(4 * row["streams"], rel=0.2)
    assert (run["client"], run["memory"]) == ("api", None)
    bodies = server.requests
    assert [b["max_tokens"] for b in bodies] == [4] * 5
    assert all(b["ignore_eos"] is True and b["temperature"] == 0 for b in bodies)
    texts = [b["messages"][0]["content"] for b in bodies]
    assert len(set(texts)) == 5, "an answer could come from another's prefix"
    assert json.loads((Path(document["folder"]) / "bench.json").read_text()) == document
    assert (Path(document["folder"]) / "bench.svg").read_text().startswith("<svg")

    again = json.loads(bench(tmp_path, *there, "--streams", "1", "--tokens", "4").stdout)
    assert again["last"]["created"] == document["created"]
    assert list(again["last"]["ratio"]) == ["1"]


def test_more_tokens_than_the_context_holds_are_refused(server: Fake, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    url = f"http://127.0.0.1:{server.server_address[1]}"
    done = bench(tmp_path, "--url", url, "--api-key-file", str(tmp_path / "key"), "--tokens", "150")
    assert done.returncode == 2, done.stderr
    assert "--tokens 100 or less" in done.stdout
    assert server.requests == []


def test_a_server_elsewhere_is_no_matter_for_its_own_bench(server: Fake, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    url = f"http://127.0.0.1:{server.server_address[1]}"
    there = ("--url", url, "--api-key-file", str(tmp_path / "key"))
    done = bench(tmp_path, *there, "--client", "vllm")
    assert done.returncode == 2, done.stderr
    (problem,) = json.loads(done.stdout)["error"]["problems"]
    assert problem["why"] == "the server is not one of this state root"
    assert server.requests == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 4, "no server runs"),
        (("--url", "http://127.0.0.1:9"), 75, "nothing answers"),
        (("--compare",), 2, "needs --model MODEL"),
        (("--compare", "--model", "m", "--url", "http://127.0.0.1:9"), 2, "no --url"),
        (("--compare", "--model", "/no/such/model"), 2, "/no/such/model"),
        (("--streams", "none"), 2, "--streams none"),
        (("--client", "curl"), 2, "--client curl"),
    ],
)
def test_what_cannot_be_measured_is_said(
    tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    done = bench(tmp_path, *words)
    assert done.returncode == code, done.stderr
    problems = json.loads(done.stdout)["error"]["problems"]
    assert said in problems[0]["what"]
