"""Answers for the web page: its process asks over a Unix socket, so the server's key stays here."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.serving import ask, connect, history
from cpubuild.serving.client import Answer, Client, Message, Wish

# What a path may take in sockaddr_un, the closing zero included (unix(7)).
PATH_BYTES = 108
Row = dict[str, Any]


def replies(talk: connect.Talk, asked: Mapping[str, Any]) -> Generator[Row, None, None]:
    """The rows that answer a page: ``text`` for each piece, then one ``end``, or one ``error``.

    ``end`` is the document of ``ask`` with the number of messages that no longer fitted. To leave
    the iterator early ends the server's work.
    """
    client = Client(url=talk.client.url, key=talk.client.key)
    answer = Answer()
    try:
        messages, wish = messages_of(asked), wish_of(asked)
        kept, room, dropped = history.fitted(
            messages,
            context=talk.context,
            wanted=wish.max_tokens or ask.MAX_TOKENS,
            count=ask.counter(client, talk.model),
        )
        pieces = client.stream(talk.model, kept, replace(wish, max_tokens=room), answer)
        with contextlib.closing(pieces):
            for piece in pieces:
                yield {"text": piece}
        yield {"end": ask.document(answer, talk) | {"dropped": dropped}}
    except CpuBuildError as error:
        found = talk.explained(error)
        yield {"error": [{"what": p.what, "why": p.why, "do": p.remedy} for p in found.problems]}
    finally:
        client.close()


def messages_of(asked: Mapping[str, Any]) -> list[Message]:
    """The messages of a chat; SETTINGS if they are none."""
    try:
        rows = [{"role": str(m["role"]), "content": str(m["content"])} for m in asked["messages"]]
    except (KeyError, TypeError) as error:
        raise strange(error) from error
    if not rows:
        raise strange(ValueError("no messages"))
    return list(rows)


def wish_of(asked: Mapping[str, Any]) -> Wish:
    """The wish of a page; what it leaves out is left to the server."""

    def number(name: str) -> float | None:
        value = asked.get(name)
        return None if value is None else float(value)

    try:
        most = number("max_tokens")
        return Wish(
            max_tokens=None if most is None else max(1, int(most)),
            temperature=number("temperature"),
            top_p=number("top_p"),
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise strange(error) from error


def strange(error: Exception) -> CpuBuildError:
    """The error for what no page of ours asks."""
    return fail(
        ExitCode.SETTINGS,
        f"this is no question of the page: {error}",
        remedy=("load the page again",),
    )


class Asked(socketserver.StreamRequestHandler):
    """One connection of the page: a line with the question in, lines with the answer out."""

    server: Bridge

    def handle(self) -> None:
        """Answer until the end, or until the page has closed the connection."""
        try:
            asked = json.loads(self.rfile.readline())
        except ValueError:
            return
        with contextlib.closing(replies(self.server.talk, asked)) as rows:
            for row in rows:
                self.wfile.write(json.dumps(row, default=str).encode() + b"\n")


class Bridge(socketserver.ThreadingUnixStreamServer):
    """The listener; each connection has a thread of its own."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, talk: connect.Talk, path: Path) -> None:
        self.talk = talk
        super().__init__(str(path), Asked)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that went away in the middle is no news."""


@contextlib.contextmanager
def answering(talk: connect.Talk, folder: Path) -> Iterator[Path]:
    """Answer on a socket in ``folder`` (of mode 700) while the block runs; yields its path."""
    path = folder / "socket"
    if len(bytes(path)) >= PATH_BYTES:
        raise fail(
            ExitCode.SETTINGS,
            f"{folder} is too long a path for a socket: at most {PATH_BYTES - 8} bytes",
            remedy=("set TMPDIR to a shorter path, such as /tmp",),
        )
    with Bridge(talk, path) as bridge:
        thread = threading.Thread(target=bridge.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield path
        finally:
            bridge.shutdown()
