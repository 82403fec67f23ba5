"""A store in a folder: a disk that several hosts mount, or one host's users share."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cpubuild.wheelcache.manifest import KEY
from cpubuild.wheelcache.model import CHUNK, MANIFEST, Body, StoreError, Trouble

ABSENT = (errno.ENOENT, errno.ENOTDIR)
REFUSING = (errno.EACCES, errno.EPERM, errno.EROFS)
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderStore:
    """Files below ``root``, which must be there: a share that is not mounted is no empty cache."""

    root: Path
    writable: bool = False
    remote: bool = False

    @property
    def name(self) -> str:
        """The folder."""
        return str(self.root)

    def read(self, path: str, limit: int) -> bytes | None:
        """All bytes of a small file."""
        with self._open(path) as source:
            if source is None:
                return None
            try:
                data = source.read(limit + 1)
            except OSError as error:
                raise _trouble(error) from error
        if len(data) > limit:
            raise StoreError(Trouble.FAILED, f"{path} has more than {limit} bytes")
        return data

    @contextlib.contextmanager
    def stream(self, path: str, start: int) -> Iterator[Body | None]:
        """The bytes of a file from ``start`` on."""
        with self._open(path) as source:
            if source is None:
                yield None
                return
            source.seek(start)
            yield Body(start=start, chunks=_chunks(source))

    def write(self, path: str, content: bytes | Path, *, only_new: bool) -> bool:
        """Write beside the target, then give it its name in one step."""
        target = self.root / path
        self._present()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            beside = target.parent / f".{target.name}.{secrets.token_hex(6)}"
            try:
                # Not mkstemp: others of the team read the file, as the umask allows.
                with beside.open("xb") as sink:
                    _copy(content, sink)
                return _name(beside, target, only_new=only_new)
            finally:
                beside.unlink(missing_ok=True)
        except OSError as error:
            raise _trouble(error) from error

    def keys(self) -> tuple[str, ...]:
        """The folders that are named like a key and hold a manifest."""
        self._present()
        try:
            return tuple(
                sorted(
                    p.name
                    for p in self.root.iterdir()
                    if KEY.fullmatch(p.name) and (p / MANIFEST).is_file()
                )
            )
        except OSError as error:
            raise _trouble(error) from error

    def note(self, key: str) -> None:
        """Nothing to do: folders can be listed."""

    def close(self) -> None:
        """Nothing is held open."""

    @contextlib.contextmanager
    def _open(self, path: str) -> Iterator[BinaryIO | None]:
        try:
            # A FIFO that somebody put there must not hold the run.
            handle = os.open(self.root / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in ABSENT:
                self._present()
                yield None
                return
            raise _trouble(error) from error
        with os.fdopen(handle, "rb") as source:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise StoreError(Trouble.FAILED, f"{path} is not a file")
            yield source

    def _present(self) -> None:
        if not self.root.is_dir():
            raise StoreError(Trouble.UNREACHABLE, f"there is no folder {self.root}")


def _chunks(source: BinaryIO) -> Iterator[bytes]:
    try:
        while chunk := source.read(CHUNK):
            yield chunk
    except OSError as error:
        raise _trouble(error) from error


def _copy(content: bytes | Path, sink: BinaryIO) -> None:
    if isinstance(content, bytes):
        sink.write(content)
    else:
        with content.open("rb") as source:
            shutil.copyfileobj(source, sink, 1 << 20)
    sink.flush()
    os.fsync(sink.fileno())


def _name(beside: Path, target: Path, *, only_new: bool) -> bool:
    if not only_new:
        beside.replace(target)
        return True
    try:
        target.hardlink_to(beside)
    except FileExistsError:
        return False
    except OSError as error:
        # Some network file systems have no hard links: two writers at once, and the last one wins.
        if error.errno not in NO_LINKS:
            raise
        if target.exists():
            return False
        beside.replace(target)
    return True


def _trouble(error: OSError) -> StoreError:
    kind = Trouble.DENIED if error.errno in REFUSING else Trouble.UNREACHABLE
    return StoreError(kind, f"{error.strerror or error} ({error.filename})")
