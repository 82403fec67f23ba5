"""The verb ``ask``: one question, one answer on stdout."""

from __future__ import annotations

from typing import Any

from cpubuild.calls import Call, Outcome
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.serving import connect, history, texts
from cpubuild.serving.client import Answer, Client, Message, Wish

MAX_TOKENS = 1024


def ask(call: Call) -> Outcome:
    """Ask, and answer with the text; SETTINGS for nothing to ask."""
    call.resolved()  # a wrong setting is told first, as every verb does
    wish = connect.wish_of(call, max_tokens=MAX_TOKENS)
    question = question_of(call.options["text"])
    messages = with_system(call.options["system"], question)
    with connect.talk(call) as talk:
        try:
            answer = answered(talk, messages, wish)
        except CpuBuildError as error:
            raise talk.explained(error) from error
    texts.utf8_out()
    return Outcome(document=document(answer, talk), lines=[answer.text])


def answered(talk: connect.Talk, messages: list[Message], wish: Wish) -> Answer:
    """The whole answer."""
    room = room_of(talk, messages, wish)
    answer = Answer()
    for _ in talk.client.stream(talk.model, messages, room, answer):
        pass
    return answer


def room_of(talk: connect.Talk, messages: list[Message], wish: Wish) -> Wish:
    """The wish with no more tokens than the context leaves."""
    _, room, _ = history.fitted(
        messages,
        context=talk.context,
        wanted=wish.max_tokens or MAX_TOKENS,
        count=counter(talk.client, talk.model),
    )
    return Wish(max_tokens=room, temperature=wish.temperature, seed=wish.seed)


def counter(client: Client, model: str) -> history.Count:
    """How the server counts a prompt."""
    return lambda messages: client.count(model, messages)


def question_of(text: str | None) -> str:
    """The question; ``-`` reads stdin."""
    found = texts.whole_stdin() if text == "-" else texts.argument(text or "")
    if found.strip():
        return found
    raise fail(
        ExitCode.SETTINGS,
        "there is nothing to ask" if text != "-" else "stdin holds nothing to ask",
        remedy=('cpubuild ask "TEXT"', "cpubuild ask - < FILE"),
    )


def with_system(system: str | None, question: str) -> list[Message]:
    """The messages of one question."""
    head: list[Message] = [{"role": "system", "content": texts.argument(system)}] if system else []
    return [*head, {"role": "user", "content": question}]


def document(answer: Answer, talk: connect.Talk) -> dict[str, Any]:
    """What --json prints."""
    speed = answer.tokens_per_s
    return {
        "text": answer.text,
        "reasoning": answer.reasoning or None,
        "model": talk.model,
        "url": talk.client.url,
        "finish_reason": answer.finish_reason,
        "tokens": {"prompt": answer.prompt_tokens, "completion": answer.tokens},
        "seconds": round(answer.seconds, 3),
        "first_token_s": None if answer.first is None else round(answer.first, 3),
        "tokens_per_s": None if speed is None else round(speed, 2),
    }
