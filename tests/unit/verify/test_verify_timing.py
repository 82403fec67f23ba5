"""The timed workload, and whose CPU time it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cpubuild.probe import timing


def test_no_two_prompts_share_their_first_block() -> None:
    prompts = [p["ids"] for run in range(timing.RUNS + 1) for p in timing.workload(run)]
    assert {len(p) for p in prompts} == {timing.PROMPT}
    assert len({tuple(p[:32]) for p in prompts}) == len(prompts)
    assert all(0 <= i < 256 for p in prompts for i in p)


def test_each_run_is_timed_and_the_first_does_not_count() -> None:
    asked: list[list[dict[str, Any]]] = []
    document = timing.speed(asked.append)
    assert len(asked) == timing.RUNS + 1
    assert len(document["runs"]) == timing.RUNS
    assert document["tokens"] == timing.BATCH * (timing.PROMPT + timing.GENERATED)
    assert document["cpus"] >= 1


def test_fields_of_proc_are_read_after_the_name(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("77 (a (strange) name) S 12 0 0\n")
    assert timing.stat_fields(stat) == ["S", "12", "0", "0"]
    stat.write_text("cpu  1 2 3 4\ncpu0 9\n")
    assert timing.stat_fields(stat) == ["1", "2", "3", "4"]


def test_where_proc_does_not_say_others_are_unknown(monkeypatch: Any) -> None:
    def silent() -> float:
        raise OSError

    monkeypatch.setattr(timing, "busy_seconds", silent)
    assert timing.speed(lambda _: None)["others"] is None
