"""Talk to a running server with the official openai client of the target environment."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def attempt(answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a call gave, or what it raised; ``status`` is the HTTP status of a refusal."""
    try:
        return {"error": None, **answer()}
    except Exception as error:
        return {
            "error": f"{type(error).__name__}: {error}"[:500],
            "status": getattr(error, "status_code", None),
        }


def completion(client: Any, options: dict[str, Any]) -> dict[str, Any]:
    """A greedy completion of the reference's first prompt, as token ids."""
    prompt = options["prompt"]
    answer = client.completions.create(
        model=options["model"],
        prompt=prompt["ids"],
        max_tokens=len(prompt["tokens"]),
        temperature=0.0,
        logprobs=1,
        extra_body={"ignore_eos": True, "return_tokens_as_token_ids": True},
    )
    names = answer.choices[0].logprobs.tokens
    return {
        "tokens": [int(n.removeprefix("token_id:")) for n in names],
        "expected": prompt["tokens"],
    }


def chat(client: Any, options: dict[str, Any], *, stream: bool) -> Any:
    """The same short chat, whole or as a stream."""
    return client.chat.completions.create(
        model=options["model"],
        messages=[{"role": "user", "content": "你好, hello"}],
        max_tokens=12,
        temperature=0.0,
        stream=stream,
        extra_body={"ignore_eos": True},
    )


def whole(client: Any, options: dict[str, Any]) -> dict[str, Any]:
    """A chat's text and how many tokens it has."""
    answer = chat(client, options, stream=False)
    return {"text": answer.choices[0].message.content, "count": answer.usage.completion_tokens}


def streamed(client: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The text of a streamed chat and in how many events it came."""
    deltas = [e.choices[0].delta.content for e in chat(client, options, stream=True) if e.choices]
    pieces = [text for text in deltas if text]
    return {"text": "".join(pieces), "events": len(pieces)}


def run(_stage: str, context: dict[str, Any]) -> dict[str, Any]:
    """All calls with the key, and one with a wrong key."""
    openai: Any = importlib.import_module("openai")
    options = context["options"]
    common = {"base_url": options["url"], "timeout": 120.0, "max_retries": 0}
    client = openai.OpenAI(api_key=options["key"], **common)
    stranger = openai.OpenAI(api_key="wrong-" + options["key"], **common)
    return {
        "client": str(openai.__version__),
        "models": attempt(lambda: {"ids": [m.id for m in client.models.list().data]}),
        "wrong_key": attempt(lambda: {"ids": [m.id for m in stranger.models.list().data]}),
        "completion": attempt(lambda: completion(client, options)),
        "chat": attempt(lambda: whole(client, options)),
        "stream": attempt(lambda: streamed(client, options)),
    }
