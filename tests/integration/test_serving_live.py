"""serve, ask and chat through the console script, on real processes, files and sockets.

The server is a stand-in for vLLM's own; tests/e2e has the same with the real one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import psutil
import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from tests.integration import fakevllm
from tests.integration.fakevllm import Fake

pytestmark = pytest.mark.integration

CPUBUILD = Path(sys.executable).parent / "cpubuild"
PROGRAM = Path(fakevllm.__file__)
SECONDS = 120.0
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def validate(document: dict[str, Any], name: str) -> dict[str, Any]:
    folder = resources.files("cpubuild").joinpath("data", "schemas")
    schemas = {f.name: json.loads(f.read_text("utf-8")) for f in folder.iterdir()}
    registry: Registry[Any] = Registry().with_resources(
        (key, Resource.from_contents(value)) for key, value in schemas.items()
    )
    Draft202012Validator(schemas[f"{name}.json"], registry=registry).validate(document)
    return document


class Root:
    """A state root with an environment whose vllm is the stand-in, and a model's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state"
        env = self.state / "envs" / "fake"
        package = env / "lib/python3.11/site-packages/vllm"
        package.mkdir(parents=True)
        (package / "envs.py").write_text("VLLM_API_KEY", encoding="utf-8")
        (env / "bin").mkdir()
        (env / "bin/python").symlink_to(sys.executable)
        (env / "bin/vllm").symlink_to(PROGRAM)
        (env / "receipt.json").write_text('{"vllm": {"version": "0.32.0+cpu"}}', encoding="utf-8")
        (self.state / "current").symlink_to("envs/fake")
        for name in ("tiny", "other"):
            (folder / name).mkdir()
            (folder / name / "config.json").write_text("{}", encoding="utf-8")
        self.server = self.state / "server"

    def environ(self, **more: str) -> dict[str, str]:
        gone = ("CPUBUILD_", "VLLM_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(gone)}
        return kept | {"CPUBUILD_STATE": str(self.state)} | more

    def run(
        self, *argv: str, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [str(CPUBUILD), *argv],
            env=self.environ(**(env or {})),
            input=stdin,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )

    def document(self, *argv: str, code: int = 0, **more: Any) -> dict[str, Any]:
        done = self.run(*argv, "--json", **more)
        assert done.returncode == code, done.stderr.decode()
        value: dict[str, Any] = json.loads(done.stdout)
        return validate(value, "error" if "error" in value else argv[0])

    def serve(self, *words: str, code: int = 0, fake: tuple[str, ...] = ()) -> dict[str, Any]:
        extra = ("--", "--fake", *fake) if fake else ()
        return self.document_before(extra, "serve", str(self.folder / "tiny"), *words, code=code)

    def document_before(self, extra: tuple[str, ...], *argv: str, code: int) -> dict[str, Any]:
        done = self.run(*argv, "--untuned", "--port", "0", "--json", *extra)
        assert done.returncode == code, done.stderr.decode()
        value: dict[str, Any] = json.loads(done.stdout)
        return validate(value, "error" if "error" in value else argv[0])


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    made = Root(tmp_path)
    yield made
    made.run("serve", "--stop")


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_a_server_from_its_start_to_its_end(root: Root) -> None:
    assert root.document("serve", "--status", code=4)["running"] is False
    started = root.serve()
    assert (started["changed"], started["name"], started["tuned"]) == (True, "tiny", False)
    record = json.loads((root.server / "server.json").read_text(encoding="utf-8"))
    pids = [record["supervisor"]["pid"], record["server"]["pid"]]
    # It is a session of its own, with nothing to read from: no terminal can end it.
    assert [os.getsid(pid) for pid in pids] == pids
    assert all(str(Path(f"/proc/{pid}/fd/0").readlink()) == os.devnull for pid in pids)

    key = (root.server / "key").read_text(encoding="utf-8").strip()
    assert stat.S_IMODE((root.server / "key").stat().st_mode) == 0o600
    for process in psutil.process_iter():
        try:
            assert key not in " ".join(process.cmdline())
        except psutil.Error:
            continue
    assert key not in (root.server / "server.json").read_text(encoding="utf-8")

    status = root.document("serve", "--status")
    assert (status["health"], status["supervised"]) == ("ok", True)
    assert status["requests"] == {"running": 1.0, "waiting": 2.0}
    assert status["tokens_per_s"] > 0
    assert status["memory"]["processes"] == 2

    again = root.serve()
    assert (again["changed"], again["pid"]) == (False, started["pid"])
    other = root.run("serve", str(root.folder / "other"))
    assert other.returncode == 75
    assert b"serve --stop" in other.stderr

    stopped = root.document("serve", "--stop")
    assert (stopped["changed"], stopped["port_free"], stopped["killed"]) == (True, True, [])
    assert all(gone(pid) for pid in pids)
    assert not (root.server / "server.json").exists()
    assert "ended in order" in (root.server / "log").read_text(encoding="utf-8")
    assert root.document("serve", "--stop")["changed"] is False


def test_the_key_is_kept_for_the_next_start_unless_one_is_given(root: Root) -> None:
    root.serve()
    first = (root.server / "key").read_text(encoding="utf-8")
    root.document("serve", "--stop")
    root.serve()
    assert (root.server / "key").read_text(encoding="utf-8") == first
    root.document("serve", "--stop")
    given = root.folder / "given"
    given.write_text("mine\n", encoding="utf-8")
    root.serve("--api-key-file", str(given))
    assert root.document("ask", "hi")["text"] == "hi"
    assert root.run("ask", "hi", "--api-key-file", str(root.folder / "none")).returncode == 2
    wrong = root.folder / "wrong"
    wrong.write_text("not-it", encoding="utf-8")
    refused = root.run("ask", "hi", "--api-key-file", str(wrong))
    assert refused.returncode == 2
    assert b"does not accept the key" in refused.stderr


def test_the_server_s_surroundings_are_the_environment_s(root: Root) -> None:
    root.document_before((), "serve", str(root.folder / "tiny"), code=0)
    seen = json.loads((root.server / "cwd" / "seen.json").read_text(encoding="utf-8"))
    assert seen["PATH"].startswith(str(root.state / "envs" / "fake" / "bin"))
    assert seen["VLLM_NO_USAGE_STATS"] == "1"
    assert not [name for name in seen if name.startswith("CPUBUILD_")]


def test_ask_in_and_out_in_any_locale(root: Root) -> None:
    root.serve()
    for locale in ("C", "C.UTF-8", "POSIX"):
        env = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        done = root.run("ask", "你好，世界", env=env)
        assert (done.returncode, done.stdout.decode()) == (0, "你好，世界\n"), done.stderr
        piped = root.run("ask", "-", env=env, stdin="从管道来\n".encode())
        assert piped.stdout.decode() == "从管道来\n"
    found = root.document("ask", "abcdef", "--max-tokens", "3", "--temperature", "0")
    assert (found["text"], found["finish_reason"]) == ("abc", "length")
    assert found["tokens"] == {"prompt": 6, "completion": 3}
    too_long = root.run("ask", "-", stdin=b"x" * 500)
    assert too_long.returncode == 2
    assert b"context" in too_long.stderr


def test_chat_over_a_pipe_remembers(root: Root) -> None:
    root.serve()
    done = root.run("chat", stdin="我叫魏\n\nwho am I?\n/reset\nnow\n".encode())
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == ["我叫魏", "我叫魏 | who am I?", "now"]
    found = root.document("chat", "--system", "s", stdin=b"one\ntwo\n/quit\nthree\n")
    assert [t["text"] for t in found["turns"]] == ["one", "one | two"]


def test_a_long_chat_stays_within_the_context(root: Root) -> None:
    root.serve()
    lines = "".join(f"{number}{'x' * 30}\n" for number in range(12))
    done = root.run("chat", "--max-tokens", "4", stdin=lines.encode())
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.decode().splitlines()) == 12
    assert b"no longer fit" in done.stderr


def test_one_call_may_start_and_stop_its_own_server(root: Root) -> None:
    assert root.run("ask", "hi").returncode == 4
    env = root.state / "envs" / "fake"
    # Without a real vllm there is nothing that a tuning could be computed from.
    done = root.run("ask", "hi", "--model", str(root.folder / "none"))
    assert done.returncode == 2
    assert env.is_dir()
    assert not (root.server / "server.json").exists()


def test_a_server_that_cannot_start_is_explained(root: Root) -> None:
    error = root.serve(code=8, fake=("unable",))["error"]
    assert "KV cache" in json.dumps(error["problems"]) or "memory" in json.dumps(error["problems"])
    assert error["problems"][0]["remedy"]
    assert error["log"] == str(root.server / "log")
    assert root.document("serve", "--status", code=4)["running"] is False


def test_a_server_that_is_never_ready_is_stopped(root: Root) -> None:
    error = root.serve("--wait", "2", code=8, fake=("never",))["error"]
    assert "did not answer within 2 s" in error["problems"][0]["what"]
    assert not [p for p in psutil.process_iter() if str(root.folder) in " ".join(words_of(p))]


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.parametrize(("way", "told"), [("die", "exit status 1"), ("kill", "SIGKILL")])
def test_a_server_that_dies_under_a_question_is_explained(root: Root, way: str, told: str) -> None:
    root.serve(fake=(way,))
    for words in (("ask", "hi"), ("serve", "--status"), ("ask", "hi")):
        error = root.document(*words, code=8)["error"]
        assert told in error["problems"][0]["what"]
        assert error["problems"][0]["remedy"]
    assert root.serve()["changed"] is True


def test_a_process_that_will_not_end_is_killed(root: Root) -> None:
    root.serve(fake=("child",))
    (parent,) = [
        p
        for p in psutil.process_iter()
        if str(root.folder) in " ".join(words_of(p)) and p.children()
    ]
    (child,) = parent.children()
    parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while not gone(child.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    # Even a server that was killed outright leaves nothing behind.
    assert gone(child.pid)
    assert root.document("serve", "--stop")["running"] is False


def test_a_supervisor_that_was_killed_leaves_a_server_that_can_be_stopped(root: Root) -> None:
    started = root.serve()
    record = json.loads((root.server / "server.json").read_text(encoding="utf-8"))
    os.kill(record["supervisor"]["pid"], signal.SIGKILL)
    status = root.document("serve", "--status")
    assert (status["health"], status["supervised"]) == ("ok", False)
    assert root.document("serve", "--stop")["changed"] is True
    assert gone(started["pid"])


def test_a_stale_record_is_not_believed(root: Root) -> None:
    root.serve()
    path = root.server / "server.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    root.document("serve", "--stop")
    # The numbers went to somebody else meanwhile.
    record["server"] = record["supervisor"] = {"pid": os.getpid(), "started": 1000.0}
    path.write_text(json.dumps(record), encoding="utf-8")
    assert root.document("serve", "--stop")["changed"] is False
    assert root.serve()["changed"] is True


def test_a_port_that_is_taken_names_who_has_it(root: Root) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = root.run("serve", str(root.folder / "tiny"), "--untuned", "--port", str(port))
    assert done.returncode == 75
    assert f"process {os.getpid()}" in done.stderr.decode()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_world_is_kept_out_without_a_key(root: Root, host: str) -> None:
    done = root.run("serve", str(root.folder / "tiny"), "--host", host, "--untuned")
    assert done.returncode == 2
    assert b"no key was given" in done.stderr


def test_in_the_foreground_it_ends_when_it_is_told_to(root: Root) -> None:
    argv = [str(CPUBUILD), "serve", str(root.folder / "tiny"), "--untuned", "--port", "0"]
    with subprocess.Popen(
        [*argv, "--foreground"], env=root.environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + 60
        while root.run("serve", "--status").returncode != 0 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert root.document("ask", "hi")["text"] == "hi"
        port = root.document("serve", "--status")["url"].rpartition(":")[2]
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert b"Application startup complete" in err
    assert free(int(port))
    assert root.document("serve", "--status", code=4)["running"] is False


# --- servers elsewhere -------------------------------------------------------------------------


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Fake]]:
    made: list[Fake] = []

    def start(*ways: str, key: str | None = None) -> Fake:
        server = Fake(0, key=key, model="far", ways=frozenset(ways))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made.append(server)
        return server

    yield start
    for server in made:
        server.shutdown()
        server.server_close()


def url_of(server: Fake) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def test_a_server_elsewhere(root: Root, elsewhere: Callable[..., Fake]) -> None:
    server = elsewhere(key="k")
    proxied = {"VLLM_API_KEY": "k", "http_proxy": "http://127.0.0.1:9"}
    found = root.document("ask", "hi", "--url", url_of(server) + "/v1", env=proxied)
    assert (found["text"], found["model"]) == ("hi", "far")
    assert server.requests[0]["model"] == "far"
    assert root.run("ask", "hi", "--url", url_of(server)).returncode == 2
    other = root.run("ask", "hi", "--url", url_of(server), "--model", "near", env=proxied)
    assert other.returncode == 2
    assert b"it serves: far" in other.stderr


@pytest.mark.parametrize(
    ("way", "code", "told"),
    [
        ("html", 2, b"OpenAI-style"),
        ("busy", 75, b"too many requests"),
        ("cut", 8, b"broke off"),
    ],
)
def test_a_server_elsewhere_that_misbehaves(
    root: Root, elsewhere: Callable[..., Fake], way: str, code: int, told: bytes
) -> None:
    done = root.run("ask", "hello", "--url", url_of(elsewhere(way)))
    assert done.returncode == code
    assert told in done.stderr


def test_nobody_elsewhere(root: Root) -> None:
    done = root.run("ask", "hi", "--url", "http://127.0.0.1:9")
    assert done.returncode == 75
    assert b"nothing answers" in done.stderr


def test_an_interrupt_stops_the_answer_and_the_chat_goes_on(
    root: Root, elsewhere: Callable[..., Fake]
) -> None:
    server = elsewhere("slow")
    with subprocess.Popen(
        [str(CPUBUILD), "chat", "--url", url_of(server)],
        env=root.environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"a very long question that takes its time\n")
        process.stdin.flush()
        assert process.stdout.read(1) == b"a"
        process.send_signal(signal.SIGINT)
        rest = process.stdout.readline()
        process.stdin.write(b"two\n")
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert len(rest) < len(b" very long question that takes its time\n")
    assert b"two" in out
