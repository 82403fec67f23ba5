"""The engine on small trees with the real git: all or nothing, idempotent, reversible."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cpubuild import patching
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.patching import diff as diffs
from cpubuild.patching import engine, git, series
from cpubuild.patching.edits import Change
from cpubuild.patching.model import Outcome

from .patchcases import debian_12, hashes, release_of

pytestmark = pytest.mark.integration

SERIES = """
[[patch]]
id = "first"
phases = ["source"]
why = "The first of two on one file."
upstream = "none"
drop_when = "never"
absent = "refuse"
when = [{ releases = ">=0.1" }]
edits = [{ kind = "diff", file = "first.diff" }]

[[patch]]
id = "second"
phases = ["source"]
why = "Rests on what the first leaves."
upstream = "none"
drop_when = "never"
absent = "refuse"
when = [{ releases = ">=0.1" }]
edits = [
    { kind = "substitute", path = "code.txt", find = "TWO", replace = "zwei", done = "zwei" },
    { kind = "diff", file = "second.diff" },
]
"""
CODE = "one\ntwo\nthree\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "code.txt").write_text(CODE)
    (tree / "sub").mkdir()
    (tree / "sub" / "other.txt").write_bytes(b"alpha\r\n\xffbeta\r\nlast")
    return tree


@pytest.fixture
def selected(tmp_path, monkeypatch):
    where = tmp_path / "series"
    where.mkdir()
    (where / "series.toml").write_text(SERIES)
    first = Change(path="code.txt", before=CODE, after=CODE.replace("two", "TWO"))
    text = git.decode(b"alpha\r\n\xffbeta\r\nlast")
    second = Change(path="sub/other.txt", before=text, after=text.replace("last", "end"))
    (where / "first.diff").write_bytes(git.encode(diffs.unified([first])))
    (where / "second.diff").write_bytes(git.encode(diffs.unified([second])))
    monkeypatch.setattr(series, "folder", lambda: where)
    return patching.select(release_of("0.33.0"), debian_12(), series=series.load(where))


def test_apply_then_reverse_restores_every_byte(tree, selected):
    before = hashes(tree)
    applied = patching.apply(tree, selected)
    assert [one.outcome for one in applied] == [Outcome.APPLIES, Outcome.APPLIES]
    assert (tree / "code.txt").read_text() == "one\nzwei\nthree\n"
    assert (tree / "sub" / "other.txt").read_bytes() == b"alpha\r\n\xffbeta\r\nend"
    patching.reverse(tree, applied)
    assert hashes(tree) == before


def test_the_record_holds_the_hashes_of_each_file(tree, selected):
    before = hashes(tree)
    applied = patching.apply(tree, selected)
    after = hashes(tree)
    assert applied[0].files[0].before == before["code.txt"]
    assert applied[1].files[0].after == after["code.txt"]
    assert {t.path for t in applied[1].files} == {"code.txt", "sub/other.txt"}
    assert all(one.diff_sha256 == engine.digest(git.encode(one.diff)) for one in applied)


def test_a_second_run_changes_nothing(tree, selected):
    patching.apply(tree, selected[:1])
    before = hashes(tree)
    again = patching.apply(tree, selected[:1])
    assert [one.outcome for one in again] == [Outcome.ALREADY]
    assert hashes(tree) == before
    patching.reverse(tree, again)
    assert hashes(tree) == before


def test_checking_changes_nothing(tree, selected):
    before = hashes(tree)
    assert [one.outcome for one in patching.check(tree, selected)] == [Outcome.APPLIES] * 2
    assert hashes(tree) == before


def test_a_broken_patch_leaves_the_tree_untouched(tree, selected):
    (tree / "sub" / "other.txt").write_text("something else\n")
    before = hashes(tree)
    with pytest.raises(CpuBuildError) as caught:
        patching.apply(tree, selected)
    assert hashes(tree) == before
    assert caught.value.exit_code is ExitCode.PATCH
    (problem,) = caught.value.problems
    assert "second.diff does not apply to sub/other.txt, hunk at line 1" in problem.what
    assert problem.remedy
    assert any("+end" in line for line in caught.value.tail)


def test_every_patch_that_does_not_fit_is_named(tree, selected):
    (tree / "code.txt").unlink()
    with pytest.raises(CpuBuildError) as caught:
        patching.check(tree, selected)
    assert [p.what.partition(":")[0] for p in caught.value.problems] == [
        "patch first",
        "patch second",
    ]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failure_half_way_is_taken_back(tree, selected, monkeypatch, failing):
    before = hashes(tree)
    real, calls = git.apply, []

    def apply(where, diff, **how):
        done = real(where, diff, **how)
        if where == tree and not how:
            calls.append(diff)
            if len(calls) == failing:
                raise KeyboardInterrupt
        return done

    monkeypatch.setattr(git, "apply", apply)
    with pytest.raises(KeyboardInterrupt):
        patching.apply(tree, selected)
    assert len(calls) == failing
    assert hashes(tree) == before


def test_git_that_does_nothing_is_found_out(tree, selected, monkeypatch):
    before = hashes(tree)
    real = git.apply

    def apply(where, diff, **how):
        return real(where, diff, **(how if where != tree else {"check": True}))

    monkeypatch.setattr(git, "apply", apply)
    with pytest.raises(CpuBuildError, match="reported success"):
        patching.apply(tree, selected)
    assert hashes(tree) == before


def test_reverse_refuses_a_file_that_changed_since(tree, selected):
    applied = patching.apply(tree, selected)
    (tree / "code.txt").write_text("edited by hand\n")
    before = hashes(tree)
    with pytest.raises(CpuBuildError, match=r"code\.txt was changed"):
        patching.reverse(tree, applied)
    assert hashes(tree) == before


@pytest.mark.parametrize("where", [".", ".."])
def test_repositories_and_their_settings_do_not_matter(tree, selected, where):
    subprocess.run(["git", "init", "-q", str(tree / where)], check=True)
    config = ["git", "-C", str(tree / where), "config"]
    subprocess.run([*config, "apply.whitespace", "fix"], check=True)
    subprocess.run([*config, "core.autocrlf", "true"], check=True)
    before = hashes(tree)
    applied = patching.apply(tree, selected)
    assert (tree / "sub" / "other.txt").read_bytes() == b"alpha\r\n\xffbeta\r\nend"
    patching.reverse(tree, applied)
    assert hashes(tree) == before


def test_a_path_that_is_a_link_is_the_same_tree(tree, selected, tmp_path):
    (tmp_path / "link").symlink_to(tree)
    applied = patching.apply(tmp_path / "link", selected)
    assert (tree / "code.txt").read_text() == "one\nzwei\nthree\n"
    patching.reverse(tmp_path / "link", applied)
    assert (tree / "code.txt").read_text() == CODE


def test_without_git_the_message_says_so(tree, selected, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CpuBuildError, match="git cannot be started") as caught:
        patching.apply(tree, selected)
    assert caught.value.exit_code is ExitCode.PREREQUISITE


LINES = st.lists(st.sampled_from(["a", "b", "", " ", "\tx", "c\r", "é\x0c", "\\ No"]), min_size=1)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=LINES, after=LINES, end=st.booleans(), other_end=st.booleans())
def test_any_two_texts_make_a_diff_that_git_applies_and_reverses(
    tmp_path, before, after, end, other_end
):
    old = "\n".join([*before, "z"]) + "\n" * end
    new = "\n".join([*after, "z"]) + "\n" * other_end
    if old == new:
        return
    (tmp_path / "f").write_bytes(git.encode(old))
    made = diffs.unified([Change(path="f", before=old, after=new)])
    assert git.apply(tmp_path, made).ok
    assert (tmp_path / "f").read_bytes() == git.encode(new)
    assert git.apply(tmp_path, made, reverse=True).ok
    assert (tmp_path / "f").read_bytes() == git.encode(old)
