"""What bench makes of its measurements: rates, quantiles, ratios, the comparison with last time."""

from __future__ import annotations

import contextlib
import json
from importlib import resources
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cpubuild import jsonio
from cpubuild.benchmark import verb
from cpubuild.benchmark.load import Load, quantile
from cpubuild.calls import Call
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.state import State


def load(streams=2, tokens=128, seconds=4.0, first=(0.5, 0.7)):
    return Load(streams=streams, tokens=tokens, seconds=seconds, first=first)


def run(label="tuned", **rates):
    loads = [
        {**verb.row(load(streams=int(s.removeprefix("s")))), "tokens_per_s": r}
        for s, r in rates.items()
    ]
    return {"label": label, "client": verb.API, "loads": loads, "memory": 3 << 30}


def test_a_load_in_numbers():
    assert verb.row(load()) == {
        "streams": 2,
        "tokens_per_s": 32.0,
        "each": 16.0,
        "first_median": 0.6,
        "first_p95": 0.7,
        "seconds": 4.0,
    }


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_a_value_that_enough_values_keep(values, share):
    found = quantile(values, share)
    assert found in values
    assert sum(v <= found for v in values) >= share * len(values)
    assert sum(v < found for v in values) < share * len(values)


def test_ratios_are_by_streams_and_only_where_both_were_measured():
    assert verb.ratios([run(s1=10.0, s4=20.0), run(s1=15.0, s4=50.0, s16=9.0)]) == {
        "1": 1.5,
        "4": 2.5,
    }
    assert verb.ratios([run(s1=10.0)]) is None


@pytest.mark.parametrize("text", ["", ",", "0", "1,x", "257", "-1", "1.5"])
def test_streams_that_are_none(text):
    with pytest.raises(CpuBuildError) as caught:
        verb.streams_of(text)
    assert caught.value.exit_code is ExitCode.SETTINGS


@pytest.mark.parametrize("text", ["", "1", "4097", "many"])
def test_tokens_that_are_none(text):
    with pytest.raises(CpuBuildError) as caught:
        verb.tokens_of(text)
    assert caught.value.exit_code is ExitCode.SETTINGS


def test_what_is_given_is_taken_once_in_its_order():
    assert verb.streams_of("8, 2,8") == (8, 2)
    assert verb.streams_of(None) == verb.STREAMS
    assert verb.tokens_of("32") == 32


def kept(state, stamp, **changes):
    document = {"created": stamp, "model": "m", "host": verb.host(), "runs": [run(s1=10.0)]}
    folder = state.runs / f"{stamp}-bench-1"
    folder.mkdir(parents=True)
    jsonio.write(folder / verb.RESULT, {**document, **changes})


def test_the_newest_run_of_the_same_model_on_the_same_host_is_compared(tmp_path):
    state = State(root=tmp_path)
    assert verb.last(state, "m", [run(s1=8.0)]) is None
    kept(state, "20260101T000000", runs=[run(s1=4.0)])
    kept(state, "20260102T000000")
    kept(state, "20260103T000000", model="another")
    kept(state, "20260104T000000", host={"cpu": "another", "cpus": 1})
    kept(state, "20260105T000000", runs=[run("vLLM's defaults", s1=1.0)])
    kept(state, "20260106T000000", runs=[{**run(s1=1.0), "client": "vllm bench serve, 0.32.0"}])
    found = verb.last(state, "m", [run(s1=8.0)])
    assert found == {"created": "20260102T000000", "label": "tuned", "ratio": {"1": 0.8}}
    assert "slower than the run of 20260102T000000" in verb.last_lines(found)[0]
    assert "slower" not in verb.last_lines({**found, "ratio": {"1": 0.95}})[0]


def test_the_document_its_table_and_its_picture(tmp_path):
    runs = [run("vLLM's defaults", s1=10.0), run("tuned", s1=15.0)]
    document = {
        "created": "now",
        "model": "a <model>",
        "host": verb.host(),
        "tokens": 64,
        "runs": runs,
        "refused": None,
        "ratio": verb.ratios(runs),
        "last": {"created": "then", "label": "tuned", "ratio": {"1": 1.0}},
        "published": [],
        "folder": str(tmp_path),
    }
    schema = resources.files("cpubuild").joinpath("data", "schemas", "bench.json")
    Draft202012Validator(json.loads(schema.read_text())).validate(document)
    table = "\n".join(verb.lines(document))
    assert "1: 1.50 x" in table
    assert "memory 3.00 GiB" in table
    root = ElementTree.fromstring(verb.picture(document))
    bars = [e for e in root.iter() if e.get("class") in ("r0", "r1")]
    assert [float(b.get("width", 0)) for b in bars] == [360.0, 540.0]
    assert "a <model>" in "".join(root.itertext())


@pytest.mark.parametrize("stated", [True, False])
def test_defaults_that_do_not_start_get_a_cache_of_a_stated_size(tmp_path, monkeypatch, stated):
    """On a small or busy host vLLM's defaults want more memory than is free."""

    def begin(call, state, files):
        if call.options["untuned"] and not (stated and "VLLM_CPU_KVCACHE_SPACE" in call.environ):
            raise fail(ExitCode.VERIFY, "the server has ended", why="10.43 GiB are free")

    @contextlib.contextmanager
    def talk(call):
        yield SimpleNamespace(model="m", context=None)

    stopped = []
    monkeypatch.setattr(verb.models, "find", lambda *given: None)
    monkeypatch.setattr(verb.lifecycle, "running", lambda files: None)
    monkeypatch.setattr(verb.lifecycle, "stop", stopped.append)
    monkeypatch.setattr(verb.serve, "begin", begin)
    monkeypatch.setattr(verb, "observe", lambda *given: None)
    monkeypatch.setattr(verb, "cache_space", lambda facts: 4)
    monkeypatch.setattr(verb.connect, "talk", talk)
    monkeypatch.setattr(verb, "measured", lambda label, *given: run(label, s1=1.0 + len(label)))
    options = {"model": "m", "url": None, "api_key_file": None}
    call = Call(flags={}, options=options, verbose=False, environ={}, tell=print)
    wanted = verb.Wanted(streams=(1,), tokens=8, client=None)
    _, name, runs, refused = verb.both(call, State(root=tmp_path / "state"), wanted)
    first = ["vLLM's defaults, 4 GiB cache"] if stated else []
    assert (name, [r["label"] for r in runs], len(stopped)) == ("m", [*first, "tuned"], 3)
    assert refused == {
        "label": "vLLM's defaults",
        "what": "the server has ended",
        "why": "10.43 GiB are free",
    }
    assert (verb.ratios(runs) is None) is not stated
