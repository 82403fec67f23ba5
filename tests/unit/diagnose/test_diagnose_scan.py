from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator

import pytest

from cpubuild.diagnose import diagnose_lines
from cpubuild.diagnose.scan import JOIN_LINES, Scan, canonical

FLOOR = "  X86 backend requires gcc/g++ >= 12.3"
BORING = "[1/455] Building CXX object CMakeFiles/dnnl.dir/src/cpu/x64/jit_avx_kernel.cpp.o"


def first(lines: list[str]) -> str | None:
    causes = diagnose_lines(lines).causes
    return causes[0].id if causes else None


@pytest.mark.parametrize(
    "before", [0, 1, JOIN_LINES - 1, JOIN_LINES, JOIN_LINES + 1, 5 * JOIN_LINES, 999]
)
def test_a_wrapped_message_is_found_after_many_lines(before: int) -> None:
    lines = ["nothing to see here"] * before + [
        "CMake Error at cmake/cpu_extension.cmake:188 (message):",
        "  vLLM CPU backend requires",
        "  AVX512, AVX2, Power9+ ISA, S390X ISA, ARMv8 or",
        "  RISC-V support.",
    ]
    found = diagnose_lines(lines)
    assert found.causes[0].id == "no-avx2-cpu"
    assert before + 2 in {e.line for e in found.causes[0].evidence}


def test_unrelated_lines_are_not_joined() -> None:
    assert first(["requires gcc/g++", "[1/2] Building >= 12.3"]) is None


def test_lines_with_their_ends_and_a_whole_text_count_alike() -> None:
    text = f"a\nb\n{FLOOR}\n"
    for lines in ([text], text.splitlines(), text.splitlines(keepends=True)):
        (cause,) = diagnose_lines(lines).causes
        assert cause.evidence[0].line == 3


@pytest.mark.parametrize(
    ("status", "signal"),
    [(137, -9), (132, -4), (139, -11), (-9, -9), (1, 1), (128, 128), (255, 255)],
)
def test_a_shells_status_for_a_signal_is_the_signal(status: int, signal: int) -> None:
    assert canonical(status) == signal


@pytest.mark.parametrize(
    "line",
    [
        "Worker VllmWorkerProcess pid 275 died, exit code: -9",
        "process exited with code 137",
        'ERROR: process "/bin/sh -c pip install ." did not complete successfully: exit code: 137',
        "vllm.service: Main process exited, code=killed, status=9/KILL",
        "died with <Signals.SIGKILL: 9>.",
        "subprocess.CalledProcessError: Command returned non-zero exit status 137.",
    ],
)
def test_exit_statuses_are_read_from_words(line: str) -> None:
    scan = Scan()
    scan.feed([line])
    assert {abs(s) for s in scan.statuses} == {9}


def endless(count: int) -> Iterator[str]:
    for number in range(count):
        yield f"{BORING} {number}"
        if number % 50 == 0:
            yield f"INFO 11-18 13:44:09 [a.py:1] error rate {number}: Failed to import nothing"
    yield FLOOR


def test_a_long_log_costs_little_memory() -> None:
    diagnose_lines(endless(10))
    tracemalloc.start()
    found = diagnose_lines(endless(100_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.causes[0].id == "gcc-12-3-floor"
    assert found.lines == 102_001
    assert peak < 6_000_000


def test_twice_the_log_takes_about_twice_the_time() -> None:
    def seconds(count: int) -> float:
        started = time.process_time()
        diagnose_lines(endless(count))
        return time.process_time() - started

    seconds(1_000)
    assert seconds(40_000) < 5 * seconds(20_000) + 0.5


@pytest.mark.parametrize(
    "line",
    [
        "error " * 3_000,
        "Failed to import from vllm._C: " * 600,
        "(" * 16_000 + "error",
        "a/" * 8_000 + ".cpp:1:1: error: x",
        "No space left on device " * 700,
        "nvidia-" * 2_500 + " Collecting nvidia-",
        "x" * 16_000 + ".so: undefined symbol: " + "_Z" * 3_000,
    ],
)
def test_no_line_is_slow(line: str) -> None:
    started = time.process_time()
    diagnose_lines([line] * 3)
    assert time.process_time() - started < 3
