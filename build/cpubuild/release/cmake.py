"""CMake text as commands: a tolerant tokenizer, indifferent to how a file is laid out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cpubuild.release.files import unreadable

SPACE_OR_COMMENT = re.compile(r"\s+|#\[(=*)\[.*?\]\1\]|#[^\n]*", re.DOTALL)
NAME = re.compile(r"[A-Za-z_]\w*")
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
BRACKET = re.compile(r"\[(=*)\[(.*?)\]\1\]", re.DOTALL)
UNQUOTED = re.compile(r'(?:[^\s()#"\\]|\\.|"(?:[^"\\\n]|\\.)*")+', re.DOTALL)
ENV = re.compile(r"\bENV\{([A-Za-z_]\w*)\}")
EXPECTED = "CMake commands"


@dataclass(frozen=True, kw_only=True, slots=True)
class Arg:
    """One argument as written; ``quoted`` tells a string from a bare word."""

    text: str
    quoted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """One command: name in lower case, arguments (parentheses are bare words), line from 1."""

    name: str
    args: tuple[Arg, ...]
    line: int

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments as plain text."""
        return tuple(a.text for a in self.args)

    def after(self, keyword: str) -> str | None:
        """The argument that follows a bare ``keyword``."""
        for here, following in zip(self.args, self.args[1:], strict=False):
            if not here.quoted and here.text == keyword:
                return following.text
        return None


def parse(text: str, name: str) -> tuple[Command, ...]:
    """The commands of ``text``; ``name`` is the file's, for the error of text that is not CMake."""
    scanner = _Scanner(text, name)
    commands = []
    while (command := scanner.command()) is not None:
        commands.append(command)
    return tuple(commands)


def environment_reads(commands: tuple[Command, ...]) -> frozenset[str]:
    """The environment variables that commands read or set."""
    found = (ENV.findall(word) for command in commands for word in command.words)
    return frozenset(name for names in found for name in names)


class _Scanner:
    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.at = 0

    def command(self) -> Command | None:
        self._skip()
        if self.at >= len(self.text):
            return None
        line = self._line()
        name = self._take(NAME)
        if name is None:
            raise self._error("no command begins here")
        self._skip()
        if self.text[self.at : self.at + 1] != "(":
            raise self._error(f"no '(' after {name[0]!r}")
        self.at += 1
        return Command(name=name[0].lower(), args=self._args(name[0]), line=line)

    def _args(self, name: str) -> tuple[Arg, ...]:
        args: list[Arg] = []
        depth = 1
        while True:
            self._skip()
            char = self.text[self.at : self.at + 1]
            if not char:
                raise self._error(f"the arguments of {name!r} do not end")
            if char in "()":
                self.at += 1
                depth += 1 if char == "(" else -1
                if depth == 0:
                    return tuple(args)
                args.append(Arg(text=char))
            else:
                args.append(self._arg())

    def _arg(self) -> Arg:
        if (bracket := self._take(BRACKET)) is not None:
            return Arg(text=bracket[2], quoted=True)
        if (quoted := self._take(QUOTED)) is not None:
            return Arg(text=re.sub(r"\\(.)", r"\1", quoted[1]), quoted=True)
        if (word := self._take(UNQUOTED)) is not None:
            return Arg(text=word[0])
        raise self._error("no argument can be read here")

    def _skip(self) -> None:
        while (match := SPACE_OR_COMMENT.match(self.text, self.at)) is not None:
            self.at = match.end()

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def _line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    def _error(self, what: str) -> Exception:
        return unreadable(f"{self.name}:{self._line()}", what, EXPECTED)
