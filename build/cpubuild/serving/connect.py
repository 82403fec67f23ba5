"""To whom a question goes: the server of this state root, a named one, or one for this call."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cpubuild import ui
from cpubuild.calls import Call
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.serving import key as keys
from cpubuild.serving import lifecycle, serve
from cpubuild.serving.client import Client, Wish
from cpubuild.serving.record import Files, Record, files_of
from cpubuild.state import State

# A server whose engine has died takes a while to end.
ENDING_SECONDS = 15.0
# What serve takes and these verbs do not; a server for one call is on the loopback.
UNSAID: dict[str, Any] = {
    "host": None,
    "port": "0",
    "api_key": None,
    "name": None,
    "target": None,
    "untuned": False,
    "foreground": False,
    "wait": None,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Talk:
    """Somebody to talk to: ``context`` is how many tokens the model sees, None if not told.

    ``files`` are those of our own server, None for one that was named by its URL.
    """

    client: Client
    model: str
    context: int | None
    files: Files | None

    def explained(self, error: CpuBuildError) -> CpuBuildError:
        """The cause of a failure: if our server has ended, or is about to, that is it."""
        if self.files is None or error.exit_code not in (ExitCode.VERIFY, ExitCode.BUSY):
            return error
        deadline = time.monotonic() + ENDING_SECONDS
        while True:
            ended = lifecycle.crashed(self.files)
            if ended is not None:
                return lifecycle.explained(ended)
            if time.monotonic() > deadline or self.client.look("/health")[0] == 200:
                return error
            time.sleep(0.2)


@contextlib.contextmanager
def talk(call: Call) -> Iterator[Talk]:
    """Somebody to talk to for the block; a server that was started for it is stopped after it.

    PREREQUISITE if there is none and no model was named, BUSY if another model is served.
    """
    state = State(root=call.resolved().settings.state)
    files, url = files_of(state), call.options["url"]
    with contextlib.ExitStack() as stack:
        if url:
            key = keys.given(None, call.options["api_key_file"], call.environ)
            client, own = Client(url=root_of(url), key=key), None
        else:
            record = found(call, state, files, stack)
            named = call.options["api_key_file"]
            key = keys.given(None, named, {}) or keys.kept(record.key_file)
            client, own = Client(url=record.url, key=key), files
        stack.callback(client.close)
        someone = Talk(client=client, model="", context=None, files=own)
        try:
            model, context = served(client, call.options["model"] if url else None)
        except CpuBuildError as error:
            raise someone.explained(error) from error
        yield replace(someone, model=model, context=context)


def root_of(url: str) -> str:
    """A server's root from what was typed, which may end in /v1."""
    root = url.strip().rstrip("/").removesuffix("/v1").rstrip("/")
    if root.startswith(("http://", "https://")) and len(root.split("://", 1)[1]) > 0:
        return root
    raise fail(
        ExitCode.SETTINGS,
        f"--url {url}: an address such as http://127.0.0.1:8000 is needed",
        remedy=("leave it out: the server of this state root is asked",),
    )


def found(call: Call, state: State, files: Files, stack: contextlib.ExitStack) -> Record:
    """Our own server: the one that runs, else one for this call if a model was named."""
    wanted = call.options["model"]
    record = lifecycle.running(files)
    if record is not None:
        if wanted and not means(record, wanted):
            raise fail(
                ExitCode.BUSY,
                f"--model {wanted}: {record.name} is being served",
                why="one state root has one server",
                remedy=("leave --model out", "cpubuild serve --stop   # then ask again"),
            )
        if record.ready is None:
            raise fail(
                ExitCode.BUSY,
                f"the server for {record.name} is still starting",
                remedy=("cpubuild serve --status   # says when it is ready",),
            )
        return record
    ended = lifecycle.crashed(files)
    if ended is not None and not wanted:
        raise lifecycle.explained(ended)
    if not wanted:
        raise fail(
            ExitCode.PREREQUISITE,
            "no server runs",
            why="a question needs a model that is served",
            remedy=(
                "cpubuild serve MODEL",
                "give --model MODEL   # starts one for this call, and stops it",
                "give --url http://HOST:PORT   # a server elsewhere",
            ),
        )
    return for_this_call(call, state, files, stack)


def means(record: Record, wanted: str) -> bool:
    """Whether a name means what is being served."""
    return wanted in (record.name, record.model) or (
        Path(wanted).expanduser().is_dir()
        and Path(wanted).expanduser().resolve() == Path(record.model).resolve()
    )


def for_this_call(call: Call, state: State, files: Files, stack: contextlib.ExitStack) -> Record:
    """A server that ends with this call."""
    ui.say(f"---- no server runs: one is started for {call.options['model']}, and stopped after")
    more = {**UNSAID, "model": call.options["model"], "api_key_file": call.options["api_key_file"]}
    asked = replace(call, options=more)
    serve.begin(asked, state, files)
    stack.callback(lifecycle.stop, files)
    record = lifecycle.running(files)
    if record is None:
        raise fail(ExitCode.VERIFY, "the server ended right after its start", log=files.log)
    return record


def served(client: Client, wanted: str | None) -> tuple[str, int | None]:
    """The model to name in requests, and the length of its context."""
    rows = client.models()
    if not rows:
        raise fail(ExitCode.VERIFY, f"{client.url} serves no model", remedy=("look at its log",))
    names = [str(row["id"]) for row in rows]
    if wanted is not None and wanted not in names:
        raise fail(
            ExitCode.SETTINGS,
            f"--model {wanted}: {client.url} does not serve it",
            remedy=(f"it serves: {', '.join(names)}",),
        )
    row = rows[names.index(wanted)] if wanted is not None else rows[0]
    length = row.get("max_model_len")
    return str(row["id"]), length if isinstance(length, int) else None


def wish_of(call: Call, *, max_tokens: int) -> Wish:
    """The wish that the options make."""
    return Wish(
        max_tokens=whole(call.options["max_tokens"], max_tokens),
        temperature=warmth(call.options["temperature"]),
    )


def whole(text: str | None, default: int) -> int:
    """A number of tokens."""
    if text is None:
        return default
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise fail(
        ExitCode.SETTINGS,
        f"--max-tokens {text}: a whole number of at least 1 is needed",
        remedy=(f"leave it out: {default}",),
    )


def warmth(text: str | None) -> float | None:
    """A temperature; None leaves it to the model's own settings."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if 0.0 <= value <= 2.0:
        return value
    raise fail(
        ExitCode.SETTINGS,
        f"--temperature {text}: a number from 0 to 2 is needed",
        remedy=("--temperature 0   # the likeliest answer, the same each time",),
    )
