"""Which files are logs, and their lines, read in bounded memory."""

from __future__ import annotations

import gzip
import stat
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, getincrementaldecoder
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

from cpubuild.diagnose.clean import LINE_LIMIT
from cpubuild.errors import ExitCode, fail

CHUNK = 4 * LINE_LIMIT
SNIFF = 4096
OPENED = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")
KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
NO_LOGS = frozenset(
    {
        ".json",
        ".sh",
        ".py",
        ".toml",
        ".yaml",
        ".yml",
        ".md",
        ".whl",
        ".so",
        ".o",
        ".a",
        ".zip",
        ".tar",
        ".xz",
        ".zst",
        ".diff",
        ".patch",
        ".cmake",
        ".ninja",
        ".safetensors",
    }
)


def log_files(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The files to read: those named, and in folders whatever looks like a log, by name."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = (p for p in sorted(path.rglob("*")) if p.suffix not in NO_LOGS)
            found += [p for p in inside if p.is_file() and _is_text(p)]
        elif path.exists():
            _refuse_endless(path)
            found.append(path)
        else:
            raise fail(
                ExitCode.SETTINGS,
                f"there is no {path}",
                why="a log to read must be a file or a folder",
                remedy=("name a file, a folder, or - for standard input",),
            )
    return tuple(dict.fromkeys(found))


def _refuse_endless(path: Path) -> None:
    """Raise a SETTINGS error for what is no file: reading it may never begin, or never end.

    A pipe that a shell has opened for ``<(COMMAND)`` is read.
    """
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return
    if stat.S_ISFIFO(mode) and str(path.absolute()).startswith(OPENED):
        return
    kind = next((name for is_it, name in KINDS if is_it(mode)), "no plain file")
    raise fail(
        ExitCode.SETTINGS,
        f"{path} is {kind}, and no log",
        why="reading it might never begin, or never end",
        remedy=("name a file or a folder", "COMMAND 2>&1 | cpubuild diagnose"),
    )


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file (plain or gzip; UTF-8, or UTF-16 with its mark) without decoding errors.

    A damaged gzip file ends where its damage begins; one that may not be read is a SETTINGS error.
    """
    try:
        with _open(path) as stream:
            yield from split_lines(stream)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return
    except OSError as error:
        raise fail(
            ExitCode.SETTINGS,
            f"cannot read {path}: {error.strerror or error}",
            remedy=("run as a user who may read it",),
        ) from error


def split_lines(stream: IO[bytes]) -> Iterator[str]:
    """Lines of a byte stream; one longer than ``CHUNK`` keeps its head and its tail."""
    start = stream.read(len(BOM_UTF16_LE))
    if start in {BOM_UTF16_LE, BOM_UTF16_BE}:
        yield from _utf16(stream, start)
        return
    while raw := start + stream.readline(CHUNK):
        start = b""
        if len(raw) >= CHUNK and not raw.endswith(b"\n"):
            raw += b" ... " + _rest(stream)
        yield raw.decode("utf-8", errors="replace").rstrip("\n")


def _utf16(stream: IO[bytes], mark: bytes) -> Iterator[str]:
    name = "utf-16-le" if mark == BOM_UTF16_LE else "utf-16-be"
    decoder = getincrementaldecoder(name)(errors="replace")
    rest = ""
    while raw := stream.read(CHUNK):
        *lines, rest = (rest + decoder.decode(raw)).split("\n")
        yield from lines
        rest = rest[-CHUNK:]
    if rest:
        yield rest


def _rest(stream: IO[bytes]) -> bytes:
    """The last bytes of a line too long to keep."""
    tail = b""
    while raw := stream.readline(CHUNK):
        tail = (tail + raw)[-CHUNK:]
        if raw.endswith(b"\n"):
            break
    return tail


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    return path.open("rb")


def _is_text(path: Path) -> bool:
    try:
        with _open(path) as stream:
            head = stream.read(SNIFF)
    except (OSError, EOFError, zlib.error):
        return False
    return head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or b"\0" not in head
