"""The verb ``web``: a page in the browser to talk with the served model, for as long as it runs."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from cpubuild import run, ui
from cpubuild.calls import Call, Outcome
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.serving import connect, launch, lifecycle, texts
from cpubuild.serving.bridge import answering
from cpubuild.serving.chat import MAX_TOKENS
from cpubuild.serving.client import Client
from cpubuild.serving.key import unreadable
from cpubuild.serving.record import client_host
from cpubuild.sidecar import sidecar
from cpubuild.state import State

SIDECAR = "web"
# 6.31: the run history, which a browser would keep, can be switched off.
REQUIREMENTS = ("gradio>=6.31,<7",)
PORT = 7860
PASSWORD_VARIABLE = "CPUBUILD_WEB_PASSWORD"  # noqa: S105 - the name of a variable, not a secret
# What the page's process sees of the caller's environment: no key, no switch of Gradio's.
KEPT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
FOLDERS = ("HOME", "TMPDIR", "GRADIO_TEMP_DIR", "HF_HOME")
QUIET = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}
READY_SECONDS = 180.0
LOOK_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where the page is and who may see it: ``auth`` is user and password, None for everybody."""

    host: str
    port: int
    auth: tuple[str, str] | None

    @property
    def url(self) -> str:
        """The page as a browser on this host reaches it."""
        return f"http://{client_host(self.host)}:{self.port}"


def web(call: Call) -> Outcome:
    """Show the page, say where it is, and stay until somebody ends it; nothing of it is left.

    VERIFY if the page ends by itself; the errors of ``chat`` for the server it talks with.
    """
    settings = call.resolved().settings
    state = State(root=settings.state)
    start = start_of(call)
    place = place_of(call)
    with connect.talk(call) as talk:
        folder = state.new_run("web")
        python = sidecar(state, SIDECAR, REQUIREMENTS, folder=folder, offline=settings.offline)
        with shown(python, place, talk, start, folder / "page") as page:
            try:
                call.tell(ready(place, talk, page))
                ended = page.wait()
            except KeyboardInterrupt:  # the way to end it
                ended = 0
    if ended not in lifecycle.ORDERLY:
        raise page.failed(f"the page has ended: exit status {ended}")
    ui.say("the page has ended")
    return Outcome(document={"running": False, "url": place.url})


def start_of(call: Call) -> dict[str, Any]:
    """How the fields of the page stand at first; SETTINGS for a value that cannot be."""
    wish = connect.wish_of(call, max_tokens=MAX_TOKENS)
    system = call.options["system"]
    return {
        "system": texts.argument(system) if system else None,
        "max_tokens": wish.max_tokens,
        "temperature": wish.temperature,
    }


# --- where and for whom --------------------------------------------------------------------------


def place_of(call: Call) -> Place:
    """Where the page shall be, if it can be there; SETTINGS, or BUSY for a port that is taken."""
    options = call.options
    host = options["host"] or "127.0.0.1"
    auth = auth_of(call)
    guard(host, auth=auth is not None)
    port = PORT if options["port"] is None else launch.port_of(options["port"])
    return Place(host=host, port=launch.free(host, port), auth=auth)


def auth_of(call: Call) -> tuple[str, str] | None:
    """User and password, from --auth and a file or a variable; None if nobody asked for it."""
    user, path = call.options["auth"], call.options["password_file"]
    if user is None:
        if path is None:
            return None
        raise fail(
            ExitCode.SETTINGS,
            "--password-file was given without a user",
            remedy=("add --auth USER",),
        )
    name = texts.argument(user).strip()
    if path is not None:
        return checked(name, read(Path(path).expanduser()), f"--password-file {path}")
    return checked(name, call.environ.get(PASSWORD_VARIABLE, ""), PASSWORD_VARIABLE)


def read(path: Path) -> str:
    """The password in a file, without the line end."""
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise unreadable(path, "--password-file", str(reason)) from error


def checked(user: str, password: str, origin: str) -> tuple[str, str]:
    """User and password if they can be typed, else a SETTINGS error that does not show them."""
    if user.isprintable() and user and password.isprintable() and password.strip():
        return user, password
    if not user or not user.isprintable():
        what, remedy = "--auth: the user's name is empty, or not of one line", "--auth USER"
    elif not password.strip():
        what = f"--auth {user}: there is no password in {origin}"
        remedy = "--password-file FILE   # a file that holds it; it does not show anywhere"
    else:
        what = f"{origin}: the password is not of one line of letters"
        remedy = "openssl rand -hex 12   # makes one that can be used"
    raise fail(
        ExitCode.SETTINGS,
        what,
        why="user and password are typed into the page",
        remedy=(remedy, f"or set {PASSWORD_VARIABLE}"),
    )


def guard(host: str, *, auth: bool) -> None:
    """Refuse to be reached by others without a user and a password."""
    if launch.is_loopback(host) or auth:
        return
    raise fail(
        ExitCode.SETTINGS,
        f"--host {host} can be reached by others, and no user and password were given",
        why="whoever reaches the page uses the server, whose key the page has",
        remedy=(
            "openssl rand -hex 12 > PASSWORD && chmod 600 PASSWORD",
            f"cpubuild web --host {host} --auth USER --password-file PASSWORD",
            f"leave --host out   # this host only; ssh -L {PORT}:127.0.0.1:{PORT} HOST reaches it",
        ),
    )


# --- the page's process --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """The process that shows the page, and what it has printed."""

    process: Any
    log: Path

    def wait(self) -> int:
        """Wait until it has ended; its exit status."""
        while self.process.poll() is None:
            time.sleep(LOOK_SECONDS)
        return int(self.process.returncode)

    def failed(self, what: str) -> CpuBuildError:
        """The error of a page that did not do what it should."""
        return fail(
            ExitCode.VERIFY,
            what,
            why="the last lines of its log may say why",
            remedy=("cpubuild web   # again", f"cpubuild diagnose {self.log}"),
            log=self.log,
            tail=lifecycle.tail(self.log),
        )


@contextlib.contextmanager
def shown(
    python: Path, place: Place, talk: connect.Talk, start: Mapping[str, Any], folder: Path
) -> Iterator[Page]:
    """The page, ready, for the block; its process is ended after it, and what it wrote removed.

    ``start`` is how its fields stand at first; its log goes into ``folder``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    program = resources("cpubuild").joinpath("probe", "web_page.py")
    with (
        tempfile.TemporaryDirectory(prefix="cpubuild-web-") as name,
        answering(talk, Path(name)) as socket,
    ):
        config = {
            "socket": str(socket),
            "host": place.host,
            "port": place.port,
            "auth": place.auth,
            "model": talk.model,
            "context": talk.context,
            "start": start,
            "texts": words(),
            "parent": os.getpid(),
        }
        argv = [str(python), "-I", str(program)]
        env = environment(os.environ, name)
        process = run.detached(argv, stdin=json.dumps(config), output=log, env=env, cwd=Path(name))
        page = Page(process=process, log=log)
        try:
            await_page(page, place)
            yield page
        finally:
            run.end_group(process)


def environment(environ: Mapping[str, str], folder: str) -> dict[str, str]:
    """The whole environment of the page's process, which writes into ``folder`` only."""
    kept = {name: environ[name] for name in KEPT if name in environ}
    return kept | dict.fromkeys(FOLDERS, folder) | QUIET


def await_page(page: Page, place: Place) -> None:
    """Wait until the page answers; VERIFY if it ends before, or takes too long."""
    client = Client(url=place.url)
    deadline = time.monotonic() + READY_SECONDS
    try:
        with ui.Progress("wait until the page answers"):
            while time.monotonic() < deadline:
                if page.process.poll() is not None:
                    raise page.failed("the page could not be shown")
                if client.look("/")[0] == 200:
                    return
                time.sleep(LOOK_SECONDS)
    finally:
        client.close()
    raise page.failed(f"the page did not answer within {ui.duration(READY_SECONDS)}")


def words() -> dict[str, Any]:
    """What the page says, by language."""
    return tomllib.loads(resources("cpubuild").joinpath("data/web.toml").read_text("utf-8"))


def ready(place: Place, talk: connect.Talk, page: Page) -> Outcome:
    """What is told once the page answers."""
    document = {
        "changed": True,
        "running": True,
        "url": place.url,
        "pid": os.getpid(),
        "model": talk.model,
        "server": talk.client.url,
        "user": place.auth[0] if place.auth else None,
        "log": page.log,
    }
    lines = [
        f"ready: {place.url}",
        f"  model {talk.model} at {talk.client.url}",
        *([f"  user  {place.auth[0]}"] if place.auth else []),
        f"  log   {page.log}",
        "  end   Ctrl-C",
    ]
    return Outcome(document=document, lines=lines)
