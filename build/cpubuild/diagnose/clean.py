"""Clean a log line by line: colour, prefixes of whatever carried it, boxes, typographic quotes.

A cleaned line keeps its number and its original text, so that evidence can be shown as it was.
Memory is bounded: a line longer than ``LINE_LIMIT`` characters loses its middle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from cpubuild.diagnose.languages import english

LINE_LIMIT = 16_384
PIECES_LIMIT = 2_000

_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)?"
    r"|\x1b[@-Z\\-_]|\x9b[0-?]*[ -/]*[@-~]"
)
_BARE_ANSI = re.compile(r"(?:\^\[|\u241b)?\[\d{1,3}(?:;\d{1,3}){0,4}m")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2060\ufeff]")
_QUOTES = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201a": "'",
        "\u201b": "'",
        "\u2032": "'",
        "\u00b4": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u201e": '"',
        "\u00a0": " ",
        "\u202f": " ",
        "\u2010": "-",
        "\u2011": "-",
        "\u2012": "-",
        "\u2013": "-",
        "\uff1a": ": ",
        "\t": "    ",
    }
)
_STAMP = r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_PREFIX = re.compile(
    "^(?:"
    + "|".join(
        (
            r"#\d{1,4} (?:\d{1,6}\.\d{1,3} )?",  # BuildKit, plain progress
            r"\d{1,6}\.\d{2,3} (?=\s*[^\s\d])(?!or \w)",  # BuildKit, excerpt of a failed step
            r"=> => # ",
            r"\[?" + _STAMP + r"\]?:? ?(?:std(?:out|err) [FP] )?",  # docker, kubectl, CI
            r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d "  # syslog, journal
            r"\S{1,80} [\w./@\\-]{1,80}(?:\[\d+\])?: ",
            r"\[ {0,9}\d{1,9}\.\d{3,6}\] ",  # kernel ring buffer
            r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ",  # dmesg -T
            r"\((?:[\w :.-]{1,60} )?pid=\d+(?:, ?ip=[\d.:a-f]+)?\) ?",  # vLLM and Ray workers
            r"\[(?:rank|Rank)\s?\d+\]:? ",
            r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d "
            r"(?:\[[\w./-]{1,120}:\d+\] ?|[\w./-]{1,120}:\d+\] ?)?",  # vLLM's own logger
            r"##\[(?:error|warning|group|endgroup|debug|command)\]",  # CI annotations
            r"::(?:error|warning|notice)[^:]{0,200}::",
            r"\[pod/[^\]]{1,200}\] ",
            r"[A-Za-z][\w.-]{0,60} {1,40}\| ",  # docker compose
            r"(?:> ?){1,3}(?=\S| )",  # quoted in a report
            r"(?:remote|stderr|stdout): ",
            r"==> [\w.-]{1,60}: {1,4}",  # packer
        )
    )
    + ")"
)
_BOX = re.compile(r"^(\s*)[│┃╎╭╰├└|](?:[─━]*[>▶╴]?)\s?")
_LEVEL = re.compile(r"(?<![A-Za-z])(DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One cleaned line: ``number`` counts from 1 in ``file``, ``serial`` over all input.

    ``raw`` is the original without terminal control sequences, ``text`` what is matched,
    ``level`` the level vLLM's logger gave it, "" when none did.
    """

    number: int
    serial: int
    raw: str
    text: str
    level: str = ""
    file: str | None = None

    @property
    def prefix(self) -> str:
        """What was taken off in front of the text."""
        return self.raw[: max(0, len(self.raw) - len(self.text))]

    @property
    def indent(self) -> int:
        """Columns of white space before the text."""
        return len(self.text) - len(self.text.lstrip())


def shorten(text: str) -> str:
    """Cut the middle out of a line longer than ``LINE_LIMIT`` characters."""
    if len(text) <= LINE_LIMIT:
        return text
    half = LINE_LIMIT // 2
    return text[:half] + " ... " + text[-half:]


def printable(text: str) -> str:
    """Return ``text`` without control sequences, safe to show on a terminal."""
    if "\x1b" in text or "\x9b" in text:
        text = _ANSI.sub("", text)
    if "m" in text and "[" in text:
        text = _BARE_ANSI.sub("", text)
    return _CONTROL.sub("", text)


def bare(text: str) -> tuple[str, str]:
    """Return the message inside one printable line and the level its logger gave it."""
    level = ""
    if found := _LEVEL.search(text[:120]):
        level = found[1]
    text = text.translate(_QUOTES)
    if text.startswith('{"log":'):
        text = _docker_json(text)
    for _ in range(6):
        shorter = _PREFIX.sub("", text, count=1)
        if shorter == text:
            break
        text = shorter
    text = english(text)
    for _ in range(3):
        shorter = _BOX.sub(r"\1", text, count=1)
        if shorter == text:
            break
        text = shorter
    return text.rstrip(), level


def clean(raw: str, *, number: int, serial: int, file: str | None = None) -> Iterator[Line]:
    """Yield the lines that one physical line holds (more than one when a bar redrew it)."""
    raw = raw.rstrip("\r\n")
    pieces = raw.split("\r", PIECES_LIMIT) if "\r" in raw else [raw]
    for piece in pieces:
        shown = printable(shorten(piece))
        if not shown.strip() and len(pieces) > 1:
            continue
        text, level = bare(shown)
        yield Line(
            number=number, serial=serial, raw=shown.rstrip(), text=text, level=level, file=file
        )


def _docker_json(text: str) -> str:
    try:
        loaded = json.loads(text)
    except ValueError:
        return text
    inner = loaded.get("log") if isinstance(loaded, dict) else None
    return printable(inner.translate(_QUOTES).rstrip("\r\n")) if isinstance(inner, str) else text
