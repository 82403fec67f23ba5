"""Unit tests do not touch the world: no process, no socket, no environment of whoever runs them."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

PROCESS_STARTERS = (
    *(name for name in dir(os) if name.startswith(("exec", "spawn", "posix_spawn"))),
    "fork",
    "forkpty",
    "popen",
    "system",
)
FOREIGN = (
    "CPUBUILD_",
    "VLLM_",
    "PIP_",
    "UV_",
    "CMAKE_",
    "XDG_",
    "INVOKE_",
    "SETUPTOOLS_",
    "TORCH_",
)
FOREIGN_NAMES = frozenset(
    {"CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "LD_PRELOAD", "LD_LIBRARY_PATH", "MAX_JOBS"}
    | {"NO_COLOR", "FORCE_COLOR", "VIRTUAL_ENV", "PYTHONPATH"}
    | {n for p in ("http", "https", "all", "no") for n in (f"{p}_proxy", f"{p}_proxy".upper())}
)


class TouchedTheWorldError(AssertionError):
    """A unit test tried to start a process or to open a socket."""


def refuse(what: str) -> Callable[..., NoReturn]:
    def refused(*arguments: Any, **named: Any) -> NoReturn:
        raise TouchedTheWorldError(
            f"{what}{arguments[:1]!r} in a unit test: hand the code a fake, "
            "or move the test to tests/integration"
        )

    return refused


class NoPopen(subprocess.Popen):  # type: ignore[type-arg]
    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.returncode = -1  # what __del__ looks at
        refuse("subprocess.Popen")(*arguments)


class NoSocket(socket.socket):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        refuse("socket.socket")(*arguments)


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Processes and sockets raise; home, PATH, work folder and environment are the test's own.

    Returns the folder that holds ``home``, ``bin`` (all of PATH) and ``here`` (where it runs).
    """
    for name in PROCESS_STARTERS:
        if callable(getattr(os, name)):
            monkeypatch.setattr(os, name, refuse(f"os.{name}"))
    monkeypatch.setattr(subprocess, "Popen", NoPopen)
    monkeypatch.setattr(socket, "socket", NoSocket)
    for name in ("create_connection", "getaddrinfo", "socketpair"):
        monkeypatch.setattr(socket, name, refuse(f"socket.{name}"))
    for name in [n for n in os.environ if n.startswith(FOREIGN) or n in FOREIGN_NAMES]:
        monkeypatch.delenv(name)
    world = tmp_path_factory.mktemp("world")
    for folder in ("home", "bin", "here"):
        (world / folder).mkdir()
    monkeypatch.setenv("HOME", str(world / "home"))
    monkeypatch.setenv("PATH", str(world / "bin"))
    monkeypatch.chdir(world / "here")
    return world
