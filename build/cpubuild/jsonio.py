"""JSON in and out: one way to write a document atomically, one way to read it strictly."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from cpubuild.errors import ExitCode, fail


def plain(value: Any) -> Any:
    """Turn dataclasses, paths, enums, sets and tuples into what JSON knows; sets are sorted.

    A float that is no number becomes None: JSON has no word for it.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(plain(v) for v in value)
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def dumps(value: Any, *, ascii_only: bool = False) -> str:
    """Render ``value`` as indented JSON that ends in a newline and can be written as UTF-8.

    ``ascii_only`` escapes the rest, for a stream whose encoding is not known.
    """
    text = json.dumps(plain(value), indent=2, ensure_ascii=ascii_only, allow_nan=False) + "\n"
    # A file name need not be UTF-8; what stands for its bytes becomes JSON's own escape.
    return text.encode(errors="backslashreplace").decode()


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path``: it holds the old content or all of the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as sink:
            sink.write(text)
            sink.flush()
            os.fsync(sink.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write(path: Path, value: Any) -> None:
    """Write ``value`` as JSON, atomically."""
    write_text(path, dumps(value))


def read(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None if there is no such file, an error if it is not an object."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeError) as error:
        raise _damaged(path, str(error)) from error
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(value, dict):
        raise _damaged(path, f"it holds a {type(value).__name__}, not an object")
    return value


def _damaged(path: Path, reason: str) -> Exception:
    return fail(
        ExitCode.SETTINGS,
        f"{path} cannot be read: {reason}",
        why="it is one of this tool's own records",
        remedy=(f"rm {path}   # the next bootstrap writes it again",),
    )


def fingerprint(value: Any) -> str:
    """Hash a value by content: 64 hex digits of SHA-256 over its canonical JSON."""
    text = json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, as 64 hex digits."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
