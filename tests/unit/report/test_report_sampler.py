"""The memory sampler writes what it is told, and no trouble of its own reaches the build."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from cpubuild.report.recorded import parse_memory
from cpubuild.report.sampler import MemorySampler


def test_samples_are_written_and_can_be_read_again(tmp_path: Path) -> None:
    path, seen = tmp_path / "compile" / "memory.csv", threading.Event()
    asked: list[int] = []

    def used(pid: int) -> int:
        asked.append(pid)
        if len(asked) >= 3:
            seen.set()
        return 1000 * len(asked)

    with MemorySampler(42, path, interval=0.001, used=used, available=lambda: 7) as sampler:
        assert seen.wait(20)
    sampler.join(20)
    assert not sampler.is_alive()
    memory = parse_memory(path.read_text())
    assert memory.clock is not None
    assert [s.used for s in memory.samples[:3]] == [1000, 2000, 3000]
    assert {s.available for s in memory.samples} == {7}
    assert set(asked) == {42}


def test_a_trouble_ends_the_recording_and_nothing_else(tmp_path: Path) -> None:
    def broken(pid: int) -> int:
        raise OSError("the process table is gone")

    path = tmp_path / "memory.csv"
    with MemorySampler(42, path, used=broken, available=lambda: 7) as sampler:
        sampler.join(20)
        assert not sampler.is_alive()
    assert parse_memory(path.read_text()).samples == ()


def test_a_file_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sampler = MemorySampler(42, tmp_path / "file" / "m.csv", used=lambda pid: 0)
    with sampler:
        sampler.join(20)
    assert not sampler.is_alive()


def test_an_error_of_the_build_goes_through(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="of the build"),
        MemorySampler(42, tmp_path / "m.csv", used=lambda pid: 0, available=lambda: 0),
    ):
        raise ValueError("of the build")
