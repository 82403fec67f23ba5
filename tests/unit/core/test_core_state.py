"""The state root: names, what is current, and the errors of a place that cannot hold it."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cpubuild import jsonio, verbs
from cpubuild import state as module
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.state import LAYOUT, State


@pytest.fixture(autouse=True)
def no_left_over_processes(monkeypatch):
    monkeypatch.setattr(module.sessions, "end_recorded", lambda record: False)


def test_nothing_is_made_before_prepare(tmp_path):
    root = tmp_path / "a" / "b"
    fresh = State(root=root)
    assert fresh.current_env() is None
    assert fresh.environments() == ()
    assert fresh.last_run() is None
    assert not root.parent.exists()
    fresh.prepare()
    assert sorted(p.name for p in root.iterdir()) == sorted(LAYOUT)


@pytest.mark.parametrize("below", ["file", "file/deeper/still", "wheels-is-a-file", "x" * 300])
def test_a_place_that_cannot_hold_state_is_a_settings_error(tmp_path, below):
    (tmp_path / "file").touch()
    (tmp_path / "wheels-is-a-file").mkdir()
    (tmp_path / "wheels-is-a-file" / "wheels").touch()
    blocked = State(root=tmp_path / below)
    for touch in (blocked.prepare, lambda: blocked.new_run("plan"), blocked.lock().__enter__):
        with pytest.raises(CpuBuildError) as caught:
            touch()
        assert caught.value.exit_code is ExitCode.SETTINGS
        assert any("--state" in r for p in caught.value.problems for r in p.remedy)


@pytest.mark.parametrize(
    ("below", "reason"),
    [("file", "a folder is needed"), ("file/deeper", "a folder is needed"), ("dangling", "needed")],
)
def test_a_blocked_place_is_foreseen_without_touching_it(tmp_path, below, reason):
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (problem,) = State(root=tmp_path / below).problems()
    assert problem.exit_code is ExitCode.SETTINGS
    assert reason in problem.what
    assert {p.name for p in tmp_path.iterdir()} == {"file", "dangling"}


def test_a_place_that_cannot_be_looked_at_is_foreseen(tmp_path, monkeypatch):
    shut = tmp_path / "shut"
    shut.mkdir()
    exists, access = Path.exists, os.access

    def refused(self: Path, **named: bool) -> bool:
        if self != shut and self.is_relative_to(shut):
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return exists(self, **named)

    monkeypatch.setattr(Path, "exists", refused)
    monkeypatch.setattr(os, "access", lambda p, mode: Path(p) != shut and access(p, mode))
    (problem,) = State(root=shut / "state").problems()
    assert f"{shut}: this user cannot write there" in problem.what
    assert State(root=tmp_path / "free" / "state").problems() == ()


def test_the_lock_is_held_and_given_back(state):
    with state.lock():
        holder = (state.root / "lock.holder").read_text()
        assert holder.startswith(f"process {os.getpid()} since 2")
        with pytest.raises(CpuBuildError) as caught, State(root=state.root).lock():
            pytest.fail("two have the lock")
        assert caught.value.exit_code is ExitCode.BUSY
        assert holder.strip() in caught.value.problems[0].what
    with state.lock():
        pass


def test_the_lock_is_given_back_after_an_error(state):
    with pytest.raises(ZeroDivisionError), state.lock():
        raise ZeroDivisionError
    with state.lock():
        pass


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b""])
def test_a_busy_lock_is_told_even_if_its_holder_is_not(state, content):
    with state.lock():
        holder = state.root / "lock.holder"
        holder.unlink() if content is None else holder.write_bytes(content)
        with pytest.raises(CpuBuildError, match="in use by another process"):
            State(root=state.root).lock().__enter__()


@pytest.mark.parametrize("filename", [None, "wheels/x"])
def test_a_full_disk_is_the_state_roots(state, filename):
    named = filename and str(state.root / filename)
    with pytest.raises(CpuBuildError) as caught, state.lock():
        raise OSError(errno.ENOSPC, "No space left on device", named)
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert "No space left on device" in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/x"),
        ConnectionError("the server went away"),
        PermissionError(errno.EACCES, "Permission denied", "/somewhere/else"),
        TimeoutError("a probe took too long"),
    ],
)
def test_what_fails_under_the_lock_is_not_blamed_on_the_state_root(state, error):
    with pytest.raises(type(error)) as caught, state.lock():
        raise error
    assert caught.value is error


def test_activation_is_told_once(state, make_environment):
    one, two = make_environment("one"), make_environment("two")
    assert state.activate(one)
    assert not state.activate(one)
    assert state.current_env() == one.resolve()
    assert state.activate(two)
    assert state.current_env() == two.resolve()
    assert state.current.readlink() == Path("envs/two")


def test_the_state_root_may_be_moved(state, make_environment, tmp_path):
    state.activate(make_environment("one"))
    state.root.rename(tmp_path / "moved")
    assert State(root=tmp_path / "moved").current_env() == tmp_path / "moved" / "envs" / "one"


def test_current_never_points_to_nothing_on_the_way(state, make_environment, monkeypatch):
    one, two = make_environment("one"), make_environment("two")
    state.activate(one)
    monkeypatch.setattr(Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError()))
    with pytest.raises(OSError):
        state.activate(two)
    assert state.current_env() == one.resolve()
    monkeypatch.undo()
    state.activate(two)  # what the crash left is no obstacle
    assert state.current_env() == two.resolve()
    assert [p.name for p in state.root.glob(".current*")] == []


def test_an_incomplete_environment_is_never_current(state, make_environment):
    state.activate(make_environment("half", verdict=None))
    assert state.current_env() is None
    state.current.unlink()
    state.current.symlink_to("envs/gone")
    assert state.current_env() is None
    state.current.unlink()
    state.current.symlink_to("current")
    assert state.current_env() is None


def test_environments_are_listed_oldest_first(state, make_environment):
    make_environment("b", "2026-03-01T00:00:00Z")
    make_environment("a", "2026-05-01T00:00:00Z")
    make_environment("c", "2025-05-01T00:00:00Z", verdict="fail")
    make_environment("d", verdict=None)
    names = [(path.name, kept is not None) for path, kept in state.environments()]
    assert names == [("c", True), ("b", True), ("a", True), ("d", False)]


@pytest.mark.parametrize("text", ["{", "[]", '{"verify": []}', '{"requests": null}'])
def test_a_damaged_receipt_hides_no_other_environment(state, make_environment, text):
    (make_environment("a") / "receipt.json").write_text(text)
    make_environment("b")
    found = {p.name: kept is None for p, kept in state.environments()}
    assert found == {"a": True, "b": False}


@pytest.mark.parametrize("name", [*LAYOUT, "running", "lock", "current"])
def test_what_lies_where_something_else_belongs_is_named_with_the_way_out(state, call, name):
    state.prepare()
    path = state.root / name
    if path.is_dir():
        path.rmdir()
    if name == "lock":
        path.unlink()
        path.mkdir()
    else:
        path.write_text("mine")
    for attempt in (
        state.prepare,
        state.lock().__enter__,
        lambda: verbs.status(call()),
        lambda: verbs.clean(call(all=True, dry=False)),
    ):
        with pytest.raises(CpuBuildError) as caught:
            attempt()
        assert caught.value.exit_code is ExitCode.SETTINGS
        (problem,) = caught.value.problems
        assert problem.what.startswith(f"{path} is in the way: it is a f")
        assert problem.remedy[0] == f"mv {path} {path}.old"
    assert state.problems() == (problem,)
    assert path.exists()


def test_everything_in_the_way_is_named_at_once(state):
    state.prepare()
    for name in ("wheels", "cache"):
        (state.root / name).rmdir()
        (state.root / name).symlink_to("nowhere")
    assert sorted(p.what.split()[0] for p in state.problems()) == [
        str(state.root / "cache"),
        str(state.root / "wheels"),
    ]
    assert all("a link to nothing" in p.what for p in state.problems())


def test_a_folder_where_current_belongs_is_named_before_anything(state):
    state.current.mkdir()
    (problem,) = state.problems()
    assert "current" in problem.what
    assert problem.exit_code is ExitCode.SETTINGS


def test_clean_takes_nothing_from_a_folder_that_is_no_state_root(tmp_path, call):
    precious = tmp_path / "other" / "builds" / "thesis.txt"
    precious.parent.mkdir(parents=True)
    precious.touch()
    other = replace(call(all=True, dry=False), flags={"state": str(tmp_path / "other")})
    assert verbs.clean(other).document["removed"] == []
    assert precious.exists()


def test_fifty_runs_are_kept(state):
    for number in range(60):
        (state.runs / f"20250101T0000{number:02d}-plan-1").mkdir()
    newest = state.new_run("bootstrap")
    kept = sorted(p.name for p in state.runs.iterdir())
    assert len(kept) == 50
    assert kept[-1] == newest.name
    assert kept[0] == "20250101T000011-plan-1"
    assert state.last_run() == newest


# rollback and clean, on environments made by the test


def names(outcome):
    return sorted(Path(p).name for p in outcome.document["removed"])


def test_rollback_takes_the_newest_other_verified_environment(state, make_environment, call):
    make_environment("old", "2026-01-01T00:00:00Z")
    before = make_environment("before", "2026-02-01T00:00:00Z")
    make_environment("failed", "2026-03-01T00:00:00Z", verdict="fail")
    make_environment("half", verdict=None)
    newest = make_environment("newest", "2026-04-01T00:00:00Z")
    state.activate(newest)
    outcome = verbs.rollback(call())
    assert outcome.document == {"changed": True, "environment": before, "previous": newest}
    assert state.current_env() == before.resolve()
    verbs.rollback(call())
    assert state.current_env() == newest.resolve()


def test_rollback_without_another_environment_changes_nothing(state, make_environment, call):
    only = make_environment("only")
    make_environment("failed", verdict="fail")
    state.activate(only)
    with pytest.raises(CpuBuildError) as caught:
        verbs.rollback(call())
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert state.current_env() == only.resolve()


@pytest.fixture
def full(state, make_environment):
    for name in ("old", "now"):
        make_environment(name)
    make_environment("half", verdict=None)
    for folder in ("downloads", "sources", "buildenvs", "builds", "wheels", "cache"):
        (state.root / folder / "thing").mkdir()
        (state.root / folder / "thing" / "file").write_bytes(b"x" * 1000)
    state.activate(state.envs / "now")
    return state


def test_clean_keeps_what_is_in_use_and_what_saves_the_next_build(full, call):
    outcome = verbs.clean(call(all=False, dry=False))
    assert names(outcome) == sorted(
        ["old", "half", "old.txt", "half.txt", *["thing"] * 3]  # buildenvs, builds, downloads
    )
    assert outcome.document["bytes"] > 3000
    assert full.current_env() == (full.envs / "now").resolve()
    assert (full.locks / "now.txt").is_file()
    for kept in ("sources", "wheels", "cache"):
        assert (full.root / kept / "thing" / "file").is_file()
    assert names(verbs.clean(call(all=False, dry=False))) == []


def test_a_dry_clean_names_the_same_and_removes_nothing(full, call):
    def tree():
        own = {full.root / "lock", full.root / "lock.holder"}
        return sorted(p for p in full.root.rglob("*") if p not in own)

    before = tree()
    dry = verbs.clean(call(all=False, dry=True))
    assert tree() == before
    assert all(line.startswith("would remove ") for line in dry.lines[:-1])
    assert names(dry) == names(verbs.clean(call(all=False, dry=False)))


def test_clean_all_leaves_only_the_lock(full, call):
    outcome = verbs.clean(call(all=True, dry=False))
    assert {p.name for p in full.root.iterdir()} <= {"lock", "lock.holder"}
    assert {"current", "envs", "locks", "wheels"} <= set(names(outcome))


def test_clean_follows_no_link_out_of_the_state_root(full, call, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (full.envs / "linked").symlink_to(outside)
    (full.builds / "linked").symlink_to(outside)
    for everything in (False, True):
        verbs.clean(call(all=everything, dry=False))
        assert (outside / "precious").exists()


def test_clean_without_a_state_root_makes_none(state, call):
    shutil.rmtree(state.root)
    assert names(verbs.clean(call(all=False, dry=False))) == []
    assert not state.root.exists()


def test_status_counts_what_is_there(full, call):
    document = verbs.status(call()).document
    assert [(r["name"], r["current"], r["verdict"]) for r in document["environments"]] == [
        ("now", True, "pass"),
        ("old", False, "pass"),
        ("half", False, "incomplete"),
    ]
    assert document["bytes"]["wheels"] == 1000
    assert jsonio.dumps(document)
