"""One pass over a log: which patterns match where, in bounded memory and linear time."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple

from cpubuild.diagnose.clean import Line, clean, shorten
from cpubuild.diagnose.familiar import Familiar
from cpubuild.diagnose.literals import Gate, gate_word, words_of
from cpubuild.diagnose.rules import LineKinds, Rule, load_line_kinds, load_rules

JOIN_LINES = 8
JOIN_CHARACTERS = 4_000
KEPT_HITS = 6
KINDS = ("noise", "wrapper", "success", "strong", "weak", "exit")
WRAP_LEAST = 50
WRAP_WIDTH = 70
KEPT_POSITIONS = 400

_STARTS = re.compile(
    r"\s*(?:CMake (?:Error|Warning|Deprecation)|Traceback |\[\d+/\d+\]|-- \S|In file included|"
    r"FAILED:|ninja:|Call Stack|"
    r"(?:ERROR|WARNING|INFO|DEBUG|error|warning|fatal|hint|E|W)(?::|\b \d\d-)|"
    r"File \"|Collecting |Downloading |Requirement |Building |Successfully |g?make(?:\[|:)|"
    r"\S+:\d+:\d+:|\S+:\d+: |collect2:|(?:\S*/)?ld: |c\+\+: |cc1plus: |g\+\+: |"
    r"[\w.]*(?:Error|Exception): )"
)
_HEADER = re.compile(r"\s*CMake Error")
_TIGHT = re.compile(r"[\w/]-$")
_OPEN = re.compile(
    r"(?:\$\?|symbol:|reference to|base 10:|No module named|file or directory:)\W{0,2}$"
)


class Physical(NamedTuple):
    """A line as it was read, with its number in its file and over all input."""

    raw: str
    number: int
    serial: int
    file: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """One match: the lines it spans and what its named groups captured."""

    lines: tuple[Line, ...]
    groups: dict[str, str]

    @property
    def serial(self) -> int:
        """Position of the match over all input."""
        return self.lines[0].serial


@dataclass(slots=True)
class Seen:
    """What is kept of one pattern: how often, where, the first hits, the last position."""

    count: int = 0
    last: int = -1
    hits: list[Hit] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT_POSITIONS))
    values: dict[str, set[str]] = field(default_factory=dict)

    def add(self, hit: Hit) -> None:
        """Take one hit into account."""
        self.again(hit.serial)
        if len(self.hits) < KEPT_HITS:
            self.hits.append(hit)
        for name, value in hit.groups.items():
            values = self.values.setdefault(name, set())
            if len(values) < KEPT_POSITIONS:
                values.add(value)

    def again(self, serial: int) -> None:
        """Take into account that the same was seen once more, at ``serial``."""
        self.count += 1
        self.last = serial
        if len(self.positions) < KEPT_POSITIONS:
            self.positions.append(serial)
        else:
            self.recent.append(serial)

    @property
    def where(self) -> list[int]:
        """Kept positions: the first and the last ones."""
        return [*self.positions, *self.recent]


Key = tuple[str, tuple[str, ...]]
"""A pattern and what a line must not match besides."""


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """One key in the index, the words every match of it holds, and the kind of line it tells."""

    key: Key
    words: tuple[str, ...]
    kind: str = ""


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a rule's pattern: case is ignored, white space is as written."""
    return re.compile(pattern, re.IGNORECASE)


class Knowledge:
    """The rules and kinds of lines, indexed by gate word."""

    def __init__(self, rules: tuple[Rule, ...], kinds: LineKinds) -> None:
        self.rules = rules
        self.kinds: dict[str, list[Entry]] = {}
        self.asked: dict[str, list[Entry]] = {}
        for kind in KINDS:
            for pattern in getattr(kinds, kind):
                self._add(self.kinds, (pattern, ()), kind)
        for key in dict.fromkeys(key for rule in rules for key in keys_of(rule)):
            self._add(self.asked, key, "")

    def _add(self, index: dict[str, list[Entry]], key: Key, kind: str) -> None:
        word = gate_word(key[0])
        if word is None:
            raise ValueError(f"pattern without a literal word: {key[0]}")
        index.setdefault(word, []).append(Entry(key, words_of(key[0]), kind))

    @property
    def patterns(self) -> Iterator[str]:
        """The patterns of all rules and kinds."""
        for index in (self.kinds, self.asked):
            yield from (entry.key[0] for entries in index.values() for entry in entries)

    @cached_property
    def gate(self) -> Gate:
        """The words of all patterns."""
        return Gate({*self.kinds, *self.asked})


def keys_of(rule: Rule) -> Iterator[Key]:
    """The keys a rule's matches ask for."""
    for match in rule.match:
        for pattern in (*match.any, *match.all, *match.near, *match.absent):
            yield pattern, match.unless


@cache
def knowledge() -> Knowledge:
    """The shipped rules, indexed once."""
    return Knowledge(load_rules(), load_line_kinds())


class Scan:
    """Feeds on lines; afterwards ``seen`` tells what matched and ``first`` the first error."""

    def __init__(self, known: Knowledge | None = None) -> None:
        self.known = known or knowledge()
        self.seen: dict[Key, Seen] = {}
        self.wrappers: list[Line] = []
        self.success = -1
        self.failed = Seen()
        self.statuses: dict[int, Line] = {}
        self.strong: list[Line] = []
        self.weak: list[Line] = []
        self.message: list[Line] = []
        self.serial = 0
        self._group: list[Line] = []
        self._words: list[frozenset[str]] = []
        self._lower: list[str] = []
        self._tails: dict[int, tuple[str, int]] = {}
        self._noise: Line | None = None
        self._familiar: Familiar[Seen] = Familiar(self.known.patterns)

    def feed(self, lines: Iterable[str], *, file: str | None = None) -> None:
        """Read lines (strings with or without their ends) of one file or stream.

        A line like one that was read before is only read again near lines that are new, where it
        may be part of a wrapped message.
        """
        self._close()
        passed: deque[Physical] = deque(maxlen=JOIN_LINES)
        careful = JOIN_LINES
        for number, raw in enumerate(_physical(lines), 1):
            self.serial += 1
            line = Physical(raw, number, self.serial, file)
            careful -= 1
            told = self._familiar.recall(raw) if careful < 0 else None
            if told is not None:
                for seen in told:
                    seen.again(self.serial)
                passed.append(line)
                continue
            if len(passed) == JOIN_LINES:
                self._close()
            for earlier in passed:
                self._read(earlier)
            passed.clear()
            told = self._read(line)
            if told is None:
                careful = JOIN_LINES
            else:
                self._familiar.learn(raw, told)
        self._close()

    def _read(self, line: Physical) -> tuple[Seen, ...] | None:
        """Read a line; what any like it would tell again, None where that cannot be said."""
        told = [
            self._take(piece)
            for piece in clean(line.raw, number=line.number, serial=line.serial, file=line.file)
        ]
        return told[0] if len(told) == 1 else None

    def _close(self) -> None:
        self._group, self._words, self._lower = [], [], []

    def _take(self, line: Line) -> tuple[Seen, ...] | None:
        self._tails.clear()
        if not line.text.strip():
            self._close()
            return ()
        if not (self._group and continues(self._group[-1], line)):
            self._close()
        elif len(self._group) >= JOIN_LINES:
            del self._group[0], self._words[0], self._lower[0]
        self._group.append(line)
        self._lower.append(line.text.lower())
        self._words.append(self.known.gate.words(self._lower[-1]))
        self._continue_message(line)
        if self._goes_on_with_noise(line):
            self._noise = line
            return ()
        words = frozenset().union(*self._words)
        if not words:
            return ()
        text = " ".join(self._lower)
        kinds = self._kinds(line, _entries(self.known.kinds, words, text))
        if "noise" in kinds:
            self._noise = line
            return ()
        same = not self._sort(line, kinds)
        told = [self.failed] if self.failed.last == line.serial else []
        return self._ask(_entries(self.known.asked, words, text), told, same=same)

    def _ask(
        self, entries: list[Entry], told: list[Seen], *, same: bool
    ) -> tuple[Seen, ...] | None:
        """Match the rules' patterns; what they saw, if all of it is ``same`` in a line like it."""
        for entry in entries:
            if hit := self._match(entry.key):
                seen = self.seen.setdefault(entry.key, Seen())
                seen.add(hit)
                told.append(seen)
                same = same and len(seen.hits) >= KEPT_HITS and len(hit.lines) == 1
                same = same and not hit.groups
        return tuple(told) if same else None

    def _goes_on_with_noise(self, line: Line) -> bool:
        """Whether ``line`` is the indented rest of a wrapped line that was noise."""
        after_noise = len(self._group) > 1 and self._group[-2] is self._noise
        return after_noise and line.indent > max(1, self._group[0].indent)

    def _continue_message(self, line: Line) -> None:
        """Follow the first error while it goes on over further lines (CMake's do)."""
        going_on = self.message and len(self._group) > 1 and self.message[-1] is self._group[-2]
        if going_on and len(self.message) < JOIN_LINES and _HEADER.match(self.message[0].text):
            self.message.append(line)

    def _match(self, key: Key) -> Hit | None:
        """A match that ends in the group's last line, alone or together with those before."""
        pattern = compiled(key[0])
        text = self._group[-1].text
        found, first = pattern.search(text), len(self._group) - 1
        while found is None and first > 0:
            first -= 1
            text, end = self._tail(first)
            found = next((m for m in pattern.finditer(text) if m.start() < end < m.end()), None)
        if found is None or any(compiled(u).search(text) for u in key[1]):
            return None
        groups = {k: v[:300] for k, v in found.groupdict().items() if v is not None}
        return Hit(lines=tuple(self._group[first:]), groups=groups)

    def _tail(self, first: int) -> tuple[str, int]:
        """The group's lines from ``first`` on as one text, and where the last of them starts."""
        if first not in self._tails:
            text, starts = joined(self._group[first:])
            self._tails[first] = ("", 0) if len(text) > JOIN_CHARACTERS else (text, starts[-1])
        return self._tails[first]

    def _kinds(self, line: Line, entries: list[Entry]) -> set[str]:
        """The kinds of line that this one is."""
        kinds: set[str] = set()
        for entry in entries:
            hit = None if entry.kind in kinds else self._match(entry.key)
            if hit is None:
                continue
            kinds.add(entry.kind)
            if entry.kind == "exit":
                self._status(hit.groups.get("status", ""), line)
        return kinds

    def _sort(self, line: Line, kinds: set[str]) -> bool:
        """Keep what a line is by its kinds; whether that told anything."""
        if "success" in kinds:
            self.success = line.serial
        kept = next((k for k in ("wrapper", "strong", "weak") if k in kinds), None)
        lines = {"wrapper": self.wrappers, "strong": self.strong, "weak": self.weak}
        if kept is not None:
            self.failed.again(line.serial)
        new = kept is not None and len(lines[kept]) < KEPT_HITS
        if kept is not None and new:
            lines[kept].append(line)
        if kept == "strong":
            self.message = self.message or [line]
        return new or bool(kinds & {"success", "exit"})

    def _status(self, status: str, line: Line) -> None:
        if status.lstrip("-").isdigit() and len(status) < 6 and int(status) != 0:
            self.statuses.setdefault(canonical(int(status)), line)


def _entries(index: dict[str, list[Entry]], words: frozenset[str], text: str) -> list[Entry]:
    """The entries whose words all occur in ``text``, by the ``words`` of the gate found there."""
    return [
        entry
        for word in words
        for entry in index.get(word, ())
        if all(other in text for other in entry.words)
    ]


def canonical(status: int) -> int:
    """A shell's 128+n for a signal as -n; other statuses unchanged."""
    return 128 - status if 128 < status <= 128 + 31 else status


def continues(before: Line, line: Line) -> bool:
    """Whether ``line`` may be the rest of a message wrapped after ``before``."""
    if _STARTS.match(line.text) or (line.level and not before.prefix.startswith(line.prefix)):
        return False
    if line.indent >= 2 and before.indent <= line.indent:
        return True
    width = len(before.raw)
    word = len(line.text.split(maxsplit=1)[0])
    wide = width >= WRAP_LEAST or width + 1 + word > WRAP_WIDTH
    return wide or bool(_TIGHT.search(before.text) or _OPEN.search(before.text))


def joined(group: list[Line]) -> tuple[str, list[int]]:
    """The group's lines as one text, wrapped ends mended, and where each line starts in it."""
    text = ""
    starts: list[int] = []
    for line in group:
        part = line.text.strip() if text else line.text
        if text and not _TIGHT.search(text):
            text += " "
        starts.append(len(text))
        text += part
    return text, starts


def _physical(lines: Iterable[str]) -> Iterator[str]:
    for item in lines:
        if "\n" not in item[:-1]:
            yield _shortened(item.rstrip("\n"))
        else:
            yield from map(_shortened, item.rstrip("\n").split("\n"))


def _shortened(line: str) -> str:
    return line if "\r" in line else shorten(line)
