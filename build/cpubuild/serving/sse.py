"""Server-sent events: bytes as they come from the network, to the data of each event."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LINE_END = re.compile(rb"\r\n|\n|\r(?!$)")


def lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """The lines of a stream, wherever it was cut: inside a line, a letter or a line end."""
    left = b""
    for chunk in chunks:
        *whole, left = LINE_END.split(left + chunk)
        yield from (line.decode("utf-8", "replace") for line in whole)
    if left:
        yield left.rstrip(b"\r").decode("utf-8", "replace")


def events(chunks: Iterable[bytes]) -> Iterator[str]:
    """The data of each event; comments and other fields are left out.

    Source: the WHATWG HTML standard, section 9.2. An event that the end of the stream cut off is
    given out too: what it holds was sent.
    """
    data: list[str] = []
    for line in lines(chunks):
        if not line:
            if data:
                yield "\n".join(data)
            data = []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
    if data:
        yield "\n".join(data)
