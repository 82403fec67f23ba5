"""What a server is started with: command line and surroundings, from environment, model, tuning."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from cpubuild import receipt
from cpubuild.errors import ExitCode, fail
from cpubuild.serving.key import VARIABLE
from cpubuild.state import State
from cpubuild.tune.model import Tuning

PORT = 8000
# Options that this tool sets itself, with its own option for each.
OWN = {
    "--host": "--host",
    "--port": "--port",
    "--api-key": "--api-key-file",
    "--served-model-name": "--name",
    "--model": "MODEL",
    "--uds": "--host",
}
# Taken out of the surroundings: they belong to the tool, or to another Python.
FOREIGN = frozenset({"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", VARIABLE})
QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Everything a server is started with; ``env`` is its whole surroundings, the key in it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    model: str
    name: str
    host: str
    port: int
    target: Path
    release: str
    tuned: bool


def target_of(state: State, target: str | None) -> tuple[Path, str]:
    """The environment to serve from, and its release of vLLM; SETTINGS if there is none."""
    if target is None:
        env = state.installed(otherwise="give --target ENVIRONMENT, or another --state")
    else:
        env = Path(target).expanduser().absolute()
        env = env.parent.parent if env.is_file() else env
    missing = next((p for p in (env / "bin/python", env / "bin/vllm") if not p.is_file()), None)
    if missing is not None:
        raise fail(
            ExitCode.SETTINGS,
            f"{env} cannot serve: there is no {missing}",
            remedy=("cpubuild bootstrap", "give --target the folder of an environment with vllm"),
        )
    return env, receipt.release_of(env)


def port_of(text: str | None) -> int:
    """The port that was asked for; 0 stands for a free one."""
    if text is None:
        return PORT
    if text.isascii() and text.isdigit() and int(text) < 65536:
        return int(text)
    raise fail(
        ExitCode.SETTINGS,
        f"--port {text}: a number from 0 to 65535 is needed",
        remedy=("--port 8000", "--port 0   # chooses a free one"),
    )


def address(host: str, port: int) -> tuple[Any, Any]:
    """Family and address to bind to; SETTINGS for a host that cannot be understood."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise fail(
            ExitCode.SETTINGS,
            f"--host {host}: {error}",
            remedy=("--host 127.0.0.1   # this host only",),
        ) from error
    return found[0][0], found[0][4]


def is_loopback(host: str) -> bool:
    """Whether only this host can reach a server bound there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def guard(host: str, *, key_given: bool) -> None:
    """Refuse to be reached by others without a key that somebody has chosen."""
    if is_loopback(host) or key_given:
        return
    raise fail(
        ExitCode.SETTINGS,
        f"--host {host} can be reached by others, and no key was given",
        why="whoever reaches the server could use it; a key made here would be known to nobody",
        remedy=(
            "openssl rand -hex 24 > KEY && chmod 600 KEY",
            f"cpubuild serve MODEL --host {host} --api-key-file KEY",
            "leave --host out   # this host only",
        ),
    )


def free(host: str, port: int) -> int:
    """``port`` (0: one that is free), if it can be bound to; BUSY with who has it if not."""
    family, where = address(host, port)
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(where)
            return int(listener.getsockname()[1])
        except PermissionError as error:
            raise fail(
                ExitCode.SETTINGS,
                f"port {port} cannot be used by this user: {error.strerror}",
                remedy=("give a --port from 1024 on",),
            ) from error
        except OSError as error:
            if error.errno is not None and listener_of(port) is None and not in_use(error):
                raise fail(
                    ExitCode.SETTINGS,
                    f"--host {host}: {error.strerror}",
                    why="a server can only listen at an address of this host",
                    remedy=("--host 127.0.0.1",),
                ) from error
            who = listener_of(port) or "a process that this user may not see"
            raise fail(
                ExitCode.BUSY,
                f"port {port} is taken by {who}",
                remedy=("--port 0   # chooses a free one", f"--port {port + 1}"),
            ) from error


def in_use(error: OSError) -> bool:
    """Whether an address could not be bound because another has it."""
    import errno

    return error.errno == errno.EADDRINUSE


def listener_of(port: int) -> str | None:
    """Who listens on a TCP port, in words; None if nobody that can be seen."""
    try:
        rows = psutil.net_connections(kind="tcp")
    except psutil.Error:
        return None
    for row in rows:
        if row.status == psutil.CONN_LISTEN and row.laddr and row.laddr.port == port:
            return described(row.pid)
    return None


def described(pid: int | None) -> str | None:
    """A process in words."""
    if pid is None:
        return None
    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return f"process {pid}"
    return f"process {pid} ({' '.join(words)[:100]})" if words else f"process {pid}"


def extras(words: Sequence[str]) -> tuple[str, ...]:
    """More words for vllm serve; SETTINGS for those that this tool sets itself."""
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        if name in OWN:
            raise fail(
                ExitCode.SETTINGS,
                f"{word} cannot stand behind --: cpubuild sets it itself",
                remedy=(f"use {OWN[name]} before the --",),
            )
    return tuple(words)


def surroundings(
    base: Mapping[str, str], *, env: Path, tuning: Tuning | None, cache: Path
) -> dict[str, str]:
    """The server's surroundings: the caller's without the tool's, the tuning's, caches of ours."""
    kept = {n: v for n, v in base.items() if n not in FOREIGN and not n.startswith("CPUBUILD_")}
    caches = {
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
    }
    kept = caches | QUIET | kept
    if tuning is not None:
        kept = tuning.environ(kept)
    path = f"{env / 'bin'}:{base.get('PATH', '/usr/bin:/bin')}"
    return kept | {"VIRTUAL_ENV": str(env), "PATH": path}


def reads_variable(env: Path) -> bool:
    """Whether this vLLM takes its key from ``VLLM_API_KEY``, where nobody else can read it."""
    for source in env.glob("lib/python3*/site-packages/vllm/envs.py"):
        return VARIABLE in source.read_text(encoding="utf-8", errors="replace")
    return False


def compose(
    *,
    env: Path,
    release: str,
    model: str,
    name: str,
    host: str,
    port: int,
    key: str,
    tuning: Tuning | None,
    more: Sequence[str],
    base: Mapping[str, str],
    cache: Path,
) -> Launch:
    """Put a launch together: the environment's own vllm, run by its own interpreter."""
    around = surroundings(base, env=env, tuning=tuning, cache=cache)
    key_words: tuple[str, ...] = ()
    if reads_variable(env):
        around[VARIABLE] = key
    else:
        key_words = ("--api-key", key)
    argv = (
        *(tuning.launcher if tuning else ()),
        *(str(env / "bin/python"), str(env / "bin/vllm"), "serve", model),
        *("--host", host, "--port", str(port), "--served-model-name", name),
        *key_words,
        *(tuning.arguments() if tuning else ()),
        *more,  # the last word counts, so what was asked for wins over the tuning
    )
    return Launch(
        argv=argv,
        env=around,
        model=model,
        name=name,
        host=host,
        port=port,
        target=env,
        release=release,
        tuned=tuning is not None,
    )
