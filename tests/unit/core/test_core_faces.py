"""The faces: options in, one outcome out, and every end with its exit code."""

from __future__ import annotations

import inspect
import io
import json
import shutil
import signal
import sys

import pytest

from cpubuild import calls, cli, settings, tasks, verbs
from cpubuild.errors import CpuBuildError, ExitCode, Problem, fail
from cpubuild.tasks import dispatch

NAMES = sorted(tasks.namespace.task_names)


@pytest.fixture(autouse=True)
def signals():
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the verb ``status`` with another body; exit code, stdout, stderr."""

    def run(body, **given):
        monkeypatch.setattr(verbs, "status", body)
        switches = {"json": False, "v": False, "verbose": False}
        options = dict.fromkeys(settings.NAMES)
        code = dispatch("status", {**switches, **options, **given})
        return code, *capsys.readouterr()

    return run


def outcome(code=ExitCode.OK, document=None, lines=("one", "two")):
    return calls.Outcome(document=document or {"a": 1}, lines=list(lines), exit_code=code)


def raising(error):
    def body(call):
        raise error

    return body


@pytest.mark.parametrize("name", NAMES)
def test_every_verb_has_its_function(name):
    function = getattr(verbs, name)
    assert list(inspect.signature(function).parameters) == ["call"]
    assert function.__doc__


@pytest.mark.parametrize("name", NAMES)
def test_every_option_of_every_verb_is_explained(name):
    task = tasks.namespace[name]
    assert task.__doc__
    options = {p.rstrip("_").replace("_", "-") for p in inspect.signature(task.body).parameters} - {
        "ctx"
    }
    assert options == set(task.help)
    task.get_arguments()
    assert options == set(task.help), "the parser took them out"
    assert {n.replace("_", "-") for n in settings.NAMES} <= options
    assert {"json", "v", "verbose"} <= options


def test_lines_or_one_document_go_to_stdout(run):
    code, out, err = run(lambda call: outcome())
    assert (code, out, err) == (ExitCode.OK, "one\ntwo\n", "")
    code, out, err = run(lambda call: outcome(), json=True)
    assert (code, json.loads(out), err) == (ExitCode.OK, {"a": 1}, "")


@pytest.mark.parametrize("value", ["1", "true", "YES", " on "])
def test_the_environment_can_ask_for_the_document_and_for_more(run, monkeypatch, value):
    monkeypatch.setenv("CPUBUILD_JSON", value)
    monkeypatch.setenv("CPUBUILD_VERBOSE", value)
    seen = []
    _, out, _ = run(lambda call: seen.append(call.verbose) or outcome())
    assert json.loads(out) == {"a": 1}
    assert seen == [True]
    monkeypatch.setenv("CPUBUILD_JSON", "0")
    assert run(lambda call: outcome())[1] == "one\ntwo\n"


def test_flags_and_the_verbs_own_options_are_kept_apart(run):
    seen = []
    run(lambda call: seen.append(call) or outcome(), vllm="0.31.0", only="x", v=True)
    assert seen[0].flags["vllm"] == "0.31.0"
    assert dict(seen[0].options) == {"only": "x"}
    assert seen[0].verbose


@pytest.mark.parametrize("code", list(ExitCode))
def test_every_failure_ends_with_its_code_and_one_document(run, code):
    error = fail(code, "what", why="why", remedy=("do",))
    got, out, err = run(raising(error), json=True)
    assert got is code
    assert json.loads(out)["error"]["exit_code"] == code
    assert json.loads(out)["error"]["problems"][0]["what"] == "what"
    assert "FAIL what" in err
    assert run(raising(error))[:2] == (code, "")


def test_an_outcome_that_is_no_success_still_prints_its_document(run):
    code, out, _ = run(lambda call: outcome(ExitCode.VERIFY, {"verdict": "fail"}), json=True)
    assert code is ExitCode.VERIFY
    assert json.loads(out) == {"verdict": "fail"}


def test_all_problems_are_in_the_document(run):
    problems = [Problem(what=str(n), exit_code=ExitCode.PREREQUISITE) for n in range(3)]
    code, out, _ = run(raising(CpuBuildError(*problems, exit_code=ExitCode.UNSUPPORTED)), json=True)
    assert code is ExitCode.UNSUPPORTED
    assert [p["what"] for p in json.loads(out)["error"]["problems"]] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (KeyboardInterrupt(), ExitCode.BUSY, "interrupted"),
        (ZeroDivisionError("by zero"), ExitCode.BUG, "ZeroDivisionError: by zero"),
        (OSError(28, "No space left on device", "/x"), ExitCode.PREREQUISITE, "No space left"),
        (ConnectionError("went away"), ExitCode.BUG, "went away"),
        (shutil.Error([("/a", "/b", "No space left")]), ExitCode.PREREQUISITE, "No space left"),
        (BrokenPipeError(32, "Broken pipe"), ExitCode.PREREQUISITE, "Broken pipe"),
    ],
)
def test_what_nobody_foresaw_ends_with_a_code_too(run, error, code, text):
    got, out, err = run(raising(error), json=True)
    assert got is code
    assert text in json.loads(out)["error"]["problems"][0]["what"]
    assert text in err


class Stream(io.TextIOWrapper):
    def __init__(self, encoding="utf-8", gone=False):
        super().__init__(io.BytesIO(), encoding=encoding)
        self.gone = gone

    def write(self, text):
        if self.gone:
            raise BrokenPipeError
        return super().write(text)


@pytest.mark.parametrize("code", [ExitCode.OK, ExitCode.VERIFY])
def test_a_reader_that_went_away_does_not_change_the_outcome(run, monkeypatch, tmp_path, code):
    stream = Stream(gone=True)
    with (tmp_path / "out").open("w") as file:
        stream.fileno = file.fileno
        monkeypatch.setattr(tasks.sys, "stdout", stream)
        assert run(lambda call: outcome(code))[0] is code
        assert run(lambda call: outcome(code), json=True)[0] is code
        assert run(raising(fail(ExitCode.PATCH, "x")), json=True)[0] is ExitCode.PATCH


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_no_locale_breaks_the_output(run, monkeypatch, encoding):
    document, lines = {"path": "/é/–/\udcff"}, ["é – \udcff"]
    for given in ({}, {"json": True}):
        stream = Stream(encoding)
        monkeypatch.setattr(sys, "stdout", stream)
        assert run(lambda call: outcome(document=document, lines=lines), **given)[0] == 0
        text = stream.buffer.getvalue().decode(encoding)
        if given:
            assert json.loads(text) == document


def test_a_request_to_end_is_an_interrupt(run, signals):
    def body(call):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
        return outcome()

    assert run(body)[0] is ExitCode.OK


def test_nohup_is_respected(run):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert run(lambda call: signal.raise_signal(signal.SIGHUP) or outcome())[0] is ExitCode.OK
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize(
    ("argv", "becomes"),
    [
        ([], []),
        (["--list"], ["--list"]),
        (["status", "x"], ["status", "x"]),
        (["diagnose"], ["diagnose"]),
        (["diagnose", "f.log"], ["diagnose", "--path", "f.log"]),
        (["diagnose", "-"], ["diagnose", "--path", "-"]),
        (["diagnose", "--json", "f.log"], ["diagnose", "--json", "--path", "f.log"]),
        (["diagnose", "f.log", "--json"], ["diagnose", "--path", "f.log", "--json"]),
        (["diagnose", "--path", "f.log"], ["diagnose", "--path", "f.log"]),
        (["diagnose", "--last"], ["diagnose", "--last"]),
        (
            ["diagnose", "--exit-status", "-9", "f.log"],
            ["diagnose", "--exit-status", "-9", "--path", "f.log"],
        ),
        (
            ["diagnose", "--vllm", "0.31.0", "--profile", "full", "f.log"],
            ["diagnose", "--vllm", "0.31.0", "--profile", "full", "--path", "f.log"],
        ),
        (["diagnose", "--release=0.31.0", "f"], ["diagnose", "--release=0.31.0", "--path", "f"]),
        (["diagnose", "a", "b"], ["diagnose", "--path", "a", "b"]),  # the parser refuses b
        (["diagnose", "--", "pip", "-v"], ["diagnose", "--", "pip", "-v"]),
        (["--help", "diagnose"], ["--help", "diagnose"]),
        (["check", "--only", "diagnose", "x"], ["check", "--only", "diagnose", "x"]),
    ],
)
def test_the_free_argument_becomes_an_option(argv, becomes):
    assert cli.with_options(argv) == becomes


def test_the_options_with_a_value_are_those_of_the_verb():
    found = cli.valued("diagnose")
    assert {"--path", "--host", "--exit-status", "--vllm", "--state", "--wheel-cache"} <= found
    assert not {"--json", "--last", "--rules", "--offline", "--verbose", "-v", "--ctx"} & found
