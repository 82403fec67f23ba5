"""The web page: who may see it, what is asked for it, what it shows; Gradio is not needed here."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cpubuild import calls, jsonio, settings, tasks, verbs
from cpubuild.calls import Call, Outcome
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.probe import web_page
from cpubuild.serving import bridge, connect, web
from cpubuild.serving.client import Answer, Client, Message, Wish

TEXTS = web.words()
EN, ZH = TEXTS["en"]["said"], TEXTS["zh"]["said"]
END = {
    "tokens": {"prompt": 5, "completion": 12},
    "tokens_per_s": 8.04,
    "first_token_s": 0.256,
    "seconds": 1.52,
    "finish_reason": "stop",
    "dropped": 0,
}


def call(tmp_path: Path, environ: dict[str, str] | None = None, **given: Any) -> Call:
    options = {name.replace("-", "_"): None for name in tasks.namespace["web"].help}
    return Call(
        flags={"state": str(tmp_path / "state")},
        options=options | given,
        verbose=False,
        environ=environ or {},
    )


def refused(run: Any, *arguments: Any, **named: Any) -> CpuBuildError:
    with pytest.raises(CpuBuildError) as caught:
        run(*arguments, **named)
    assert caught.value.problems[0].remedy
    return caught.value


# --- who may see it ----------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.9.9.9"])
def test_on_the_loopback_nobody_must_log_in(host: str) -> None:
    web.guard(host, auth=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "example.org"])
def test_where_others_reach_it_somebody_must_log_in(host: str) -> None:
    web.guard(host, auth=True)
    error = refused(web.guard, host, auth=False)
    assert error.exit_code is ExitCode.SETTINGS
    assert "--auth USER --password-file" in " ".join(error.problems[0].remedy)


def test_the_verb_refuses_before_it_looks_for_a_server(tmp_path: Path) -> None:
    for wrong in (
        {"host": "0.0.0.0"},
        {"port": "many"},
        {"auth": "me"},
        {"password_file": "x"},
        {"temperature": "hot"},
        {"max_tokens": "0"},
    ):
        error = refused(verbs.web, call(tmp_path, **wrong))
        assert error.exit_code is ExitCode.SETTINGS, wrong


def test_user_and_password(tmp_path: Path) -> None:
    assert web.auth_of(call(tmp_path)) is None
    assert web.auth_of(call(tmp_path, {web.PASSWORD_VARIABLE: "p"})) is None
    by_variable = call(tmp_path, {web.PASSWORD_VARIABLE: "秘密 p"}, auth=" 我 ")
    assert web.auth_of(by_variable) == ("我", "秘密 p")
    (tmp_path / "file").write_text("from the file\r\n", encoding="utf-8")
    both = call(
        tmp_path,
        {web.PASSWORD_VARIABLE: "p"},
        auth="me",
        password_file=str(tmp_path / "file"),
    )
    assert web.auth_of(both) == ("me", "from the file")


@pytest.mark.parametrize("content", [b"", b"\n", b"  \n", b"two\nlines\n", b"\xff", b"a\tb", None])
def test_a_password_that_cannot_be(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    error = refused(web.auth_of, call(tmp_path, auth="me", password_file=str(path)))
    assert error.exit_code is ExitCode.SETTINGS
    assert str(path) in str(error)
    assert "two" not in str(error)


@pytest.mark.parametrize("user", ["", "  ", "a\nb"])
def test_a_user_that_cannot_be(tmp_path: Path, user: str) -> None:
    given = call(tmp_path, {web.PASSWORD_VARIABLE: "secret-word"}, auth=user)
    assert "secret-word" not in str(refused(web.auth_of, given).problems)


def test_the_variable_is_known_to_the_settings(tmp_path: Path) -> None:
    environ = {web.PASSWORD_VARIABLE: "p", "CPUBUILD_STATE": str(tmp_path)}
    assert settings.resolve({}, environ).warnings == ()


def test_how_the_fields_stand_at_first(tmp_path: Path) -> None:
    assert web.start_of(call(tmp_path)) == {
        "system": None,
        "max_tokens": 1024,
        "temperature": None,
    }
    given = call(tmp_path, system="友好", max_tokens="7", temperature="0")
    assert web.start_of(given) == {"system": "友好", "max_tokens": 7, "temperature": 0.0}


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("::1", "http://[::1]:1"),
    ],
)
def test_where_a_browser_on_this_host_finds_it(host: str, url: str) -> None:
    assert web.Place(host=host, port=1, auth=None).url == url


def test_the_document_keeps_to_its_schema() -> None:
    schema = resources.files("cpubuild").joinpath("data", "schemas", "web.json")
    check = Draft202012Validator(json.loads(schema.read_text("utf-8")))
    page = web.Page(process=None, log=Path("/log"))
    for auth in (None, ("me", "secret-word")):
        told = web.ready(web.Place(host="::1", port=1, auth=auth), talk(), page)
        shown = jsonio.dumps(told.document)
        check.validate(json.loads(shown))
        assert "secret-word" not in shown + "".join(told.lines)


# --- a verb that stays -------------------------------------------------------------------------


def staying(call: Call) -> Outcome:
    call.tell(Outcome(document={"here": 1}, lines=["here"]))
    if call.options["fails"]:
        raise fail(ExitCode.VERIFY, "it ended")
    return Outcome(document={"gone": 1}, lines=["gone"])


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_what_was_told_early_is_all_that_stdout_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: bool, as_json: bool
) -> None:
    monkeypatch.setattr(verbs, "status", staying)
    monkeypatch.setattr(tasks.signal, "signal", lambda *_: None)
    given = {"json": as_json, "v": False, "verbose": False, "fails": fails}
    code = tasks.dispatch("status", given | dict.fromkeys(settings.NAMES))
    assert code is (ExitCode.VERIFY if fails else ExitCode.OK)
    said = capsys.readouterr()
    assert (json.loads(said.out) == {"here": 1}) if as_json else (said.out == "here\n")
    assert ("it ended" in said.err) is fails


def test_a_call_without_a_face_tells_nobody(tmp_path: Path) -> None:
    call(tmp_path).tell(calls.Outcome(document={}))


# --- what the page's process is answered -------------------------------------------------------


class Echo(Client):
    """A client whose server repeats the last message, and breaks off behind an x."""

    seen: list[tuple[Sequence[Message], Wish]] = []  # noqa: RUF012 - set anew by each test
    closed = 0

    def count(self, model: str, messages: Sequence[Message]) -> int | None:
        return 10 * len(messages)

    def stream(self, model: str, messages: Sequence[Message], wish: Wish, answer: Answer) -> Any:
        self.seen.append((messages, wish))
        for letter in messages[-1]["content"]:
            answer.text += letter
            yield letter
            if letter == "x":
                raise self.broken(None)
        answer.finish_reason, answer.tokens, answer.seconds = "stop", 3, 1.5

    def close(self) -> None:
        Echo.closed += 1


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> type[Echo]:
    monkeypatch.setattr(bridge, "Client", Echo)
    monkeypatch.setattr(Echo, "seen", [])
    monkeypatch.setattr(Echo, "closed", 0)
    return Echo


def talk(context: int | None = None) -> connect.Talk:
    client = Client(url="http://127.0.0.1:1", key="k")
    return connect.Talk(client=client, model="m", context=context, files=None)


def asked(*contents: str, **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    rows = [{"role": roles[n % 2], "content": text} for n, text in enumerate(contents)]
    return {"messages": rows, **more}


def test_the_pieces_come_first_and_the_figures_at_the_end(echo: type[Echo]) -> None:
    wishes = {"max_tokens": 7.0, "temperature": 0, "top_p": 0.5}
    *pieces, last = bridge.replies(talk(), asked("你好", **wishes))
    assert pieces == [{"text": "你"}, {"text": "好"}]
    end = last["end"]
    assert (end["text"], end["tokens_per_s"], end["dropped"]) == ("你好", 2.0, 0)
    assert echo.seen[0][1] == Wish(max_tokens=7, temperature=0.0, top_p=0.5)
    assert echo.closed == 1


def test_what_no_longer_fits_is_counted(echo: type[Echo]) -> None:
    *_, last = bridge.replies(talk(context=35), asked("a", "b", "c", max_tokens=4))
    assert last["end"]["dropped"] == 0
    *_, last = bridge.replies(talk(context=32), asked("a", "b", "c", max_tokens=4))
    assert last["end"]["dropped"] == 2
    assert [m["content"] for m in echo.seen[-1][0]] == ["c"]


def test_a_failure_is_a_row_with_its_remedy(echo: type[Echo]) -> None:
    *pieces, last = bridge.replies(talk(), asked("axb"))
    assert pieces == [{"text": "a"}, {"text": "x"}]
    assert "broke off" in last["error"][0]["what"]
    assert last["error"][0]["do"]
    assert echo.closed == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"messages": []},
        {"messages": ["a"]},
        {"messages": 3},
        {"messages": [{"role": "user"}]},
        asked("a", temperature="hot"),
        asked("a", max_tokens=float("inf")),
        asked("a", top_p=[]),
    ],
)
def test_what_is_no_question_is_refused(echo: type[Echo], wrong: dict[str, Any]) -> None:
    (row,) = bridge.replies(talk(), wrong)
    assert "no question of the page" in row["error"][0]["what"]
    assert echo.seen == []


def test_to_leave_early_closes_the_connection(echo: type[Echo]) -> None:
    rows = bridge.replies(talk(), asked("long"))
    next(rows)
    rows.close()
    assert echo.closed == 1


def test_a_socket_needs_a_short_path(tmp_path: Path) -> None:
    with pytest.raises(CpuBuildError) as caught:
        bridge.answering(talk(), tmp_path / ("x" * 100)).__enter__()
    assert "TMPDIR" in caught.value.problems[0].remedy[0]


# --- what the page shows -----------------------------------------------------------------------


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_both_languages_say_the_same() -> None:
    assert set(TEXTS) == {"en", "zh"}
    for group in ("label", "said"):
        first, second = TEXTS["en"][group], TEXTS["zh"][group]
        assert list(first) == list(second)
        assert {n: fields(t) for n, t in first.items()} == {n: fields(t) for n, t in second.items()}
    assert re.search("[一-鿿]", TEXTS["zh"]["label"]["send"])


def test_every_word_that_the_page_asks_for_is_there() -> None:
    source = Path(web_page.__file__).read_text(encoding="utf-8")
    labels = set(re.findall(r'i18n\("(\w+)"\)', source))
    said = set(re.findall(r"words\[.(\w+).", source)) | {"tokens"}
    assert labels == set(TEXTS["en"]["label"])
    assert said == set(EN)


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        (None, "en"),
        ("", "en"),
        ("de-DE,de;q=0.9", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("ZH", "zh"),
        ("fr, zh-TW;q=0.5", "zh"),
        ("en-GB,zh;q=0.9", "en"),
    ],
)
def test_the_language_is_the_browser_s(accepted: str | None, chosen: str) -> None:
    assert web_page.language(accepted) == chosen


def test_the_figures_of_an_answer() -> None:
    assert (
        web_page.figures(END, EN) == "12 tokens in 1.5 s · 8.0 tokens/s · first token after 0.26 s"
    )
    assert web_page.figures(END, ZH).startswith("12 个词元")
    cut = END | {"finish_reason": "length", "dropped": 4}
    assert web_page.figures(cut, EN).endswith(
        "cut at the longest length · the oldest 4 messages no longer fit and were left out"
    )
    uncounted = END | {"tokens": {"prompt": None, "completion": None}, "tokens_per_s": None}
    assert web_page.figures(uncounted | {"first_token_s": None}, EN) == "1.5 s"


def turn(question: str = "why", chat: dict[str, Any] | None = None) -> web_page.Turn:
    return web_page.Turn(question, chat or web_page.empty(), EN)


def test_a_turn_is_remembered_with_what_is_shown() -> None:
    now = turn()
    assert "reading the question" in now.picture()[-1]["content"]
    for letter in "abc":
        now.take({"text": letter})
    assert [m["content"] for m in now.picture()] == ["why", "abc"]
    now.take({"end": END})
    after = now.over()
    assert [m["content"] for m in after["messages"]] == ["why", "abc"]
    assert [m["role"] for m in after["shown"]] == ["user", "assistant", "assistant"]
    assert "8.0 tokens/s" in after["shown"][-1]["content"]
    more = turn("and", after).asked(" be kind ", 9, (0.5, 0.9))
    assert [m["content"] for m in more["messages"]] == ["be kind", "why", "abc", "and"]
    assert (more["max_tokens"], more["temperature"], more["top_p"]) == (9, 0.5, 0.9)
    assert turn().asked("", 9, (None, None))["messages"] == [{"role": "user", "content": "why"}]


def test_pictures_are_few() -> None:
    now = turn()
    assert [now.take({"text": "a"}) for _ in range(3)] == [True, False, False]


def test_a_stopped_answer_is_remembered_as_far_as_it_came() -> None:
    now = turn()
    assert now.over()["messages"] == []
    now.take({"text": "ab"})
    after = now.over()
    assert [m["content"] for m in after["messages"]] == ["why", "ab"]
    assert re.search(r"stopped after [\d.]+ s · first token after", after["shown"][-1]["content"])


def test_a_forgotten_turn_leaves_an_empty_chat() -> None:
    now = turn(chat=turn().over())
    now.take({"text": "ab"})
    now.forgotten = True
    now.stop()
    assert (now.halted, now.over()) == (True, web_page.empty())


def test_a_failed_turn_is_shown_and_not_remembered() -> None:
    now = turn()
    now.take({"text": "half"})
    now.take({"error": [{"what": "<b>gone</b>", "why": "a & b", "do": ["x <y>", "z"]}]})
    after = now.over()
    assert after["messages"] == []
    told = after["shown"][-1]["content"]
    assert told == ("**&lt;b&gt;gone&lt;/b&gt;**\n\nWhy: a &amp; b\n\nTo do:\n\n    x <y>\n    z")


# --- its process -------------------------------------------------------------------------------


def test_the_process_sees_no_key_and_writes_into_its_folder_only() -> None:
    given = {"PATH": "/bin", "LANG": "C", "VLLM_API_KEY": "k", "GRADIO_SHARE": "1", "HOME": "/me"}
    made = web.environment(given, "/folder")
    assert (made["PATH"], made["LANG"], made["HOME"], made["TMPDIR"]) == (
        *("/bin", "C"),
        *("/folder", "/folder"),
    )
    assert not {"VLLM_API_KEY", "GRADIO_SHARE"} & set(made)


def through(guard: web_page.Guard, host: bytes | None) -> list[dict[str, Any]]:
    """The messages of one request; nothing in it waits."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [] if host is None else [(b"host", host)]
    running = guard({"type": "http", "headers": headers}, None, send)
    with pytest.raises(StopIteration):
        running.send(None)
    return sent


async def application(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"127.0.0.1:7860", 200),
        (b"localhost", 200),
        (b"LOCALHOST:1", 200),
        (b"[::1]:7860", 200),
        (b"evil.example:7860", 400),
        (b"[", 400),
        (b"", 400),
        (None, 400),
    ],
)
def test_a_name_that_is_not_this_host_s_is_refused(host: bytes | None, status: int) -> None:
    guard = web_page.Guard(application, frozenset(web_page.LOCAL))
    assert through(guard, host)[0]["status"] == status
    assert through(web_page.Guard(application, None), host)[0]["status"] == 200


def test_every_answer_tells_the_browser_to_stay_here() -> None:
    (start,) = through(web_page.Guard(application, None), b"x")
    policy = dict(start["headers"])[b"content-security-policy"]
    assert b"default-src 'self'" in policy
    assert b"http" not in policy
