"""vLLM's own bench: what its document means, and where it cannot be had."""

from __future__ import annotations

import dataclasses

import pytest

from cpubuild.benchmark import own, verb
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.serving.record import Mark, Record

DOCUMENT = {
    "completed": 2,
    "total_output_tokens": 30,
    "duration": 1.5,
    "ttfts": [0.25, 0.5],
    "errors": ["", ""],
}


@pytest.fixture
def record(tmp_path):
    """A server of an environment whose release has a bench, with its model in a folder."""
    bench = tmp_path / "env" / "lib" / "python3.11" / "site-packages" / "vllm" / "benchmarks"
    bench.mkdir(parents=True)
    (bench / "serve.py").touch()
    (tmp_path / "model").mkdir()
    return Record(
        model=str(tmp_path / "model"),
        name="m",
        host="127.0.0.1",
        port=8000,
        env=tmp_path / "env",
        release="0.32.0",
        tuned=True,
        log=tmp_path / "log",
        key_file=tmp_path / "key",
        supervisor=Mark(pid=2, started=0.0),
    )


def test_a_load_is_read_from_its_document():
    load = own.load_of(DOCUMENT, streams=2)
    assert (load.rate, load.each, load.first) == (20.0, 10.0, (0.25, 0.5))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"completed": 1, "errors": ["", "Traceback\nOSError: gone\n"]}, "OSError: gone"),
        ({"completed": 1}, "does not say why"),
        ({"completed": 0, "errors": None}, "does not say why"),
    ],
)
def test_lost_answers_are_no_speed(change, said):
    with pytest.raises(CpuBuildError) as caught:
        own.load_of({**DOCUMENT, **change}, streams=2)
    assert caught.value.exit_code is ExitCode.VERIFY
    assert said in caught.value.problems[0].why


def test_it_measures_a_server_of_this_state_root(record):
    assert own.lacking(record) is None


def test_where_it_cannot_be_had(record, tmp_path):
    assert "not one of this state root" in own.lacking(None)
    assert "tokenizer" in own.lacking(dataclasses.replace(record, model="Qwen/Qwen2-0.5B"))
    old = dataclasses.replace(record, env=tmp_path / "older", release="0.8.5")
    assert own.lacking(old) == "vLLM 0.8.5 has none"


@pytest.mark.parametrize("text", ["", "curl", "VLLM"])
def test_clients_that_are_none(text):
    with pytest.raises(CpuBuildError) as caught:
        verb.client_of(text)
    assert caught.value.exit_code is ExitCode.SETTINGS
