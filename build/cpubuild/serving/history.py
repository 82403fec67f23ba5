"""The messages of a chat, kept so short that prompt and answer fit the model's context."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cpubuild.errors import ExitCode, fail
from cpubuild.serving.client import Message

# Tokens that every answer gets room for, where the context leaves it.
LEAST = 16
# Where the server does not count: a token is seldom less than this many bytes of UTF-8.
BYTES = 2
# What a chat template puts around a message.
AROUND = 8
Count = Callable[[Sequence[Message]], int | None]


def estimate(messages: Sequence[Message]) -> int:
    """Tokens of a prompt at most, where the server does not count."""
    return sum(len(m["content"].encode()) // BYTES + AROUND for m in messages)


def fitted(
    messages: Sequence[Message], *, context: int | None, wanted: int, count: Count
) -> tuple[list[Message], int, int]:
    """The messages that fit, the tokens left for the answer, and how many messages were dropped.

    The system's message and the newest question stay; the oldest question goes first, with its
    answer. SETTINGS if even these two leave no room.
    """
    kept = list(messages)
    if context is None:
        return kept, wanted, 0
    head = 1 if kept and kept[0]["role"] == "system" else 0
    while True:
        used = count(kept)
        used = estimate(kept) if used is None else used
        room = context - used
        oldest = turn_length(kept[head:])
        # A small context is shared: an answer need not get all that was wished for.
        if room >= max(1, min(wanted, context // 4)) or (oldest == 0 and room >= LEAST):
            return kept, min(wanted, room), len(messages) - len(kept)
        if oldest == 0:
            raise too_long(used, context)
        del kept[head : head + oldest]


def turn_length(messages: Sequence[Message]) -> int:
    """Messages of the oldest turn (a question and its answer); 0 if it is the newest question."""
    later = next((i for i, m in enumerate(messages) if i > 0 and m["role"] == "user"), None)
    return later or 0


def too_long(used: int, context: int) -> Exception:
    """The error for a question that the model cannot see whole."""
    return fail(
        ExitCode.SETTINGS,
        f"the text takes {used} tokens, and the model's context holds {context}",
        why="the answer needs room in it too",
        remedy=("ask about less text", "cpubuild serve MODEL -- --max-model-len N   # if it can"),
    )
