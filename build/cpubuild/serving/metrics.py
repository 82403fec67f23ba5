"""What a server says of itself at /metrics: requests, tokens, and how fast they come."""

from __future__ import annotations

from dataclasses import dataclass

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
GENERATED = "vllm:generation_tokens"
PROMPT = "vllm:prompt_tokens"
# The name changed with vLLM's engine 1; whichever is there is taken.
CACHE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "vllm:cpu_cache_usage_perc")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One look: requests now, tokens since the start, the used share of the KV cache (0 to 1).

    None: the server does not say. ``at`` is a monotonic time in seconds.
    """

    at: float
    running: float | None
    waiting: float | None
    generated: float | None
    prompt: float | None
    cache: float | None


def parse(text: str, *, at: float) -> Sample:
    """A sample from the text that Prometheus reads; what cannot be parsed says nothing."""
    from prometheus_client.parser import text_string_to_metric_families

    sums: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name.removesuffix("_total")
                sums[name] = sums.get(name, 0.0) + sample.value
    except ValueError:  # what came before the damaged line counts
        pass
    return Sample(
        at=at,
        running=sums.get(RUNNING),
        waiting=sums.get(WAITING),
        generated=sums.get(GENERATED),
        prompt=sums.get(PROMPT),
        cache=next((sums[name] for name in CACHE if name in sums), None),
    )


def rate(first: Sample, second: Sample) -> float | None:
    """Generated tokens per second between two samples; None if it cannot be told."""
    if first.generated is None or second.generated is None or second.at <= first.at:
        return None
    # A server that was started again between the two counts from zero.
    return max(0.0, second.generated - first.generated) / (second.at - first.at)
