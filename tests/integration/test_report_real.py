"""The report on logs that the real ninja writes, and memory of real processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cpubuild.report import MemorySampler, make_report, ninja
from cpubuild.report.recorded import parse_memory
from cpubuild.report.sampler import available_bytes, descendants_bytes

pytestmark = pytest.mark.integration

BUILD = """\
rule cc
  command = sleep $seconds && touch $out
build CMakeFiles/_C.dir/a.cpp.o: cc
  seconds = 0.2
build CMakeFiles/_C.dir/b.cpp.o: cc
  seconds = 0.2
build CMakeFiles/dnnl_cpu.dir/c.cpp.o: cc CMakeFiles/_C.dir/a.cpp.o
  seconds = $long
build _C.abi3.so: cc CMakeFiles/dnnl_cpu.dir/c.cpp.o CMakeFiles/_C.dir/b.cpp.o
  seconds = 0
"""
CHILD = "import time; x = bytearray(120_000_000); print('ready', flush=True); time.sleep(60)"


@pytest.fixture(scope="module")
def program() -> str:
    found = shutil.which("ninja")
    if found is None:
        pytest.skip("this host has no ninja")
    return found


def test_a_build_that_was_interrupted_and_gone_on_with(program: str, tmp_path: Path) -> None:
    script = tmp_path / "build.ninja"
    script.write_text(BUILD.replace("$long", "60"))
    first = subprocess.Popen([program, "-j2"], cwd=tmp_path, stdout=subprocess.DEVNULL)
    log = tmp_path / ".ninja_log"
    wait_for(lambda: log.exists() and log.read_text().count(".o\t") == 2)
    first.send_signal(signal.SIGINT)
    first.wait(20)
    time.sleep(1.2)  # a second call begins later than SAME_CLOCK
    script.write_text(BUILD.replace("$long", "0.3"))
    subprocess.run([program, "-j2"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)

    read = ninja.parse(log.read_text())
    assert read.unread == 0
    assert [[job.name for job in s.jobs] for s in read.sessions] == [
        ["a.cpp", "b.cpp"],
        ["c.cpp", "_C.abi3.so"],
    ]
    one, two = read.sessions
    assert max(ninja.lanes(one.jobs).values()) == 1
    assert max(ninja.lanes(two.jobs).values()) == 0
    assert one.clock is not None
    assert two.clock is not None
    assert one.clock + one.seconds < two.clock
    assert abs(two.clock + two.seconds - time.time()) < 60

    (tmp_path / "run" / "compile").mkdir(parents=True)
    shutil.copy(log, tmp_path / "run" / "compile" / "ninja_log")
    text = make_report(tmp_path / "run", tmp_path / "report.html").read_text()
    assert "Ninja was called 2 times" in text


def test_memory_of_a_process_and_of_what_it_started(tmp_path: Path) -> None:
    before = descendants_bytes(os.getpid())
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        with MemorySampler(os.getpid(), tmp_path / "m.csv", interval=0.1):
            time.sleep(0.5)
        grown = descendants_bytes(os.getpid()) - before
        for child in psutil.Process(parent.pid).children():
            child.kill()
    assert 120e6 < grown < 200e6
    samples = parse_memory((tmp_path / "m.csv").read_text()).samples
    assert len(samples) >= 3
    assert all(s.used - before > 120e6 for s in samples)
    assert all(0 < s.available <= os.sysconf("SC_PHYS_PAGES") * 4096 for s in samples)


def test_a_sample_costs_nearly_nothing() -> None:
    available_bytes()
    descendants_bytes(os.getpid())
    began = time.process_time()
    for _ in range(20):
        available_bytes()
        descendants_bytes(os.getpid())
    # Every 2 seconds one: a hundredth of a core at the very most.
    assert (time.process_time() - began) / 20 < 0.02


def wait_for(condition, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
