"""Events and metrics as they come over the wire, and a client's answer made from them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.serving import metrics, sse
from cpubuild.serving.client import Answer, Client, reason

STREAM = (
    'data: {"a": "你好"}\r\n\r\n: a comment\n\nevent: x\ndata: one\ndata: two\n\ndata:[DONE]\n\n'
)


def chunks(text: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({c % (len(text) + 1) for c in cuts} | {0, len(text)})
    return [text[a:b] for a, b in itertools.pairwise(places)]


@given(st.lists(st.integers(min_value=0, max_value=500)))
def test_events_are_the_same_wherever_the_network_cuts(cuts: list[int]) -> None:
    found = list(sse.events(chunks(STREAM.encode(), cuts)))
    assert found == ['{"a": "你好"}', "one\ntwo", "[DONE]"]


def test_an_event_cut_off_by_the_end_is_given_out() -> None:
    assert list(sse.events([b"data: a\n\ndata: b"])) == ["a", "b"]
    assert list(sse.events([])) == []


METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a\\"b"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="a"} 1.0
vllm:num_requests_waiting{engine="1",model_name="a"} 3.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="a"} 185.0
vllm:generation_tokens_created{engine="0",model_name="a"} 1.79e+09
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.25
"""


def test_metrics_are_summed_over_engines() -> None:
    seen = metrics.parse(METRICS, at=1.0)
    assert (seen.running, seen.waiting, seen.generated, seen.cache) == (2.0, 4.0, 185.0, 0.25)
    assert seen.prompt is None


def test_damaged_metrics_say_what_came_before() -> None:
    seen = metrics.parse(METRICS + "vllm:prompt_tokens_total{ 3\n", at=1.0)
    assert seen.running == 2.0
    assert metrics.parse("<html>", at=0.0).running is None


def sample(at: float, generated: float | None) -> metrics.Sample:
    return metrics.Sample(
        at=at, running=None, waiting=None, generated=generated, prompt=None, cache=None
    )


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (sample(1.0, 10.0), sample(3.0, 40.0), 15.0),
        (sample(1.0, 10.0), sample(3.0, 4.0), 0.0),
        (sample(1.0, None), sample(3.0, 4.0), None),
        (sample(3.0, 1.0), sample(3.0, 4.0), None),
    ],
)
def test_the_rate_between_two_samples(
    first: metrics.Sample, second: metrics.Sample, expected: float | None
) -> None:
    assert metrics.rate(first, second) == expected


def event(**delta: Any) -> str:
    return json.dumps({"choices": [{"delta": delta, "finish_reason": None}]})


def test_an_answer_is_made_of_its_events() -> None:
    client, answer = Client(url="http://127.0.0.1:1"), Answer()
    pieces = [client.take(e, answer) for e in (event(role="assistant"), event(content="你"))]
    pieces.append(client.take(event(reasoning_content="hm", content="好"), answer))
    ended = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    client.take(json.dumps(ended), answer)
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    client.take(json.dumps(usage), answer)
    assert client.take("[DONE]", answer) == ""
    assert pieces == ["", "你", "好"]
    assert (answer.text, answer.reasoning, answer.finish_reason) == ("你好", "hm", "stop")
    assert (answer.prompt_tokens, answer.tokens) == (3, 2)
    answer.seconds = 4.0
    assert answer.tokens_per_s == 0.5


def test_an_answer_without_counts_has_no_speed() -> None:
    assert Answer(text="x", seconds=1.0).tokens_per_s is None


def test_an_error_within_a_stream_is_the_server_s() -> None:
    client = Client(url="http://127.0.0.1:1")
    with pytest.raises(CpuBuildError) as caught:
        client.take('{"error": {"message": "EngineCore encountered an issue"}}', Answer())
    assert caught.value.exit_code is ExitCode.VERIFY
    assert "EngineCore encountered" in str(caught.value)


@pytest.mark.parametrize("data", ["<html>", "[1]", '"text"', '{"choices": [3]}'])
def test_an_event_of_another_kind_is_named(data: str) -> None:
    with pytest.raises(CpuBuildError) as caught:
        Client(url="http://127.0.0.1:1").take(data, Answer())
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert "OpenAI-style" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, ExitCode.SETTINGS),
        (401, ExitCode.SETTINGS),
        (404, ExitCode.SETTINGS),
        (429, ExitCode.BUSY),
        (503, ExitCode.BUSY),
        (500, ExitCode.VERIFY),
    ],
)
def test_who_is_at_fault_decides_the_exit_code(status: int, code: ExitCode) -> None:
    error = Client(url="http://127.0.0.1:1").refused(status, '{"error": {"message": "because"}}')
    assert error.exit_code is code
    assert error.problems[0].remedy
    assert status == 401 or "because" in str(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"error": {"message": "a\\n b"}}', "a b"),
        ('{"error": "Unauthorized"}', "Unauthorized"),
        ('{"message": "old"}', "old"),
        ("plain", "plain"),
        ("", "it does not say why"),
        ("[1, 2]", "[1, 2]"),
    ],
)
def test_what_a_server_says_of_an_error(text: str, expected: str) -> None:
    assert reason(text) == expected


def test_a_proxy_stays_out_between_us_and_the_loopback() -> None:
    inside = Client(url="http://127.0.0.1:8000", key="k")
    outside = Client(url="https://models.example.org")
    assert inside.session.trust_env is False
    assert outside.session.trust_env is True
    assert inside.session.headers["Authorization"] == "Bearer k"
    assert "k" not in repr(outside.session.headers.get("Authorization"))
