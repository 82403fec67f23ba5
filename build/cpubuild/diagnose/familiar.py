"""Lines that differ only in their numbers are read once; their like tell the same.

Long logs repeat themselves: what a line told is kept by its shape, which is the line with every
digit as 0 and every long hexadecimal name gone. A pattern that asks for particular digits would
not see them in a shape, so whatever such a pattern may match is never kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cpubuild.diagnose.literals import Gate, words_of

Told = TypeVar("Told")

MOST_SHAPES = 50_000
LONGEST = 2_000
_ZEROS = str.maketrans("123456789", "000000000")
_HEX = re.compile(r"(?<![0-9A-Za-z])(?=[a-f]{0,40}[0-9])[0-9a-f]{8,64}(?![0-9A-Za-z])")
_NO_LITERAL = re.compile(r"\\d|\{\d*,?\d*\}|\(\?P<\w+>")


def shape_of(line: str) -> str:
    """The line with its digits as 0."""
    return line.translate(_ZEROS)


def wants_digits(pattern: str) -> bool:
    """Whether a pattern asks for particular digits."""
    return re.search(r"\d", _NO_LITERAL.sub("", pattern)) is not None


def any_digits(pattern: str) -> re.Pattern[str] | None:
    """The pattern with any digit for each that it asks for; None where that cannot be said.

    What it does not match, the pattern itself matches in no line of the same shape.
    """
    if re.search(r"[\^$]|\(\?[<!=]|\[[^\]]*[0-9]|\\[0-9x]", pattern.replace("(?P<", "(P")):
        return None
    text, last = "", 0
    for found in _NO_LITERAL.finditer(pattern):
        text += re.sub("[0-9]", "[0-9]", pattern[last : found.start()]) + found[0]
        last = found.end()
    text += re.sub("[0-9]", "[0-9]", pattern[last:])
    return re.compile(text, re.IGNORECASE)


Particular = tuple[tuple[str, ...], re.Pattern[str] | None]


@dataclass(slots=True)
class Familiar(Generic[Told]):
    """What lines told, by their shape, in bounded memory; ``patterns`` are all there are."""

    patterns: Iterable[str]
    _told: dict[int, tuple[Told, ...]] = field(default_factory=dict)
    _particular: dict[str, list[Particular]] = field(default_factory=dict)
    _gate: Gate = field(init=False)

    def __post_init__(self) -> None:
        """Keep the words, as a shape would show them, of patterns that ask for digits."""
        wanting = {p for p in self.patterns if wants_digits(p)}
        for pattern in wanting:
            first, *others = map(shape_of, words_of(pattern))
            self._particular.setdefault(first, []).append((tuple(others), any_digits(pattern)))
        self._gate = Gate(self._particular)

    def recall(self, line: str) -> tuple[Told, ...] | None:
        """What lines of this shape tell; None when none was read yet."""
        if len(line) > LONGEST:
            return None
        found = self._told.get(hash(shape_of(line)))
        if found is None:
            found = self._told.get(hash(shape_of(_HEX.sub("", line))))
        return found

    def learn(self, line: str, told: tuple[Told, ...]) -> None:
        """Keep what a line told, unless it may depend on its digits."""
        if len(line) > LONGEST:
            return
        if self._is_particular(line):
            return
        if len(self._told) >= MOST_SHAPES:
            self._told.clear()
        self._told[hash(shape_of(line))] = told
        self._told[hash(shape_of(_HEX.sub("", line)))] = told

    def _is_particular(self, line: str) -> bool:
        """Whether a pattern that asks for digits may match a line of this shape."""
        lower = shape_of(line).lower()
        return any(
            all(word in lower for word in others) and (not pattern or bool(pattern.search(line)))
            for first in self._gate.words(lower)
            for others, pattern in self._particular[first]
        )
