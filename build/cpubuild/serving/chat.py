"""The verb ``chat``: turns on the terminal, or one for each line of stdin."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cpubuild import jsonio, ui
from cpubuild.calls import Call, Outcome
from cpubuild.errors import CpuBuildError
from cpubuild.serving import ask, connect, history, texts
from cpubuild.serving.client import Answer, Message, Wish

MAX_TOKENS = 1024
HELP = "/reset forgets, /save FILE writes the chat, /quit or Ctrl-D ends, Ctrl-C stops an answer"
COMMANDS = ("/help", "/quit", "/reset", "/save")


@dataclass(kw_only=True, slots=True)
class Chat:
    """A chat as far as it has come; ``quiet`` keeps answers off stdout."""

    talk: connect.Talk
    wish: Wish
    messages: list[Message]
    quiet: bool
    system: str | None = None
    turns: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False

    def turn(self, question: str) -> None:
        """Ask, show the answer as it comes, and remember both; an interrupt stops the answer."""
        asked = [*self.messages, {"role": "user", "content": question}]
        kept, room, dropped = history.fitted(
            asked,
            context=self.talk.context,
            wanted=self.wish.max_tokens or MAX_TOKENS,
            count=ask.counter(self.talk.client, self.talk.model),
        )
        if dropped:
            ui.note(f"the oldest {dropped} messages no longer fit and are left out")
        answer = Answer()
        wish = Wish(max_tokens=room, temperature=self.wish.temperature)
        pieces = self.talk.client.stream(self.talk.model, kept, wish, answer)
        try:
            with contextlib.closing(pieces):
                for piece in pieces:
                    self.show(piece)
        except KeyboardInterrupt:
            answer.finish_reason = "interrupted"
        finally:
            self.show("\n")
        self.messages = [*kept, {"role": "assistant", "content": answer.text}]
        self.turns.append({"question": question, **ask.document(answer, self.talk)})

    def show(self, text: str) -> None:
        """Print a piece of an answer."""
        if not self.quiet:
            sys.stdout.write(text)
            sys.stdout.flush()

    def reset(self) -> None:
        """Forget all but the system's message."""
        head = {"role": "system", "content": self.system or ""}
        self.messages = [head] if self.system else []

    def command(self, line: str) -> None:
        """Carry out a line that begins with a slash."""
        word, _, rest = line.partition(" ")
        if word == "/quit":
            self.ended = True
        elif word == "/reset":
            self.reset()
            ui.note("forgotten")
        elif word == "/save":
            ui.note(self.save(rest.strip()))
        elif word == "/help":
            ui.note(HELP)
        else:
            ui.note(f"{word} is no command: {', '.join(COMMANDS)}; two slashes begin a text")

    def save(self, name: str) -> str:
        """Write the messages, as JSON for a name that ends so, else as text; what was done."""
        if not name:
            return "/save needs the name of a file"
        path = Path(name).expanduser().absolute()
        try:
            if path.suffix == ".json":
                jsonio.write(path, {"model": self.talk.model, "messages": self.messages})
            else:
                rows = (f"{m['role']}:\n{m['content']}\n" for m in self.messages)
                jsonio.write_text(path, "\n".join(rows))
        except OSError as error:
            return f"{path} cannot be written: {error.strerror}"
        return f"saved: {path}"


def chat(call: Call) -> Outcome:
    """Talk until the input ends; the document holds the turns.

    On a terminal a failed turn is shown and the chat goes on; from a pipe it ends the verb.
    """
    call.resolved()  # a wrong setting is told first, as every verb does
    wish = connect.wish_of(call, max_tokens=MAX_TOKENS)
    system = texts.argument(call.options["system"]) if call.options["system"] else None
    someone = texts.is_terminal(sys.stdin)
    texts.utf8_out()
    with connect.talk(call) as talk, ending() as end:
        now = Chat(talk=talk, wish=wish, messages=[], quiet=call.json, system=system)
        now.reset()
        if someone:
            ui.say(f"---- {talk.model} at {talk.client.url}; {HELP}")
        for line in prompted(end) if someone else texts.stdin_lines():
            take(now, line, patient=someone)
            if now.ended or end:
                break
    document = {"model": talk.model, "url": talk.client.url, "turns": now.turns}
    return Outcome(document=document)


def take(now: Chat, line: str, *, patient: bool) -> None:
    """One line of input: a command, a text, or nothing."""
    text = line.strip()
    if not text:
        return
    try:
        if text.startswith("//"):
            now.turn(text[1:])
        elif text.startswith("/"):
            now.command(text)
        else:
            now.turn(text)
    except CpuBuildError as error:
        found = now.talk.explained(error)
        if not patient or found is not error:
            raise found from error
        ui.lines(ui.error_lines(found)[:-1])


def prompted(end: list[int]) -> Iterator[str]:
    """Lines as somebody types them; Ctrl-C at the prompt begins the line anew, Ctrl-D ends."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - line editing and the lines before
    for stream in (sys.stdin, sys.stdout):
        texts.speak(stream)
    while not end:
        try:
            yield input("> ")
        except EOFError:
            ui.say()
            return
        except KeyboardInterrupt:
            ui.say()


@contextlib.contextmanager
def ending() -> Iterator[list[int]]:
    """While the block runs, SIGTERM and SIGHUP stop an answer like Ctrl-C, and the chat with it.

    The list that it yields is empty until one of them came.
    """
    came: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        del frame
        came.append(number)
        raise KeyboardInterrupt

    wanted = (signal.SIGTERM, signal.SIGHUP)
    before = {n: signal.getsignal(n) for n in wanted if signal.getsignal(n) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield came
    except KeyboardInterrupt:
        if not came:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
