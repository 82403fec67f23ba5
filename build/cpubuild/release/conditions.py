"""The conditions of CMake's if(), judged with what is known: true, false, or None for unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from packaging.version import InvalidVersion, Version

from cpubuild.release.cmake import Arg

Truth = bool | None
Values = Mapping[str, str | None]

TRUE = {"1", "ON", "YES", "TRUE", "Y"}
FALSE = {"0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND", ""}
UNARY = {"COMMAND", "EXISTS", "IS_ABSOLUTE", "IS_DIRECTORY", "IS_SYMLINK", "POLICY", "TARGET"}
REFERENCE = re.compile(r"\$(ENV|CACHE)?\{([^${}]*)\}")
OF_ANOTHER_FILE = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*$")


class MalformedConditionError(Exception):
    """A condition that is not one."""


def both(left: Truth, right: Truth) -> Truth:
    """AND over true, false and unknown."""
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def either(left: Truth, right: Truth) -> Truth:
    """OR over true, false and unknown."""
    return opposite(both(opposite(left), opposite(right)))


def opposite(value: Truth) -> Truth:
    """NOT over true, false and unknown."""
    return None if value is None else not value


def expand(text: str, values: Values) -> str | None:
    """Replace ``${NAME}`` by its value, ``$ENV{NAME}`` by nothing; None when one is unknown."""
    while (match := REFERENCE.search(text)) is not None:
        value = "" if match[1] == "ENV" else values.get(match[2])
        if value is None or "${" in value:
            return None
        text = text[: match.start()] + value + text[match.end() :]
    return text


def constant(text: str) -> Truth:
    """What a constant means, None for anything that is not one."""
    word = text.upper()
    if word in TRUE:
        return True
    if word in FALSE or word.endswith("-NOTFOUND"):
        return False
    return float(text) != 0 if re.fullmatch(r"-?\d+(\.\d+)?", text) else None


def judge(args: tuple[Arg, ...], values: Values) -> Truth:
    """The truth of a condition. ``values`` maps a variable to its value, None for unknown ones."""
    reader = _Condition(args, values)
    try:
        truth = reader.disjunction()
    except RecursionError:
        raise MalformedConditionError("it is nested too deeply") from None
    if reader.args:
        raise MalformedConditionError(f"unexpected {reader.args[0].text!r}")
    return truth


class _Condition:
    def __init__(self, args: tuple[Arg, ...], values: Values) -> None:
        self.args = list(args)
        self.values = values

    def disjunction(self) -> Truth:
        truth = self._conjunction()
        while self._next("OR"):
            truth = either(truth, self._conjunction())
        return truth

    def _conjunction(self) -> Truth:
        truth = self._negation()
        while self._next("AND"):
            truth = both(truth, self._negation())
        return truth

    def _negation(self) -> Truth:
        negations = 0
        while self._next("NOT"):
            negations += 1
        truth = self._primary()
        return truth if negations % 2 == 0 else opposite(truth)

    def _primary(self) -> Truth:
        if self._next("("):
            truth = self.disjunction()
            if not self._next(")"):
                raise MalformedConditionError("a parenthesis is not closed")
            return truth
        arg = self._pop()
        if not arg.quoted and arg.text == "DEFINED":
            return self._defined(self._pop().text)
        if not arg.quoted and arg.text in UNARY:
            self._pop()
            return None
        if self.args and not self.args[0].quoted and self.args[0].text in COMPARE:
            compare = COMPARE[self._pop().text]
            left, right = self._operand(arg), self._operand(self._pop())
            return None if left is None or right is None else compare(left, right)
        return self._value(arg)

    def _defined(self, name: str) -> Truth:
        if name.startswith("ENV{"):
            return False
        return True if self.values.get(name) else None

    def _value(self, arg: Arg) -> Truth:
        text = expand(arg.text, self.values)
        if text is None or (truth := constant(text)) is not None:
            return None if text is None else truth
        if arg.quoted:
            return False
        if text not in self.values:
            return None if OF_ANOTHER_FILE.match(text) else False
        value = self.values[text]
        return None if value is None else constant(value) is not False

    def _operand(self, arg: Arg) -> str | None:
        text = expand(arg.text, self.values)
        if text is None or arg.quoted:
            return text
        if text in self.values:
            return self.values[text]
        return None if OF_ANOTHER_FILE.match(text) else text

    def _next(self, word: str) -> bool:
        if self.args and not self.args[0].quoted and self.args[0].text == word:
            self.args.pop(0)
            return True
        return False

    def _pop(self) -> Arg:
        if not self.args or (not self.args[0].quoted and self.args[0].text in ("(", ")")):
            raise MalformedConditionError("an operand is missing")
        return self.args.pop(0)


def _matches(left: str, right: str) -> Truth:
    try:
        return re.search(right, left) is not None
    except re.error:
        return None


def _numbers(compare: Callable[[float, float], bool]) -> Callable[[str, str], Truth]:
    def judged(left: str, right: str) -> Truth:
        try:
            return compare(float(left), float(right))
        except ValueError:
            return None

    return judged


def _versions(compare: Callable[[Version, Version], bool]) -> Callable[[str, str], Truth]:
    def judged(left: str, right: str) -> Truth:
        try:
            return compare(Version(left), Version(right))
        except InvalidVersion:
            return None

    return judged


COMPARE: dict[str, Callable[[str, str], Truth]] = {
    "STREQUAL": lambda left, right: left == right,
    "MATCHES": _matches,
    "EQUAL": _numbers(lambda a, b: a == b),
    "LESS": _numbers(lambda a, b: a < b),
    "GREATER": _numbers(lambda a, b: a > b),
    "LESS_EQUAL": _numbers(lambda a, b: a <= b),
    "GREATER_EQUAL": _numbers(lambda a, b: a >= b),
    "VERSION_EQUAL": _versions(lambda a, b: a == b),
    "VERSION_LESS": _versions(lambda a, b: a < b),
    "VERSION_GREATER": _versions(lambda a, b: a > b),
    "VERSION_LESS_EQUAL": _versions(lambda a, b: a <= b),
    "VERSION_GREATER_EQUAL": _versions(lambda a, b: a >= b),
    "IN_LIST": lambda left, right: left in right.split(";"),
    "STRLESS": lambda left, right: left < right,
    "STRGREATER": lambda left, right: left > right,
    "PATH_EQUAL": lambda left, right: left == right,
}
