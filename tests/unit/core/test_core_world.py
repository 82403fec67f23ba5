"""The guard around the unit tests holds."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild import run


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.Popen(["true"]),
        lambda: subprocess.run(["true"], check=False),
        lambda: run.capture(["true"]),
        lambda: os.system("true"),
        lambda: os.popen("true"),
        lambda: os.execv("/bin/true", ["true"]),
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        lambda: os.fork(),  # the name as it is now, not the function from before the guard
    ],
)
def test_processes_raise(start):
    with pytest.raises(AssertionError, match="in a unit test"):
        start()


@pytest.mark.parametrize(
    "connect",
    [
        lambda: socket.socket(socket.AF_INET),
        lambda: socket.create_connection(("127.0.0.1", 9)),
        lambda: urllib.request.urlopen("http://127.0.0.1:9/"),
    ],
)
def test_sockets_raise(connect):
    with pytest.raises(AssertionError, match="in a unit test"):
        connect()


def test_the_environment_is_the_tests_own(world):
    assert Path.home() == world / "home"
    assert Path.cwd() == world / "here"
    assert shutil.which("sh") is None
    assert not [n for n in os.environ if n.startswith("CPUBUILD_")]


@given(st.integers())
def test_properties_work_under_the_guard(number):
    with pytest.raises(AssertionError):
        subprocess.Popen(["echo", str(number)])
