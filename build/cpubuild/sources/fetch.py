"""Downloads that resume, are checked by hash, and appear whole or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.sources.index import IndexFile
from cpubuild.sources.pipconfig import PipConfig, redact
from cpubuild.sources.session import limits, open_session, passing, reason, retried

if TYPE_CHECKING:
    import requests

Progress = Callable[[int, int | None], None]
CHUNK = 1 << 20
AGAIN = "run the same command again: finished downloads are kept, unfinished ones continue"


class TruncatedError(OSError):
    """The server ended the body before its announced length."""


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def cached(file: IndexFile, folder: Path, sha256: str | None = None) -> Path | None:
    """The file if it is here already, in the cache (``folder``) or as a local file; unchecked."""
    if file.path is not None:
        return file.path if file.path.is_file() else None
    digest = sha256 or file.sha256
    path = folder / (digest or _by_url(file)) / file.filename
    return path if path.is_file() else None


def download(
    file: IndexFile,
    folder: Path,
    sha256: str | None = None,
    *,
    config: PipConfig | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Return the file's path under ``folder``/<sha256>/, fetched if it is not there; hash checked.

    ``sha256`` beats the one the index gave. A local file is checked and returned where it lies.
    A partial download continues by Range; one whose hash is wrong, or that stays shorter than
    announced, is thrown away and named in a DOWNLOAD error. ``progress`` gets bytes so far and
    in all.
    """
    expected = sha256 or file.sha256
    here = cached(file, folder, expected)
    if here is not None:
        return _checked(here, file, expected)
    if file.path is not None:
        raise fail(ExitCode.DOWNLOAD, f"{file.path} is listed by {file.origin} but is not there")
    if offline:
        raise fail(
            ExitCode.DOWNLOAD,
            f"{file.filename} is not in the cache ({folder}) and this run is offline",
            remedy=("run once without --offline on a host that reaches the sources",),
        )
    config = config or PipConfig()
    partial = folder / "partial" / f"{expected or _by_url(file)}-{file.filename}"
    partial.parent.mkdir(parents=True, exist_ok=True)
    if expected is None:
        # Nothing would tell a wrong continuation from a right one.
        partial.unlink(missing_ok=True)
    _fetch(file, partial, config, progress)
    digest = file_sha256(partial)
    if expected is not None and digest != expected:
        partial.unlink()
        raise _wrong_hash(file, redact(file.url), expected, digest, "was thrown away")
    target = folder / (expected or _by_url(file)) / file.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    partial.replace(target)
    return target


def _fetch(file: IndexFile, partial: Path, config: PipConfig, progress: Progress | None) -> None:
    session = open_session(config)
    try:
        retried(
            config,
            lambda: _attempt(file, partial, session, config, progress),
            on=lambda error: isinstance(error, TruncatedError) or passing(error),
        )
    except TruncatedError as error:
        partial.unlink(missing_ok=True)
        raise _failed(file, f"{error}; it was thrown away") from error
    except OSError as error:
        kept = partial.stat().st_size if partial.exists() else 0
        note = f"; {kept} bytes are kept to continue from" if kept else ""
        raise _failed(file, reason(error) + note) from error
    finally:
        session.close()


def _attempt(
    file: IndexFile,
    partial: Path,
    session: requests.Session,
    config: PipConfig,
    progress: Progress | None,
) -> None:
    have = partial.stat().st_size if partial.exists() else 0
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with session.get(file.url, stream=True, timeout=limits(config), headers=headers) as answer:
        if answer.status_code == 416:
            # What lies here is as long as the file or longer: the hash decides, or a new start.
            if file.size == have:
                return
            partial.unlink(missing_ok=True)
            raise TruncatedError("the server refused to continue the download")
        answer.raise_for_status()
        if answer.status_code != 206 or not _continues(answer, have):
            have = 0
        total = _total(answer, have) or file.size
        have = _write(answer, partial, have, total, progress)
    if total is not None and have < total:
        raise TruncatedError(f"it ended after {have} of {total} bytes")


def _write(
    answer: requests.Response,
    partial: Path,
    have: int,
    total: int | None,
    progress: Progress | None,
) -> int:
    import requests

    with partial.open("ab" if have else "wb") as sink:
        try:
            for chunk in answer.iter_content(CHUNK):
                sink.write(chunk)
                have += len(chunk)
                if progress is not None:
                    progress(have, total)
        except requests.exceptions.ChunkedEncodingError as error:
            raise TruncatedError(f"it ended after {have} of {total or 'unknown'} bytes") from error
        sink.flush()
        os.fsync(sink.fileno())
    return have


def _continues(answer: requests.Response, have: int) -> bool:
    return answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")


def _total(answer: requests.Response, have: int) -> int | None:
    length = answer.headers.get("Content-Length", "")
    return have + int(length) if length.isdigit() else None


def _checked(path: Path, file: IndexFile, expected: str | None) -> Path:
    if expected is None:
        return path
    digest = file_sha256(path)
    if digest == expected:
        return path
    if file.path is None:
        path.unlink()
        raise _wrong_hash(file, str(path), expected, digest, "was thrown away")
    raise _wrong_hash(file, str(path), expected, digest, "is left as it is: it is not ours")


def _wrong_hash(file: IndexFile, where: str, expected: str, found: str, fate: str) -> CpuBuildError:
    return fail(
        ExitCode.DOWNLOAD,
        f"{file.filename} has the wrong content and {fate}: sha256 {found}, expected {expected}",
        why=f"it came from {where}; a file that differs from its published hash is never used",
        remedy=(AGAIN, "if it stays so, the mirror or a proxy changes the file: ask its owner"),
    )


def _failed(file: IndexFile, why: str) -> CpuBuildError:
    return fail(
        ExitCode.DOWNLOAD,
        f"{file.filename} could not be downloaded: {why}",
        why=f"it was to come from {redact(file.url)}",
        remedy=(AGAIN,),
    )


def _by_url(file: IndexFile) -> str:
    return "url-" + hashlib.sha256(file.url.encode()).hexdigest()
