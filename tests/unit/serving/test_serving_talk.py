"""What is asked and how: texts in any locale, options, a history that fits the context."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild import verbs
from cpubuild.calls import Call
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.serving import ask, chat, connect, history, texts
from cpubuild.serving.client import Answer, Client, Message, Wish


def options(**given: Any) -> dict[str, Any]:
    names = ("text", "system", "max_tokens", "temperature", "model", "url", "api_key_file")
    return dict.fromkeys(names) | given


def call(tmp_path: Any, **given: Any) -> Call:
    return Call(
        flags={"state": str(tmp_path / "state")},
        options=options(**given),
        verbose=False,
        environ={},
    )


def code_of(run: Any, *arguments: Any) -> ExitCode:
    with pytest.raises(CpuBuildError) as caught:
        run(*arguments)
    assert caught.value.problems[0].remedy
    return caught.value.exit_code


# --- texts -------------------------------------------------------------------------------------


def test_a_word_of_the_command_line_is_utf8_whatever_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen_as_ascii = "你好".encode().decode("ascii", "surrogateescape")
    monkeypatch.setattr(os, "fsencode", lambda text: text.encode("ascii", "surrogateescape"))
    assert texts.argument(seen_as_ascii) == "你好"


def test_stdin_is_utf8_whatever_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.TextIOWrapper(io.BytesIO("你好\r\nzwei\n".encode()), encoding="ascii")
    monkeypatch.setattr(sys, "stdin", raw)
    assert list(texts.stdin_lines()) == ["你好", "zwei"]
    monkeypatch.setattr(sys, "stdin", None)
    assert texts.whole_stdin() == ""


def test_stdout_takes_every_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    under = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(under, encoding="ascii"))
    texts.utf8_out()
    sys.stdout.write("你好")
    sys.stdout.flush()
    assert under.getvalue().decode() == "你好"


# --- options -----------------------------------------------------------------------------------


def test_nothing_to_ask(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert code_of(verbs.ask, call(tmp_path)) is ExitCode.SETTINGS
    monkeypatch.setattr(sys, "stdin", io.StringIO(" \n"))
    assert code_of(verbs.ask, call(tmp_path, text="-")) is ExitCode.SETTINGS


def test_no_server_to_ask(tmp_path: Any) -> None:
    assert code_of(verbs.ask, call(tmp_path, text="hi")) is ExitCode.PREREQUISITE
    assert code_of(verbs.chat, call(tmp_path)) is ExitCode.PREREQUISITE


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": "0"},
        {"max_tokens": "many"},
        {"temperature": "hot"},
        {"temperature": "2.1"},
        {"temperature": "nan"},
        {"url": "127.0.0.1:8000"},
        {"url": "http://"},
    ],
)
def test_wrong_options(tmp_path: Any, wrong: dict[str, str]) -> None:
    assert code_of(verbs.ask, call(tmp_path, text="hi", **wrong)) is ExitCode.SETTINGS


@pytest.mark.parametrize("typed", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_the_root_of_a_server(typed: str) -> None:
    assert connect.root_of(typed) == "http://h:1"


def test_what_serve_refuses(tmp_path: Any) -> None:
    empty: dict[str, Any] = {"model": None, "stop": False, "status": False}
    for wrong, code in (
        (empty, ExitCode.SETTINGS),
        (empty | {"stop": True, "status": True}, ExitCode.SETTINGS),
        (empty | connect.UNSAID | {"model": str(tmp_path), "port": None}, ExitCode.SETTINGS),
    ):
        made = Call(
            flags={"state": str(tmp_path / "state")}, options=wrong, verbose=False, environ={}
        )
        assert code_of(verbs.serve, made) is code


# --- history -----------------------------------------------------------------------------------


def messages(turns: int, *, system: bool = True) -> list[Message]:
    head: list[Message] = [{"role": "system", "content": "s"}] if system else []
    for number in range(turns):
        head.append({"role": "user", "content": f"q{number}"})
        head.append({"role": "assistant", "content": f"a{number}"})
    return [*head, {"role": "user", "content": "now"}]


def ten_each(given: Sequence[Message]) -> int:
    return 10 * len(given)


def test_a_short_history_stays() -> None:
    asked = messages(2)
    kept = history.fitted(asked, context=1000, wanted=100, count=ten_each)
    assert kept == (asked, 100, 0)


def test_the_oldest_turn_goes_first_and_the_system_s_message_stays() -> None:
    kept, room, dropped = history.fitted(messages(9), context=100, wanted=40, count=ten_each)
    assert [m["content"] for m in kept] == ["s", "q7", "a7", "q8", "a8", "now"]
    assert (room, dropped) == (40, 14)


def test_without_a_context_nothing_is_left_out() -> None:
    assert history.fitted(messages(50), context=None, wanted=7, count=ten_each)[1:] == (7, 0)


def test_a_question_that_cannot_fit_is_refused() -> None:
    with pytest.raises(CpuBuildError) as caught:
        history.fitted(messages(1), context=20, wanted=10, count=ten_each)
    assert caught.value.exit_code is ExitCode.SETTINGS


@given(st.integers(0, 12), st.integers(40, 300), st.integers(1, 200), st.booleans())
def test_what_is_kept_fits(turns: int, context: int, wanted: int, system: bool) -> None:
    asked = messages(turns, system=system)
    kept, room, dropped = history.fitted(asked, context=context, wanted=wanted, count=ten_each)
    assert 1 <= room <= wanted
    assert ten_each(kept) + room <= context
    assert len(kept) + dropped == len(asked)
    assert kept[-1]["content"] == "now"
    assert dropped % 2 == 0


def test_where_the_server_does_not_count_it_is_estimated() -> None:
    long: list[Message] = [{"role": "user", "content": "好" * 100}]
    assert history.estimate(long) >= 100
    with pytest.raises(CpuBuildError):
        history.fitted(long, context=100, wanted=10, count=lambda _: None)


# --- chat --------------------------------------------------------------------------------------


class Echo(Client):
    """A client whose server repeats the question, or is interrupted."""

    interrupted = False

    def count(self, model: str, messages: Sequence[Message]) -> int | None:
        return ten_each(messages)

    def stream(self, model: str, messages: Sequence[Message], wish: Wish, answer: Answer) -> Any:
        for letter in messages[-1]["content"]:
            answer.text += letter
            yield letter
            if self.interrupted:
                raise KeyboardInterrupt
        answer.finish_reason = "stop"


def some_chat(**given: Any) -> chat.Chat:
    talk = connect.Talk(client=Echo(url="http://127.0.0.1:1"), model="m", context=None, files=None)
    return chat.Chat(talk=talk, wish=Wish(), messages=[], quiet=False, **given)


def test_a_turn_is_shown_and_remembered(capsys: pytest.CaptureFixture[str]) -> None:
    now = some_chat(system="be kind")
    now.reset()
    chat.take(now, "你好\n", patient=False)
    assert capsys.readouterr().out == "你好\n"
    roles = [m["role"] for m in now.messages]
    assert roles == ["system", "user", "assistant"]
    assert now.turns[0]["question"] == "你好"
    chat.take(now, "/reset", patient=False)
    assert [m["role"] for m in now.messages] == ["system"]


def test_an_interrupt_stops_the_answer_and_not_the_chat(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Echo, "interrupted", True)
    now = some_chat()
    chat.take(now, "long", patient=False)
    assert now.turns[0]["finish_reason"] == "interrupted"
    assert now.messages[-1]["content"] == "l"
    assert not now.ended


def test_commands(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    now = some_chat()
    for line in ("", "   ", "/help", "/nope", "/save", "//slash", f"/save {tmp_path}/a/b.json"):
        chat.take(now, line, patient=False)
    said = capsys.readouterr()
    assert said.out == "/slash\n"
    assert "/nope is no command" in said.err
    assert "needs the name" in said.err
    assert "/slash" in (tmp_path / "a" / "b.json").read_text(encoding="utf-8")
    (tmp_path / "file").touch()
    chat.take(now, f"/save {tmp_path}/file/x.txt", patient=False)
    assert "cannot be written" in capsys.readouterr().err
    chat.take(now, "/quit", patient=False)
    assert now.ended


def test_the_room_for_an_answer_is_what_the_context_leaves() -> None:
    talk = connect.Talk(client=Echo(url="http://127.0.0.1:1"), model="m", context=100, files=None)
    asked = ask.with_system("s", "q")
    assert ask.room_of(talk, asked, Wish(max_tokens=500)).max_tokens == 80
