"""A client of an OpenAI-style server: one session, errors in words, answers as they come."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.serving import sse

if TYPE_CHECKING:
    import requests

CONNECT_SECONDS = 5.0
LOOK_SECONDS = 10.0
# Between two pieces of an answer: a long prompt on a slow host, behind others in the queue.
ANSWER_SECONDS = 900.0
ATTEMPTS = 3
LOCAL = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104
Message = Mapping[str, str]


WISHES = ("max_tokens", "temperature", "top_p", "seed", "ignore_eos")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """How an answer is wished: None leaves it to the server.

    ``ignore_eos`` (vLLM's own) lets the model go on to ``max_tokens``.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    ignore_eos: bool | None = None


@dataclass(kw_only=True, slots=True)
class Answer:
    """An answer as far as it has come: text, reason of its end, tokens, seconds.

    ``tokens`` and ``prompt_tokens`` are the server's own counts, None until it has told them.
    ``first`` is the time to the first piece.
    """

    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    tokens: int | None = None
    prompt_tokens: int | None = None
    seconds: float = 0.0
    first: float | None = None

    @property
    def tokens_per_s(self) -> float | None:
        """Generated tokens per second of the whole answer, the waiting for the first included."""
        return self.tokens / self.seconds if self.tokens and self.seconds > 0 else None


@dataclass(kw_only=True, slots=True)
class Client:
    """Talks to the server at ``url`` (its root, without /v1)."""

    url: str
    key: str | None = None
    _session: requests.Session | None = field(default=None, repr=False)

    @property
    def session(self) -> requests.Session:
        """The session; surroundings such as a proxy do not come between us and the loopback."""
        import requests

        if self._session is None:
            self._session = requests.Session()
            self._session.trust_env = (urlsplit(self.url).hostname or "") not in LOCAL
            self._session.headers["User-Agent"] = "vllm-cpu-build"
            if self.key:
                self._session.headers["Authorization"] = f"Bearer {self.key}"
        return self._session

    def close(self) -> None:
        """Give the connections back."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def look(self, path: str) -> tuple[int, str]:
        """Status and text of a GET, once; status 0 and the reason when nothing answers."""
        import requests

        try:
            found = self.session.get(self.url + path, timeout=(CONNECT_SECONDS, LOOK_SECONDS))
        except requests.RequestException as error:
            return 0, str(error)
        found.encoding = "utf-8"
        return found.status_code, found.text

    def models(self) -> list[dict[str, Any]]:
        """What is served, each with ``id`` and, from vLLM, ``max_model_len``."""
        import requests
        import stamina

        lost = (requests.ConnectionError, requests.Timeout)
        try:
            for attempt in stamina.retry_context(on=lost, attempts=ATTEMPTS, wait_initial=0.2):
                with attempt:
                    timeout = (CONNECT_SECONDS, LOOK_SECONDS)
                    found = self.session.get(self.url + "/v1/models", timeout=timeout)
        except requests.RequestException as error:
            raise self.silent(error) from error
        self.good(found)
        rows = self.decoded(found).get("data")
        if not isinstance(rows, list) or not all(isinstance(r, dict) and "id" in r for r in rows):
            raise self.strange(found.text)
        return rows

    def count(self, model: str, messages: Sequence[Message]) -> int | None:
        """Tokens of a prompt, by the server's own tokenizer; None if it offers none."""
        import requests

        body = {"model": model, "messages": list(messages), "add_generation_prompt": True}
        try:
            timeout = (CONNECT_SECONDS, LOOK_SECONDS)
            found = self.session.post(self.url + "/tokenize", json=body, timeout=timeout)
            counted = found.json().get("count") if found.ok else None
        except (requests.RequestException, ValueError, AttributeError):
            return None
        return counted if isinstance(counted, int) else None

    def stream(
        self, model: str, messages: Sequence[Message], wish: Wish, answer: Answer
    ) -> Generator[str, None, None]:
        """The pieces of an answer as they come; ``answer`` holds all of it at any moment.

        To leave the iterator early closes the connection, and with it the server's work.
        """
        import requests

        body: dict[str, Any] = {
            "model": model,
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        named = {n: getattr(wish, n) for n in WISHES}
        body |= {name: value for name, value in named.items() if value is not None}
        started = time.monotonic()
        try:
            with self.session.post(
                self.url + "/v1/chat/completions",
                json=body,
                stream=True,
                timeout=(CONNECT_SECONDS, ANSWER_SECONDS),
            ) as found:
                self.good(found)
                for data in sse.events(found.iter_content(chunk_size=None)):
                    answer.seconds = time.monotonic() - started
                    piece = self.take(data, answer)
                    if piece:
                        answer.first = answer.seconds if answer.first is None else answer.first
                        yield piece
        except requests.RequestException as error:
            raise self.broken(error) if answer.seconds else self.silent(error) from error
        finally:
            answer.seconds = time.monotonic() - started
        if answer.finish_reason is None:
            raise self.broken(None)

    def take(self, data: str, answer: Answer) -> str:
        """Add one event to ``answer``; the new text, empty if it has none."""
        if data == "[DONE]":
            return ""
        try:
            event = json.loads(data)
            if "error" in event:
                raise self.refused(500, json.dumps(event))
            usage = event.get("usage") or {}
            answer.tokens = usage.get("completion_tokens", answer.tokens)
            answer.prompt_tokens = usage.get("prompt_tokens", answer.prompt_tokens)
            choice: dict[str, Any] = next(iter(event.get("choices") or ()), {})
            delta = choice.get("delta") or {}
            piece = delta.get("content") or ""
            thought = delta.get("reasoning_content") or delta.get("reasoning") or ""
        except (ValueError, AttributeError, TypeError) as error:
            raise self.strange(data) from error
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        answer.reasoning += thought
        answer.text += piece
        return str(piece)

    def good(self, found: requests.Response) -> None:
        """Raise what an answer with an error status means."""
        if found.status_code >= 400:
            found.encoding = "utf-8"
            raise self.refused(found.status_code, found.text)

    def decoded(self, found: requests.Response) -> dict[str, Any]:
        """The JSON object of an answer."""
        try:
            value = found.json()
        except ValueError as error:
            raise self.strange(found.text) from error
        if not isinstance(value, dict):
            raise self.strange(found.text)
        return value

    def refused(self, status: int, text: str) -> CpuBuildError:
        """The error for a status: who is at fault decides the exit code."""
        said = reason(text)
        if status in (401, 403):
            return fail(
                ExitCode.SETTINGS,
                f"{self.url} does not accept the key (status {status})",
                why="the server wants the key that it was started with" if self.key else "no key",
                remedy=("--api-key-file FILE   # the file that holds the server's key",),
            )
        if status in (429, 503):
            return fail(
                ExitCode.BUSY,
                f"{self.url} is busy (status {status}): {said}",
                remedy=("try again in a moment", "cpubuild serve --status"),
            )
        if status < 500:
            return fail(
                ExitCode.SETTINGS,
                f"{self.url} refuses the request (status {status}): {said}",
                remedy=("read what the server says, and change model, text or options",),
            )
        return fail(
            ExitCode.VERIFY,
            f"{self.url} fails (status {status}): {said}",
            why="the error is on the server's side",
            remedy=("cpubuild serve --status   # says how it is, and where its log lies",),
        )

    def silent(self, error: Exception) -> CpuBuildError:
        """The error for a server that does not answer."""
        return fail(
            ExitCode.BUSY,
            f"nothing answers at {self.url}: {short(error)}",
            remedy=("cpubuild serve --status", "check --url, and whether the server runs"),
        )

    def broken(self, error: Exception | None) -> CpuBuildError:
        """The error for an answer that ended before its end."""
        why = f": {short(error)}" if error is not None else ""
        return fail(
            ExitCode.VERIFY,
            f"the answer of {self.url} broke off{why}",
            why="the server has ended, or closed the connection",
            remedy=("cpubuild serve --status   # says how it is, and why it ended",),
        )

    def strange(self, text: str) -> CpuBuildError:
        """The error for something that is not what an OpenAI-style server says."""
        return fail(
            ExitCode.SETTINGS,
            f"{self.url} does not answer as an OpenAI-style server does: {text[:120]!r}",
            remedy=("check --url: it is the root of the server, without /v1",),
        )


def reason(text: str) -> str:
    """What the server says of an error, in one line."""
    try:
        value = json.loads(text)
        inner = value.get("error", value)
        said = inner.get("message", inner) if isinstance(inner, dict) else inner
    except (ValueError, AttributeError):
        said = text
    return " ".join(str(said).split())[:400] or "it does not say why"


def short(error: Exception) -> str:
    """A network error in a few words."""
    import requests

    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError) and "refused" in str(error):
        return "the connection is refused"
    return " ".join(str(error).split())[:200] or type(error).__name__
