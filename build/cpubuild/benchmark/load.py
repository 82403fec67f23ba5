"""Load on a served model: several streams at once, each answer timed as its reader sees it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cpubuild.errors import ExitCode, fail
from cpubuild.serving.client import Answer, Client, Wish

# Different beginnings: no stream is answered from another's prefix in the cache.
PROMPT = "{number}. Tell a long story about the number {number} and the people who live in it."


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """One load: ``streams`` answers at once, ``tokens`` of all of them, wall ``seconds``.

    ``first`` are the times to the first text of each stream, in seconds.
    """

    streams: int
    tokens: int
    seconds: float
    first: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Tokens per second of all streams together."""
        return self.tokens / self.seconds

    @property
    def each(self) -> float:
        """Tokens per second of one stream."""
        return self.rate / self.streams

    @property
    def first_median(self) -> float:
        """The median time to the first text, in seconds."""
        return statistics.median(self.first)

    @property
    def first_p95(self) -> float:
        """The time to the first text that 95 of 100 streams keep, in seconds."""
        return quantile(self.first, 0.95)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of all values do not exceed."""
    ordered = sorted(values)
    enough = next(n for n in range(1, len(ordered) + 1) if n >= share * len(ordered))
    return ordered[enough - 1]


def measure(
    client: Callable[[], Client], model: str, *, first: int, streams: int, tokens: int
) -> Load:
    """Let ``streams`` readers ask at once for ``tokens`` tokens each; errors are the client's.

    Their prompts are the numbers ``first``, ``first`` + 1 and so on. VERIFY if the server does not
    count the tokens of its answers.
    """

    def ask(number: int) -> Answer:
        one, answer = client(), Answer()
        messages = [{"role": "user", "content": PROMPT.format(number=number)}]
        wish = Wish(max_tokens=tokens, temperature=0.0, ignore_eos=True)
        try:
            for _ in one.stream(model, messages, wish, answer):
                pass
        finally:
            one.close()
        return answer

    started = time.monotonic()
    with ThreadPoolExecutor(streams) as pool:
        answers = list(pool.map(ask, range(first, first + streams)))
    seconds = time.monotonic() - started
    counts = [a.tokens for a in answers if a.tokens]
    if len(counts) < streams:
        raise fail(
            ExitCode.VERIFY,
            "the server does not tell how many tokens its answers have",
            why="without its count no speed can be told",
            remedy=("measure a server that sends usage with a stream, as vLLM does",),
        )
    return Load(
        streams=streams,
        tokens=sum(counts),
        seconds=seconds,
        first=tuple(a.first if a.first is not None else a.seconds for a in answers),
    )
