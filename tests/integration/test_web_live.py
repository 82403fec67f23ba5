"""The page of ``web`` on real processes and sockets, used by a real browser.

The server behind it is a stand-in for vLLM's own; Gradio comes from the package index.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.integration.fakevllm import Fake
from tests.integration.test_serving_live import CPUBUILD, SECONDS, Root, free, gone, validate

from cpubuild.serving import web
from cpubuild.sidecar import sidecar
from cpubuild.state import State

pytestmark = pytest.mark.integration

KEY = "key-0123456789abcdef"
BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome", "chromium-browser")
MILLISECONDS = 60_000
ANSWER = "#chat .bot"


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gradio, installed once from the package index for all tests of this process."""
    state = State(root=tmp_path_factory.mktemp("gradio"))
    log = state.root / "log"
    sidecar(state, web.SIDECAR, web.REQUIREMENTS, folder=log, offline=False)
    return state.tools


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:  # a skipped test would say that the page works
        pytest.fail("this test needs a browser; do: apt-get install chromium")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=found)
        yield made
        made.close()


@dataclass(kw_only=True)
class Shown:
    """A page that is shown: the process of the verb, its document, what stands behind it."""

    process: subprocess.Popen[bytes]
    document: dict[str, Any]
    server: Fake
    ended: tuple[bytes, bytes] | None = field(default=None)

    @property
    def url(self) -> str:
        return str(self.document["url"])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def family(self) -> list[psutil.Process]:
        chief = psutil.Process(self.process.pid)
        return [chief, *chief.children(recursive=True)]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.ended = self.process.communicate(timeout=SECONDS)
        return self.process.returncode


Show = Callable[..., Shown]


@pytest.fixture(scope="module")
def shows(tmp_path_factory: pytest.TempPathFactory, tools: Path) -> Iterator[Show]:
    """Show pages as they are asked for; whatever is left of them is ended at last."""
    made: list[Shown] = []

    def show(*words: str, ways: tuple[str, ...] = (), **variables: str) -> Shown:
        root = Root(tmp_path_factory.mktemp("root"))
        (root.state / "tools").symlink_to(tools)
        server = Fake(0, key=KEY, model="far", ways=frozenset(ways))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        environ = root.environ(VLLM_API_KEY=KEY, **variables)
        process = subprocess.Popen(
            [str(CPUBUILD), "web", "--url", url, "--port", "0", "--json", *words],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        document = first_document(process)
        made.append(Shown(process=process, document=document, server=server))
        return made[-1]

    yield show
    for one in made:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)
        one.server.shutdown()
        one.server.server_close()


def first_document(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What the verb prints while it stays."""
    assert process.stdout is not None
    text = b""
    while line := process.stdout.readline():
        text += line
        if line == b"}\n":
            return validate(json.loads(text), "web")
    _, said = process.communicate(timeout=SECONDS)
    raise AssertionError(said.decode())


@pytest.fixture(scope="module")
def shown(shows: Show) -> Shown:
    """One page for the tests that only use it."""
    return shows()


@dataclass(kw_only=True)
class Visit:
    """A browser's visit of a page, every address that it asked, and why some were not reached."""

    page: Page
    asked: list[str]
    failed: list[tuple[str, str | None]]

    def ask(self, text: str) -> None:
        self.page.locator("#question textarea").fill(text)
        self.page.locator("#question textarea").press("Enter")

    def answers(self, count: int) -> list[str]:
        """The answers (and the lines below them), once there are ``count`` and the page rests."""
        expect(self.page.locator("#chat small").nth(count - 1)).to_be_visible()
        expect(self.page.locator("#send")).to_be_visible()
        texts = self.page.locator(f"{ANSWER} .prose").all_inner_texts()
        return [text.strip() for text in texts]


Open = Callable[..., Visit]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    contexts = []

    def visit(shown: Shown, locale: str = "en-GB") -> Visit:
        context = browser.new_context(locale=locale)
        context.set_default_timeout(MILLISECONDS)
        contexts.append(context)
        page = context.new_page()
        asked: list[str] = []
        failed: list[tuple[str, str | None]] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("requestfailed", lambda request: failed.append((request.url, request.failure)))
        page.goto(shown.url)
        return Visit(page=page, asked=asked, failed=failed)

    expect.set_options(timeout=MILLISECONDS)
    yield visit
    for context in contexts:
        context.close()


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < deadline, "it never came so far"
        time.sleep(0.05)


# --- used by a browser -------------------------------------------------------------------------


def test_questions_are_typed_and_answers_read(shown: Shown, visit: Open) -> None:
    here = visit(shown)
    here.ask("Where is it?")
    answer, line = here.answers(1)
    assert answer == "Where is it?"
    assert re.fullmatch(
        r"12 tokens in [\d.]+ s · [\d.]+ tokens/s · first token after [\d.]+ s", line
    )
    # The stand-in repeats all that it is asked: the second turn was sent with the first.
    here.ask("你好，世界")
    assert here.answers(2)[2] == "Where is it? | 你好，世界"
    roles = [m["role"] for m in shown.server.requests[-1]["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert {url.split("/")[2] for url in here.asked if url.startswith("http")} == {
        shown.url.removeprefix("http://")
    }
    assert KEY not in here.page.content()


def test_a_chinese_browser_gets_a_chinese_page(shown: Shown, visit: Open) -> None:
    here = visit(shown, "zh-CN")
    expect(here.page.locator("#send")).to_have_text("发送")
    expect(here.page.locator("#fresh")).to_have_text("新对话")
    here.ask("中国的首都是哪里？")
    answer, line = here.answers(1)
    assert answer == "中国的首都是哪里？"
    assert re.fullmatch(
        r"9 个词元，用时 [\d.]+ 秒 · 每秒 [\d.]+ 个词元 · 首个词元在 [\d.]+ 秒后", line
    )


def test_an_answer_is_seen_growing_and_can_be_stopped(shown: Shown, visit: Open) -> None:
    here = visit(shown)
    shown.server.ways = frozenset({"slow"})
    try:
        here.ask("a long question that takes its time")
        expect(here.page.locator(ANSWER).first).to_contain_text(re.compile("^a lo(?!.*time)"))
        here.page.locator("#stop button, button#stop").click()
        answer, line = here.answers(1)
    finally:
        shown.server.ways = frozenset()
    assert answer.startswith("a lo")
    assert not answer.endswith("time")
    assert re.fullmatch(r"stopped after [\d.]+ s · first token after [\d.]+ s", line)
    # What had come is part of the chat; a new one begins without it.
    here.ask("two")
    here.answers(2)
    assert shown.server.requests[-1]["messages"][1]["content"].startswith("a lo")
    here.page.locator("#fresh button, button#fresh").click()
    expect(here.page.locator(ANSWER)).to_have_count(0)
    here.ask("three")
    assert here.answers(1)[0] == "three"


def test_a_new_chat_ends_the_answer_under_way(shown: Shown, visit: Open) -> None:
    here = visit(shown)
    shown.server.ways = frozenset({"slow"})
    try:
        here.ask("a long question that takes its time")
        expect(here.page.locator(ANSWER).first).to_contain_text(re.compile("^a l"))
        here.page.locator("#fresh button, button#fresh").click()
        expect(here.page.locator(ANSWER)).to_have_count(0)
    finally:
        shown.server.ways = frozenset()
    expect(here.page.locator("#send")).to_be_visible()
    here.ask("now")
    assert here.answers(1)[0] == "now"


def test_the_chat_s_own_button_begins_anew_too(shown: Shown, visit: Open) -> None:
    here = visit(shown)
    here.ask("one")
    here.answers(1)
    here.page.get_by_label("Clear").click()
    expect(here.page.locator(ANSWER)).to_have_count(0)
    here.ask("two")
    assert here.answers(1)[0] == "two"


def test_the_fields_say_how_an_answer_is_wished(shown: Shown, visit: Open) -> None:
    here = visit(shown)
    here.ask("one")
    here.answers(1)
    first = shown.server.requests[-1]
    assert first["max_tokens"] <= 200  # the context of the stand-in
    assert not {"temperature", "top_p"} & set(first)
    here.page.locator("#system textarea").fill("be kind")
    here.page.locator("#max_tokens input[type=number]").fill("5")
    here.page.locator("#own input").check()
    here.page.locator("#temperature input[type=number]").fill("0.3")
    here.page.locator("#top_p input[type=number]").fill("0.5")
    here.page.locator("#top_p input[type=number]").press("Tab")
    here.ask("three")
    answers = here.answers(2)
    second = shown.server.requests[-1]
    assert (second["temperature"], second["top_p"], second["max_tokens"]) == (0.3, 0.5, 5)
    assert second["messages"][0] == {"role": "system", "content": "be kind"}
    assert answers[2] == "one |"
    assert answers[3].endswith("cut at the longest length")


def test_a_failure_is_shown_and_the_question_is_back(shown: Shown, visit: Open) -> None:
    here = visit(shown)
    shown.server.ways = frozenset({"cut"})
    try:
        here.ask("hello")
        expect(here.page.locator(ANSWER).last).to_contain_text("broke off")
        expect(here.page.locator(ANSWER).last).to_contain_text("cpubuild serve --status")
    finally:
        shown.server.ways = frozenset()
    expect(here.page.locator("#question textarea")).to_have_value("hello")
    here.page.locator("#question textarea").press("Enter")
    here.answers(1)
    assert [m["content"] for m in shown.server.requests[-1]["messages"]] == ["hello"]


def test_an_answer_is_no_markup(shown: Shown, visit: Open) -> None:
    here = visit(shown)
    here.ask("<img src=x onerror=\"document.title='bad'\"><script>document.title='bad'</script>hi")
    here.answers(1)
    assert here.page.title() == "far"
    here.page.locator("#fresh button, button#fresh").click()
    expect(here.page.locator(ANSWER)).to_have_count(0)
    here.ask("![x](http://example.invalid/x.png)")
    here.answers(1)
    assert {why for url, why in here.failed if "example.invalid" in url} <= {"csp"}


# --- its life ----------------------------------------------------------------------------------


def test_it_ends_whole_and_the_key_is_nowhere(shows: Show, tmp_path: Path) -> None:
    variables = {"GRADIO_SHARE": "True", "GRADIO_ANALYTICS_ENABLED": "True", "http_proxy": "x"}
    one = shows(TMPDIR=str(tmp_path), **variables)
    assert one.document["pid"] == one.process.pid
    assert requests.get(one.url, timeout=SECONDS).status_code == 200
    foreign = requests.get(one.url, headers={"Host": "evil.example"}, timeout=SECONDS)
    assert foreign.status_code == 400
    family = one.family()
    assert len(family) == 2
    for process in psutil.process_iter():
        try:
            assert KEY not in " ".join(process.cmdline())
        except psutil.Error:
            continue
    page = family[1].environ()
    assert KEY not in json.dumps(page)
    assert [p.name for p in tmp_path.iterdir()] != []
    assert one.end() == 0
    assert all(gone(process.pid) for process in family)
    assert free(one.port)
    assert list(tmp_path.iterdir()) == []
    out, err = one.ended or (b"", b"")
    assert (out, b"the page has ended" in err) == (b"", True)


def test_ctrl_c_ends_it(shows: Show) -> None:
    one = shows()
    family = one.family()
    assert one.end(signal.SIGINT) == 0
    assert all(gone(process.pid) for process in family)
    assert free(one.port)


def test_the_page_does_not_outlive_a_tool_that_was_killed(shows: Show) -> None:
    one = shows()
    family = one.family()
    one.end(signal.SIGKILL)
    until(lambda: all(gone(process.pid) for process in family))
    assert free(one.port)


def test_a_page_that_ends_by_itself_is_an_error(shows: Show) -> None:
    one = shows()
    one.family()[1].kill()
    _, said = one.process.communicate(timeout=SECONDS)
    assert one.process.returncode == 8
    assert b"the page has ended" in said
    assert b"log: " in said


def test_others_must_log_in(shows: Show, visit: Open, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("right-word\n", encoding="utf-8")
    words = ("--host", "0.0.0.0", "--auth", "me", "--password-file", str(tmp_path / "password"))
    one = shows(*words)
    assert one.document["user"] == "me"
    for path in ("/config", "/gradio_api/info"):
        assert requests.get(one.url + path, timeout=SECONDS).status_code == 401
    for process in psutil.process_iter():
        try:
            assert "right-word" not in " ".join(process.cmdline())
        except psutil.Error:
            continue
    here = visit(one)
    fields = here.page.locator("input")
    for word, status in (("wrong-word", 400), ("right-word", 200)):
        expect(fields.nth(1)).to_have_value("")  # the page empties both after a refusal
        fields.nth(0).fill("me")
        fields.nth(1).fill(word)
        with here.page.expect_response("**/login") as told:
            here.page.get_by_role("button").last.click()
        assert told.value.status == status
    here.ask("hi")
    assert here.answers(1)[0] == "hi"
    assert one.end() == 0


def test_the_server_of_the_state_root_is_talked_to(
    tmp_path: Path, tools: Path, visit: Open
) -> None:
    root = Root(tmp_path)
    (root.state / "tools").symlink_to(tools)
    refused = root.document("web", code=4)
    assert "cpubuild serve MODEL" in refused["error"]["problems"][0]["remedy"]
    root.serve()
    try:
        process = subprocess.Popen(
            [str(CPUBUILD), "web", "--port", "0", "--json"],
            env=root.environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        document = first_document(process)
        assert document["model"] == "tiny"
        server = Fake(0, key=None, model="", ways=frozenset())
        one = Shown(process=process, document=document, server=server)
        here = visit(one)
        here.ask("你好")
        assert here.answers(1)[0] == "你好"
        assert root.document("serve", "--stop")["changed"]
        here.ask("still there?")
        expect(here.page.locator(ANSWER).last).to_contain_text("cpubuild serve")
        assert one.end() == 0
        server.server_close()
    finally:
        root.run("serve", "--stop")


# --- what stands against it --------------------------------------------------------------------


def test_a_taken_port_is_told_before_anything_is_started(shown: Shown, tmp_path: Path) -> None:
    root = Root(tmp_path)
    done = root.document("web", "--port", str(shown.port), code=75)
    (problem,) = done["error"]["problems"]
    assert f"port {shown.port} is taken by process" in problem["what"]
    assert "--port 0" in problem["remedy"][0]


def test_without_gradio_and_without_a_network(shown: Shown, tmp_path: Path) -> None:
    root = Root(tmp_path)
    url = f"http://127.0.0.1:{shown.server.server_address[1]}"
    environ = {"VLLM_API_KEY": KEY, "UV_CACHE_DIR": str(tmp_path / "cache")}
    words = ("web", "--url", url, "--port", "0", "--offline")
    done = root.document(*words, code=5, env=environ)
    (problem,) = done["error"]["problems"]
    assert "gradio" in problem["what"]
    assert "this run is offline" in problem["what"]
    assert "leave out --offline" in problem["remedy"]


def test_a_wrong_key_is_told_before_the_page_is_shown(shown: Shown, tmp_path: Path) -> None:
    root = Root(tmp_path)
    url = f"http://127.0.0.1:{shown.server.server_address[1]}"
    done = root.run("web", "--url", url, "--port", "0", env={"VLLM_API_KEY": "no"})
    assert done.returncode == 2
    assert b"does not accept the key" in done.stderr
