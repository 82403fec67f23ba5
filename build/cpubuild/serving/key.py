"""The API key of a server: given, or made once, and kept where only this user can read it."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from cpubuild.errors import CpuBuildError, ExitCode, fail

BYTES = 24
VARIABLE = "VLLM_API_KEY"


def given(text: str | None, path: str | None, environ: Mapping[str, str]) -> str | None:
    """The key that was asked for: option, file or ``VLLM_API_KEY``; None if none was."""
    if text is not None and path is not None:
        raise fail(
            ExitCode.SETTINGS,
            "--api-key and --api-key-file exclude each other",
            remedy=("leave one of them out; a file does not show in the list of processes",),
        )
    if text is not None:
        return checked(text, "--api-key")
    if path is not None:
        return read(Path(path).expanduser(), "--api-key-file")
    named = environ.get(VARIABLE)
    return checked(named, VARIABLE) if named else None


def checked(text: str, origin: str) -> str:
    """``text`` if it can stand in an HTTP header, else a SETTINGS error that does not show it."""
    key = text.strip()
    if key and all("!" <= letter <= "~" for letter in key):
        return key
    reason = "it holds blanks, control characters or other letters than ASCII" if key else "empty"
    raise fail(
        ExitCode.SETTINGS,
        f"{origin}: the key cannot be used: {reason}",
        why="a key is sent in a header of each request",
        remedy=("openssl rand -hex 24   # makes one that can",),
    )


def read(path: Path, origin: str) -> str:
    """The key in a file."""
    try:
        return checked(path.read_text(encoding="utf-8"), f"{origin} {path}")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise unreadable(path, origin, str(reason)) from error


def unreadable(path: Path, origin: str, reason: str) -> CpuBuildError:
    """The error for a key file that cannot be read."""
    return fail(
        ExitCode.SETTINGS,
        f"{origin} {path} cannot be read: {reason}",
        remedy=(f"ls -l {path}",),
    )


def kept(path: Path) -> str | None:
    """The key kept in ``path``; None if there is none that can be used. Its mode is put right."""
    try:
        if stat.S_IMODE(path.stat().st_mode) != 0o600:
            path.chmod(0o600)
        return checked(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeError, CpuBuildError):
        return None


def keep(path: Path, key: str) -> None:
    """Write the key; at no moment can another user read it, whatever the umask is."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as sink:
            os.fchmod(sink.fileno(), 0o600)
            sink.write(key + "\n")
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def settle(path: Path, asked: str | None) -> str:
    """The key a server gets: the one asked for, else the one kept, else a new one; kept then."""
    old = kept(path)
    key = asked or old or secrets.token_urlsafe(BYTES)
    if key != old:
        keep(path, key)
    return key
