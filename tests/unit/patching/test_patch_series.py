"""The series itself: complete, and mistakes in a series are all named at once."""

from __future__ import annotations

import re

import pytest

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.patching import diff as diffs
from cpubuild.patching.series import folder, load

GOOD = """
[[patch]]
id = "one"
phases = ["source"]
why = "because"
upstream = "none"
drop_when = "never"
absent = "refuse"
when = [{ releases = ">=0.1" }]
edits = [{ kind = "host-target" }]
"""


def test_every_patch_says_why_and_until_when():
    for patch in load():
        assert len(patch.why) > 40
        assert patch.why.endswith(".")
        assert patch.upstream
        assert patch.drop_when


def test_every_diff_beside_the_series_is_used_by_it():
    used = {edit.file for patch in load() for edit in patch.edits if edit.file}
    there = {p.relative_to(folder()).as_posix() for p in folder().rglob("*.diff")}
    assert used == there


def test_installed_patches_touch_the_package_only():
    for patch in load():
        if "installed" not in patch.phases:
            continue
        for edit in patch.edits:
            text = (folder() / edit.file).read_text() if edit.file else ""
            touched = diffs.paths(text) or (edit.path,)
            assert all(path.startswith("vllm/") for path in touched)


def test_a_pattern_that_looks_for_done_work_never_matches_what_it_would_change():
    for patch in load():
        for edit in patch.edits:
            if edit.kind == "substitute":
                assert edit.done, f"{patch.id} cannot tell that it is applied"
                assert not re.search(edit.find, edit.replace)


def test_diffs_carry_few_context_lines():
    for path in folder().rglob("*.diff"):
        runs = re.findall(r"(?m)(?:^ .*\n)+", path.read_text())
        assert max(run.count("\n") for run in runs) <= 6


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("patch = 3", ["series.toml"]),
        ("[[patch", ["series.toml"]),
        (GOOD.replace('id = "one"', ""), ["id"]),
        (GOOD.replace("releases", "relaeses"), ["relaeses"]),
        (GOOD.replace('"host-target"', '"magic"'), ["kind"]),
        (GOOD + GOOD, ["one appears twice"]),
        (GOOD.replace('kind = "host-target"', 'kind = "diff", file = "a.diff"'), ["a.diff is not"]),
        (
            GOOD.replace('kind = "host-target"', 'kind = "substitute", path = "x", find = "("'),
            ["needs replace", "not a regular expression"],
        ),
    ],
)
def test_mistakes_are_named(tmp_path, text, names):
    (tmp_path / "series.toml").write_text(text)
    with pytest.raises(CpuBuildError) as caught:
        load(tmp_path)
    assert caught.value.exit_code is ExitCode.PATCH
    assert all(name in str(caught.value) for name in names)


def test_a_missing_series_is_named(tmp_path):
    with pytest.raises(CpuBuildError, match=r"series\.toml"):
        load(tmp_path / "nowhere")


def test_a_good_series_loads(tmp_path):
    (tmp_path / "series.toml").write_text(GOOD)
    assert [patch.id for patch in load(tmp_path)] == ["one"]
