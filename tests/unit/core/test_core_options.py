"""Options of verbs that say nothing, or nothing that can be done, are refused by name."""

from __future__ import annotations

import io
import sys

import pytest

from cpubuild import diagnosing, tasks, verbs
from cpubuild.errors import CpuBuildError, ExitCode

CHECK = {"list": False, "explain": None, "host": None, "fix": False, "only": None, "skip": None}
VERIFY = {"explain": None, "target": None, "quick": True, "model": None, "server": False}
DIAGNOSE = {
    "rules": False,
    "path": None,
    "last": False,
    "host": None,
    "release": None,
    "exit_status": None,
    "bundle": None,
}
FAILURE = "g++: fatal error: Killed signal terminated program cc1plus\n"


@pytest.fixture(autouse=True)
def no_host(monkeypatch):
    """What the host is like does not matter here."""
    monkeypatch.setattr(diagnosing, "collect", lambda **_: None)


def refused(act, call, text):
    with pytest.raises(CpuBuildError) as caught:
        act(call)
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert text in str(caught.value)
    return caught.value.problems[0]


@pytest.mark.parametrize("given", ["", ",", " , ,", "\t"])
@pytest.mark.parametrize("option", ["only", "skip"])
def test_a_selection_of_nothing_is_not_everything(call, option, given):
    refused(verbs.check, call(**CHECK | {option: given}), f"--{option} {given!r} names nothing")
    with pytest.raises(CpuBuildError, match="names nothing") as caught:
        verbs.extras(call(**VERIFY | {"only": None, "skip": None, option: given}))
    assert caught.value.exit_code is ExitCode.SETTINGS


def test_separators_around_names_do_not_count(call):
    assert call(only=" a,, b ,").names("only") == ("a", "b")
    assert call(only=None).names("only") == ()
    assert verbs.extras(call(**VERIFY, only=",words", skip=None)) == {"only": ("words",)}


def test_a_name_that_is_no_check_is_refused_before_the_host_is_looked_at(call):
    refused(verbs.check, call(**CHECK | {"only": "isa,nonsense"}), "called nonsense")


@pytest.mark.parametrize("given", ["garbage", "", "0.32.0 or so"])
def test_a_release_that_is_no_version_is_refused(call, tmp_path, given):
    (tmp_path / "log").write_text(FAILURE)
    options = DIAGNOSE | {"path": str(tmp_path / "log"), "release": given}
    refused(diagnosing.diagnose, call(**options), f"--release {given!r} is not a version")


@pytest.mark.parametrize("given", ["0.32.0", "v0.32.0", "0.32.0+cpu"])
def test_a_release_counts_in_its_public_form(call, given):
    assert diagnosing.release(call(release=given)) == "0.32.0"


def test_an_empty_file_and_a_folder_without_logs_are_not_healthy(call, tmp_path):
    (tmp_path / "empty.log").touch()
    (tmp_path / "folder").mkdir()
    for name in ("empty.log", "folder"):
        options = DIAGNOSE | {"path": str(tmp_path / name)}
        refused(diagnosing.diagnose, call(**options), f"nothing to read: {tmp_path / name}")
    killed = DIAGNOSE | {"path": str(tmp_path / "empty.log"), "exit_status": "SIGKILL"}
    assert diagnosing.diagnose(call(**killed)).document["exit_status"] == -9


@pytest.mark.parametrize("path", [None, "-"])
def test_an_empty_standard_input_is_not_healthy(call, monkeypatch, path):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    refused(diagnosing.diagnose, call(**DIAGNOSE | {"path": path}), "nothing to read: stdin")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"all is well\n")))
    assert diagnosing.diagnose(call(**DIAGNOSE | {"path": path})).document["causes"] == []


def test_a_bundle_without_a_place_is_refused_before_anything_is_read(call, tmp_path):
    options = DIAGNOSE | {"path": "/no/such/log", "bundle": str(tmp_path / "no/x.tar.gz")}
    refused(diagnosing.diagnose, call(**options), f"there is no folder {tmp_path / 'no'}")
    assert not (tmp_path / "no").exists()


def test_two_dashes_without_a_command_are_refused(call, monkeypatch, capsys):
    refused(diagnosing.diagnose, call(**DIAGNOSE, command=()), "there is no command after --")

    class Context:
        remainder = ""

    monkeypatch.setattr(sys, "argv", ["cpubuild", "diagnose", "--"])
    given = dict.fromkeys(tasks.COMMON, False) | dict.fromkeys(tasks.SETTING_OPTIONS)
    with pytest.raises(tasks.Exit) as caught:
        tasks.namespace["diagnose"].body(Context(), **given, **DIAGNOSE)
    assert caught.value.code == int(ExitCode.SETTINGS)
    assert "there is no command after --" in capsys.readouterr().err
