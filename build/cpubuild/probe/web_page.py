"""The page of ``cpubuild web``, run by an interpreter that has Gradio.

``web_page.py < CONFIG``: one JSON document. Whatever is asked on the page is asked of the tool's
process over a Unix socket: neither the server's address nor its key is known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any
from urllib.parse import urlsplit

# Seconds between two pictures of an answer: each costs the CPU that the model needs.
PICTURE_SECONDS = 0.1
LOOK_SECONDS = 1.0
AT_ONCE = 16
# A line of the socket: a whole answer at its end.
LINE_BYTES = 64 << 20
LOCAL = ("localhost", "127.0.0.1", "::1")
# The browser itself refuses whatever is not from here.
HEADERS = {
    "content-security-policy": "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
CSS = """
.gradio-container { max-width: 1280px !important; margin: 0 auto; }
#model { margin: 0 0 -4px 2px; }
#model h1 { font-size: 1.15rem; font-weight: 600; margin: 0; }
#model p { color: var(--body-text-color-subdued); font-size: .85rem; margin: 0; }
#chat { height: calc(100vh - 190px) !important; min-height: 320px; }
#chat small { color: var(--body-text-color-subdued); font-size: .8rem; }
#buttons { min-width: 110px !important; max-width: 150px; }
footer { display: none !important; }
"""


# --- words ---------------------------------------------------------------------------------------


def language(accepted: str | None) -> str:
    """``zh`` or ``en``, whichever a browser's Accept-Language names first."""
    for part in (accepted or "").lower().split(","):
        name = part.split(";")[0].strip().split("-")[0]
        if name in ("zh", "en"):
            return name
    return "en"


def figures(end: dict[str, Any], words: dict[str, str]) -> str:
    """How fast an answer was; what the server did not count is left out."""
    tokens, speed, first = end["tokens"]["completion"], end["tokens_per_s"], end["first_token_s"]
    seconds = f"{end['seconds']:.1f}"
    said = [
        words["whole" if tokens is None else "tokens"].format(tokens=tokens, seconds=seconds),
        "" if speed is None else words["speed"].format(speed=f"{speed:.1f}"),
        "" if first is None else words["first"].format(first=f"{first:.2f}"),
        words["length"] if end["finish_reason"] == "length" else "",
        words["dropped"].format(dropped=end["dropped"]) if end["dropped"] else "",
    ]
    return " · ".join(part for part in said if part)


def stopped(seconds: float, first: float | None, words: dict[str, str]) -> str:
    """The same for an answer that was stopped: the server no longer told its count."""
    said = [words["stopped"].format(seconds=f"{seconds:.1f}")]
    if first is not None:
        said.append(words["first"].format(first=f"{first:.2f}"))
    return " · ".join(said)


def trouble(problems: list[dict[str, Any]], words: dict[str, str]) -> str:
    """Problems as Markdown; nothing in them is taken for markup."""
    rows = []
    for problem in problems:
        rows.append(f"**{html.escape(problem['what'])}**")
        if problem["why"]:
            rows.append(f"{words['why']}: {html.escape(problem['why'])}")
        commands = "\n".join(f"    {line}" for line in problem["do"])
        rows.append(f"{words['do']}:\n\n{commands}" if commands else "")
    return "\n\n".join(row for row in rows if row)


def bubble(role: str, text: str) -> dict[str, str]:
    """A message of the chat."""
    return {"role": role, "content": text}


def small(text: str) -> dict[str, str]:
    """A line below an answer."""
    return bubble("assistant", f"<small>{html.escape(text)}</small>")


# --- a turn --------------------------------------------------------------------------------------


class Turn:
    """A question and its answer as far as it has come."""

    def __init__(self, question: str, chat: dict[str, Any], words: dict[str, str]) -> None:
        self.question, self.chat, self.words = question, chat, words
        self.started = time.monotonic()
        self.text, self.pictured = "", 0.0
        self.first: float | None = None
        self.last: dict[str, Any] = {}
        self.halted = self.forgotten = False
        self.writer: asyncio.StreamWriter | None = None

    async def rows(
        self, socket: str, asked: dict[str, Any]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The rows of the answer from the tool's process; they end early when it is stopped."""
        reader, self.writer = await asyncio.open_unix_connection(socket, limit=LINE_BYTES)
        try:
            if not self.halted:
                self.writer.write(json.dumps(asked).encode() + b"\n")
            with contextlib.suppress(ConnectionError):
                # A stop in the middle of a line leaves a part of it.
                while not self.halted and (line := await reader.readline()).endswith(b"\n"):
                    yield json.loads(line)
        finally:
            self.writer.close()

    def stop(self) -> None:
        """Close the connection, and with it end the server's work."""
        self.halted = True
        if self.writer is not None:
            self.writer.close()

    def asked(
        self, system: str, max_tokens: float, sampling: tuple[float | None, float | None]
    ) -> dict[str, Any]:
        """What the tool's process is asked; ``sampling``: temperature and top-p."""
        told = (system or "").strip()
        head = [bubble("system", told)] if told else []
        return {
            "messages": [*head, *self.chat["messages"], bubble("user", self.question)],
            "max_tokens": max_tokens,
            "temperature": sampling[0],
            "top_p": sampling[1],
        }

    def take(self, row: dict[str, Any]) -> bool:
        """Take a row; whether it is time for a new picture."""
        if "text" not in row:
            self.last = row
            return False
        now = time.monotonic()
        self.first = now - self.started if self.first is None else self.first
        self.text += row["text"]
        due = now - self.pictured >= PICTURE_SECONDS
        self.pictured = now if due else self.pictured
        return due

    def picture(self) -> list[dict[str, str]]:
        """The chat with the answer as far as it is there."""
        text = self.text or f"<small>{html.escape(self.words['reading'])}</small>"
        return [*self.shown(), bubble("assistant", text)]

    def shown(self) -> list[dict[str, str]]:
        """The chat with the question."""
        return [*self.chat["shown"], bubble("user", self.question)]

    def over(self) -> dict[str, Any]:
        """The chat after the turn; a question that failed is shown, and not remembered."""
        if self.forgotten:
            return empty()
        said = [bubble("assistant", self.text)] if self.text else []
        messages = [*self.chat["messages"], bubble("user", self.question), *said]
        if "error" in self.last:
            told = bubble("assistant", trouble(self.last["error"], self.words))
            return {"messages": self.chat["messages"], "shown": [*self.shown(), *said, told]}
        if "end" in self.last:
            line = figures(self.last["end"], self.words)
        else:
            line = stopped(time.monotonic() - self.started, self.first, self.words)
            messages = messages if self.text else self.chat["messages"]
        return {"messages": messages, "shown": [*self.shown(), *said, small(line)]}


def empty() -> dict[str, Any]:
    """A chat in which nothing was said."""
    return {"messages": [], "shown": []}


# --- the page ------------------------------------------------------------------------------------


def page(gr: Any, config: dict[str, Any]) -> tuple[Any, Any]:
    """The Gradio blocks and their translations."""
    texts = config["texts"]
    labels = {name: texts[name]["label"] for name in texts}
    i18n = gr.I18n(**labels, **{"zh-CN": labels["zh"]})
    with gr.Blocks(title=config["model"], analytics_enabled=False, fill_height=True) as blocks:
        parts = laid_out(gr, i18n, config)
        wired(gr, blocks, parts, config)
    blocks.queue(default_concurrency_limit=AT_ONCE, max_size=4 * AT_ONCE)
    return blocks, i18n


def laid_out(gr: Any, i18n: Any, config: dict[str, Any]) -> dict[str, Any]:
    """The parts of the page by name."""
    parts: dict[str, Any] = {"chat": gr.State(empty())}
    name = html.escape(config["model"])
    gr.HTML(f"<h1>{name}</h1>", elem_id="model", padding=False)
    with gr.Row():
        with gr.Column(scale=4, min_width=420):
            parts["bubbles"] = gr.Chatbot(
                elem_id="chat",
                show_label=False,
                placeholder=i18n("placeholder"),
                buttons=["copy"],
                feedback_options=None,
            )
            with gr.Row(equal_height=True):
                parts["question"] = gr.Textbox(
                    elem_id="question",
                    show_label=False,
                    container=False,
                    placeholder=i18n("question"),
                    lines=1,
                    max_lines=8,
                    autofocus=True,
                    scale=8,
                )
                with gr.Column(scale=1, elem_id="buttons"):
                    parts["send"] = gr.Button(i18n("send"), variant="primary", elem_id="send")
                    parts["stop"] = gr.Button(
                        i18n("stop"), variant="stop", elem_id="stop", visible=False
                    )
        with gr.Column(scale=1, min_width=260):
            parts["fresh"] = gr.Button(i18n("fresh"), elem_id="fresh")
            parts |= parameters(gr, i18n, config["start"], config["context"])
    return parts


def parameters(gr: Any, i18n: Any, start: dict[str, Any], context: int | None) -> dict[str, Any]:
    """The fields of how an answer is wished."""
    own = start["temperature"] is not None
    most = context or 32768
    parts = {
        "system": gr.Textbox(
            start["system"] or "",
            elem_id="system",
            label=i18n("system"),
            info=i18n("system_info"),
            lines=2,
            max_lines=8,
        ),
        "max_tokens": gr.Slider(
            1,
            most,
            min(start["max_tokens"], most),
            step=1,
            elem_id="max_tokens",
            label=i18n("max_tokens"),
        ),
        "own": gr.Checkbox(own, elem_id="own", label=i18n("own"), info=i18n("own_info")),
    }
    with gr.Column(visible=own) as sampling:
        parts["temperature"] = gr.Slider(
            0,
            2,
            start["temperature"] if own else 0.7,
            step=0.05,
            elem_id="temperature",
            label=i18n("temperature"),
            info=i18n("temperature_info"),
        )
        parts["top_p"] = gr.Slider(
            0.05,
            1,
            1,
            step=0.05,
            elem_id="top_p",
            label=i18n("top_p"),
            info=i18n("top_p_info"),
        )
    parts["own"].change(
        lambda chosen: gr.update(visible=chosen),
        parts["own"],
        sampling,
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )
    return parts


class Deeds:
    """What the page does when something is clicked."""

    def __init__(self, gr: Any, config: dict[str, Any]) -> None:
        self.skip, self.texts, self.socket = gr.skip, config["texts"], config["socket"]
        self.turns: dict[str, Turn] = {}  # those under way, by the session of a browser
        self.running = (gr.update(visible=False), gr.update(visible=True))
        self.at_rest = (gr.update(visible=True), gr.update(visible=False))

    async def send(
        self,
        question: str,
        chat: dict[str, Any],
        system: str,
        max_tokens: float,
        own: bool,
        temperature: float,
        top_p: float,
        request: Any,
    ) -> AsyncIterator[tuple[Any, ...]]:
        """Ask, and show the answer as it comes: question, bubbles, chat, the two buttons."""
        skip, session = self.skip, request.session_hash
        if not (question or "").strip() or session in self.turns:
            yield (skip(),) * 5
            return
        words = self.texts[language(request.headers.get("accept-language"))]["said"]
        turn = self.turns[session] = Turn(question.strip(), chat, words)
        try:
            yield "", turn.picture(), skip(), *self.running
            asked = turn.asked(system, max_tokens, (temperature, top_p) if own else (None, None))
            async with contextlib.aclosing(turn.rows(self.socket, asked)) as rows:
                async for row in rows:
                    if turn.take(row):
                        yield skip(), turn.picture(), skip(), skip(), skip()
        except OSError:
            turn.last = {"error": [{"what": words["gone"], "why": "", "do": [words["gone_do"]]}]}
        finally:
            del self.turns[session]
        after = turn.over()
        back = question if "error" in turn.last and not turn.forgotten else skip()
        yield back, after["shown"], after, *self.at_rest

    async def halt(self, request: Any) -> None:
        """Stop the answer."""
        if turn := self.turns.get(request.session_hash):
            turn.stop()

    async def fresh(self, request: Any) -> tuple[Any, ...]:
        """Forget everything; an answer under way is stopped, and its end shows the empty chat."""
        if turn := self.turns.get(request.session_hash):
            turn.forgotten = True
            turn.stop()
            return (self.skip(),) * 5
        return "", [], empty(), *self.at_rest


def wired(gr: Any, blocks: Any, parts: dict[str, Any], config: dict[str, Any]) -> None:
    """Let the parts do what they say."""
    deeds = Deeds(gr, config)
    for function in (Deeds.send, Deeds.halt, Deeds.fresh):
        # Gradio hands its request to the parameter of this type.
        function.__annotations__ = {"request": gr.Request}
    outputs = [parts[name] for name in ("question", "bubbles", "chat", "send", "stop")]
    wishes = [parts[name] for name in ("system", "max_tokens", "own", "temperature", "top_p")]
    quiet = {"show_progress": "hidden", "api_visibility": "private"}
    gr.on(
        [parts["question"].submit, parts["send"].click],
        deeds.send,
        [parts["question"], parts["chat"], *wishes],
        outputs,
        concurrency_limit=AT_ONCE,
        trigger_mode="multiple",
        **quiet,
    )
    parts["stop"].click(deeds.halt, None, None, queue=False, **quiet)
    fresh = [parts["fresh"].click, parts["bubbles"].clear]  # the latter has a button of its own
    gr.on(fresh, deeds.fresh, None, outputs, queue=False, **quiet)
    blocks.unload(deeds.halt)


# --- the process ---------------------------------------------------------------------------------


class Guard:
    """An ASGI application behind our headers; ``names``: how a browser must have called it."""

    def __init__(self, app: Any, names: frozenset[str] | None) -> None:
        self.app, self.names = app, names

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass on what may be passed on.

        A page elsewhere whose name points to this host's loopback is refused (DNS rebinding).
        """

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        if scope["type"] == "http" and self.names is not None:
            given = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
            if called(given) not in self.names:
                await send({"type": "http.response.start", "status": 400, "headers": []})
                await send({"type": "http.response.body", "body": b"not the name of this page\n"})
                return
        await self.app(scope, receive, with_headers)


def called(host: str) -> str | None:
    """The name in a Host header."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def follow(parent: int) -> None:
    """Wait until another process is the parent."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5 * LOOK_SECONDS)
    os._exit(1)


def main() -> None:
    """Serve the page until somebody ends this process."""
    config = json.load(sys.stdin)
    threading.Thread(target=follow, args=(config["parent"],), daemon=True).start()
    gr: Any = importlib.import_module("gradio")
    fastapi: Any = importlib.import_module("fastapi")
    uvicorn: Any = importlib.import_module("uvicorn")
    blocks, i18n = page(gr, config)
    app = gr.mount_gradio_app(
        fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None),
        blocks,
        path="/",
        server_name=config["host"],
        server_port=config["port"],
        auth=tuple(config["auth"]) if config["auth"] else None,
        footer_links=[],
        run_history=False,
        max_file_size="1kb",
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        i18n=i18n,
        theme=gr.themes.Default(primary_hue="blue", neutral_hue="slate"),
        css=CSS,
    )
    names = None if config["auth"] else frozenset((*LOCAL, config["host"]))
    uvicorn.run(
        Guard(app, names),
        host=config["host"],
        port=config["port"],
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )


if __name__ == "__main__":
    main()
