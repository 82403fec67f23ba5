"""Start ``vllm serve`` on a free loopback port, talk to it, stop it, look at what is left."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import requests

from cpubuild.run import Completed, logged
from cpubuild.verify import crash
from cpubuild.verify.model import Check
from cpubuild.verify.target import Answer, Target

READY_SECONDS = 420.0
STOP_SECONDS = 60.0
NAME = "verify-tiny"
LOOPBACK = "127.0.0.1"


@dataclass(kw_only=True, slots=True)
class Server:
    """One running server: where it listens, its key, its processes."""

    port: int
    key: str
    process: Future[Completed]
    family: list[psutil.Process] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The root of the server."""
        return f"http://{LOOPBACK}:{self.port}"

    def get(self, path: str, key: str | None) -> tuple[int, str]:
        """Status and text of a GET; status 0 when nothing answers."""
        session = requests.Session()
        session.trust_env = False
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            answer = session.get(self.url + path, headers=headers, timeout=10)
        except requests.RequestException as error:
            return 0, str(error)
        finally:
            session.close()
        return answer.status_code, answer.text


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        return int(listener.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether the port can be listened on, as a server does."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def command(target: Target, scripts: str, model: str, *, port: int, key: str) -> list[str]:
    """The command line: the environment's own vllm command, run by its own interpreter."""
    script = Path(scripts) / "vllm"
    entry = [str(script)] if script.is_file() else ["-m", "vllm.entrypoints.cli.main"]
    return [
        str(target.python),
        *entry,
        "serve",
        model,
        *("--host", LOOPBACK, "--port", str(port), "--api-key", key),
        *("--served-model-name", NAME, "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", "512", "--max-num-seqs", "8", "--block-size", "32"),
    ]


def verify_server(
    target: Target, reference: Mapping[str, Any], scripts: str, *, port: int | None = None
) -> list[Check]:
    """All server checks; ``port`` (default: a free one) must be free."""
    where = port if port is not None else free_port()
    if not is_free(where):
        return [
            Check(
                id="server.ready",
                status="fail",
                summary=f"port {where} of {LOOPBACK} is taken",
                remedy=("stop what listens there, or let a free port be chosen",),
            )
        ]
    key = secrets.token_urlsafe(18)
    env = target.clean() | {"VLLM_CPU_KVCACHE_SPACE": "1"}
    argv = command(target, scripts, str(reference["model"]), port=where, key=key)
    folder = target.folder / "logs" / f"server-{time.strftime('%Y%m%d-%H%M%S')}"
    with ThreadPoolExecutor(1) as pool:
        process = pool.submit(
            logged, argv, folder=folder, env=env, cwd=target.neutral, timeout=3600.0
        )
        server = Server(port=where, key=key, process=process)
        try:
            checks = [ready(server)]
            if checks[0].status == "pass":
                checks += talk(server, target, reference)
        finally:
            server.family = descendants(where)
            stopped = stop(server)
    return [*checks, stopped]


def ready(server: Server) -> Check:
    """server.ready: wait until /health answers, the process ends, or the bound is reached."""
    id_, started = "server.ready", time.monotonic()
    while time.monotonic() - started < READY_SECONDS:
        if server.get("/health", server.key)[0] == 200:
            seconds = time.monotonic() - started
            return Check(
                id=id_, status="pass", summary=f"ready after {seconds:.0f} s", seconds=seconds
            )
        if server.process.done():
            answer = Answer(completed=server.process.result(), documents={}, stages=("server",))
            why = crash.explain(answer, "server")
            return Check(
                id=id_,
                status="fail",
                summary=why.summary,
                evidence=why.evidence,
                remedy=why.remedy,
                seconds=time.monotonic() - started,
            )
        time.sleep(0.5)
    return Check(
        id=id_,
        status="fail",
        summary=f"not ready within {READY_SECONDS:.0f} s",
        remedy=("read the server's log",),
        seconds=time.monotonic() - started,
    )


def talk(server: Server, target: Target, reference: Mapping[str, Any]) -> list[Check]:
    """What a client sees: with the official client, and bare requests for keys and metrics."""
    options = {
        "url": server.url + "/v1",
        "key": server.key,
        "model": NAME,
        "prompt": reference["prompts"][0],
    }
    answer = target.run(("client",), name="client", env=target.clean(), options=options)
    document = answer.good("client")
    bare = {
        "none": server.get("/v1/models", None)[0],
        "wrong": server.get("/v1/models", "wrong")[0],
    }
    status, metrics = server.get("/metrics", server.key)
    return judge(document, bare, metrics if status == 200 else "", answer)


def judge(
    document: Mapping[str, Any] | None, bare: Mapping[str, int], metrics: str, answer: Answer | None
) -> list[Check]:
    """The checks of what was said, from the client's document and the bare answers."""
    checks = [key_check(document, bare), metrics_check(metrics)]
    if document is None:
        why = crash.explain(answer, "client") if answer is not None else None
        summary = why.summary if why is not None else "the client gave no answer"
        return [
            Check(
                id="server.models",
                status="fail",
                summary=summary,
                evidence=why.evidence if why is not None else (),
            ),
            *checks,
        ]
    return [
        outcome("server.models", document["models"], models),
        outcome("server.completion", document["completion"], completion),
        outcome("server.chat", document["chat"], chat),
        outcome("server.stream", {**document["stream"], "chat": document["chat"]}, stream),
        *checks,
    ]


Verdict = tuple[bool, str]


def outcome(
    id_: str, row: Mapping[str, Any], decide: Callable[[Mapping[str, Any]], Verdict]
) -> Check:
    """A check from one call: its error, or what ``decide`` says of its answer."""
    if row["error"]:
        return Check(id=id_, status="fail", summary=str(row["error"]))
    good, text = decide(row)
    return Check(id=id_, status="pass" if good else "fail", summary=text)


def models(row: Mapping[str, Any]) -> Verdict:
    """The served name is listed."""
    return NAME in row["ids"], f"models: {', '.join(row['ids'])}"


def completion(row: Mapping[str, Any]) -> Verdict:
    """The tokens are the reference's."""
    if list(row["tokens"]) == list(row["expected"]):
        return True, f"{len(row['tokens'])} tokens equal the reference's"
    return False, f"expected {row['expected'][:6]}, got {row['tokens'][:6]}"


def chat(row: Mapping[str, Any]) -> Verdict:
    """As many tokens as were asked for."""
    return row["count"] == 12, f"{row['count']} tokens of 12"


def stream(row: Mapping[str, Any]) -> Verdict:
    """Several events whose text is that of the whole answer."""
    same = row["text"] == row["chat"].get("text")
    text = f"{row['events']} events, " + ("the same text" if same else "another text than whole")
    return same and row["events"] > 1, text


def key_check(document: Mapping[str, Any] | None, bare: Mapping[str, int]) -> Check:
    """server.key."""
    statuses = [bare["none"], bare["wrong"]]
    if document is not None:
        statuses.append(document["wrong_key"].get("status") or 200)
    good = all(s == 401 for s in statuses)
    return Check(
        id="server.key",
        status="pass" if good else "fail",
        summary=f"without a key {bare['none']}, with a wrong one {bare['wrong']}",
        remedy=() if good else ("do not expose this server: it answers without its key",),
    )


def metrics_check(text: str) -> Check:
    """server.metrics."""
    series = {line.split("{")[0].split()[0] for line in text.splitlines() if line[:5] == "vllm:"}
    return Check(
        id="server.metrics",
        status="pass" if series else "fail",
        summary=f"{len(series)} series of vllm",
    )


def descendants(port: int) -> list[psutil.Process]:
    """The server that this process started for ``port``, and everything below it."""
    found: list[psutil.Process] = []
    for child in psutil.Process(os.getpid()).children():
        try:
            words = child.cmdline()
            if "serve" in words and str(port) in words:
                found += [child, *child.children(recursive=True)]
        except psutil.Error:
            continue
    return found


def stop(server: Server) -> Check:
    """server.stop: SIGTERM to the server, then everything must be gone and the port free."""
    id_, started = "server.stop", time.monotonic()
    if server.process.done():
        return Check(id=id_, status="skip", summary="it had ended by itself")
    if server.family:
        signal_one(server.family[0], signal.SIGTERM)
    _, left = psutil.wait_procs(server.family, timeout=STOP_SECONDS)
    names = [f"{p.pid} {name_of(p)}" for p in left]
    for process in left:
        signal_one(process, signal.SIGKILL)
    server.process.result()
    free = is_free(server.port)
    good = not left and free
    return Check(
        id=id_,
        status="pass" if good else "fail",
        summary=f"ended after {time.monotonic() - started:.1f} s, port {server.port} is free"
        if good
        else f"left running: {', '.join(names) or 'nothing'}; port free: {free}",
        evidence=tuple(names),
        seconds=time.monotonic() - started,
    )


def signal_one(process: psutil.Process, number: int) -> None:
    """Send a signal to a process of ours that may be gone."""
    try:
        process.send_signal(number)
    except psutil.Error:
        return


def name_of(process: psutil.Process) -> str:
    """A process's name, for people."""
    try:
        return process.name()
    except psutil.Error:
        return "gone"
