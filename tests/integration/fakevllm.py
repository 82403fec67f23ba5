"""A stand-in for ``vllm serve``: an OpenAI-style server on real sockets that repeats what it hears.

As a program it takes the words of ``vllm serve``; words after ``--fake`` say how it misbehaves.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CONTEXT = 200


class Fake(ThreadingHTTPServer):
    """The server: its key, its model, what it was asked, and how it misbehaves."""

    daemon_threads = True

    def __init__(self, port: int, *, key: str | None, model: str, ways: frozenset[str]) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.key, self.model, self.ways = key, model, ways
        self.requests: list[dict[str, Any]] = []
        self.generated = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class Handler(BaseHTTPRequestHandler):
    """The paths that vLLM has and the tool uses."""

    protocol_version = "HTTP/1.1"
    server: Fake

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: the log is the server's."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(503 if "sick" in self.server.ways else 200, "")
        elif self.path == "/metrics":
            count = self.server.generated = self.server.generated + 10
            rows = ("running", 1), ("waiting", 2)
            text = "".join(f'vllm:num_requests_{n}{{engine="0"}} {v}\n' for n, v in rows)
            self.answer(200, text + f'vllm:generation_tokens_total{{engine="0"}} {count}\n')
        elif not self.let_in():
            self.answer(401, '{"error": "Unauthorized"}')
        elif "html" in self.server.ways:
            self.answer(200, "<html>")
        else:
            row = {"id": self.server.model, "max_model_len": CONTEXT}
            self.answer(200, json.dumps({"data": [row]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            count = sum(len(m["content"]) for m in body["messages"])
            self.answer(200, json.dumps({"count": count, "max_model_len": CONTEXT}))
            return
        self.server.requests.append(body)
        if "die" in self.server.ways:
            os._exit(1)
        if "kill" in self.server.ways:
            os.kill(os.getpid(), signal.SIGKILL)
        if "busy" in self.server.ways:
            self.answer(503, '{"error": {"message": "too many requests"}}')
            return
        self.stream(body)

    def stream(self, body: dict[str, Any]) -> None:
        """All user texts so far, letter by letter, at most as many as are wished for."""
        said = " | ".join(m["content"] for m in body["messages"] if m["role"] == "user")
        text = said[: body["max_tokens"]]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, letter in enumerate(text):
            if "slow" in self.server.ways:
                time.sleep(0.2)
            if "cut" in self.server.ways and number == 2:
                self.close_connection = True
                self.connection.shutdown(2)
                return
            self.event({"choices": [{"delta": {"content": letter}, "finish_reason": None}]})
        why = "stop" if len(text) == len(said) else "length"
        self.event({"choices": [{"delta": {}, "finish_reason": why}]})
        usage = {"prompt_tokens": len(said), "completion_tokens": len(text)}
        self.event({"choices": [], "usage": usage})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def event(self, value: dict[str, Any]) -> None:
        self.chunk(f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode())

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def let_in(self) -> bool:
        key = self.server.key
        return key is None or self.headers.get("Authorization") == f"Bearer {key}"

    def answer(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """What ``vllm serve MODEL --port N --served-model-name NAME [--fake WAY...]`` stands for."""
    words = sys.argv[1:]
    ways = frozenset(words[words.index("--fake") + 1 :] if "--fake" in words else ())
    say("INFO a stand-in starts with " + " ".join(words))
    if "unable" in ways:
        say(
            "ValueError: To serve at least one request with the models's max seq len (40960), "
            "(4.38 GiB KV cache is needed, which is larger than the available KV cache memory "
            "(4.00 GiB). Based on the available memory, the estimated maximum model length is "
            "37376. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
            "initializing the engine."
        )
        sys.exit(1)
    if "never" in ways:
        time.sleep(600)
    if "child" in ways and os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    model = words[words.index("--served-model-name") + 1]
    port = int(words[words.index("--port") + 1])
    key = os.environ.get("VLLM_API_KEY")
    server = Fake(port, key=key, model=model, ways=ways)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    Path("seen.json").write_text(json.dumps(dict(os.environ)), encoding="utf-8")
    say("INFO:     Application startup complete.")
    server.serve_forever()
    say("INFO ended in order")


if __name__ == "__main__":
    main()
