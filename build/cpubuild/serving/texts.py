"""Text in and out in UTF-8, whatever the locale says."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from typing import Any


def argument(text: str) -> str:
    """A word of the command line as UTF-8; a locale may have read its bytes otherwise."""
    return os.fsencode(text).decode("utf-8", "replace")


def utf8_out() -> None:
    """Let stdout take every letter."""
    speak(sys.stdout)


def speak(stream: Any) -> None:
    """Let one stream be UTF-8, if it is one whose encoding can be set."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="replace")


def whole_stdin() -> str:
    """All of stdin, without the line end that a shell adds."""
    return "\n".join(stdin_lines())


def stdin_lines() -> Iterator[str]:
    """The lines of stdin as they come, without their ends."""
    if sys.stdin is None or sys.stdin.closed:
        return
    source = getattr(sys.stdin, "buffer", None)
    for line in source if source is not None else sys.stdin:
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
        yield text.rstrip("\r\n")


def is_terminal(stream: Any) -> bool:
    """Whether somebody sits there."""
    return stream is not None and not stream.closed and bool(stream.isatty())
