"""Take a wheel from a shared cache: nothing is believed before it is verified."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from cpubuild import jsonio
from cpubuild.errors import ExitCode, fail
from cpubuild.sources.pipconfig import PipConfig
from cpubuild.sources.session import retried
from cpubuild.state import now
from cpubuild.wheelcache.manifest import Manifest, checked
from cpubuild.wheelcache.model import (
    MANIFEST,
    MANIFEST_LIMIT,
    SIGNATURE,
    SIGNATURE_LIMIT,
    Fetched,
    RefusalError,
    Refused,
    Store,
    StoreError,
    Trouble,
    from_store,
)
from cpubuild.wheelcache.trust import Trust

Progress = Callable[[int, int | None], None]

ORIGIN = "fetched.json"
PARTIAL = ".partial"
# A wheel that comes more slowly than this is compiled as fast.
SLOWEST_BYTES_PER_SECOND = 200_000
LEAST_SECONDS = 120.0


def fetch_wheel(
    store: Store,
    key: str,
    inputs: Mapping[str, Any],
    into: Path,
    trust: Trust,
    *,
    config: PipConfig | None = None,
    progress: Progress | None = None,
    seconds: float | None = None,
) -> Fetched | Refused | None:
    """Put the entry ``key`` of ``store`` at ``into`` (a wheel folder of the state root), or say no.

    None: the store has no such entry. ``inputs`` are the build's own (``Inputs.wheel``), and
    ``key`` the beginning of their fingerprint. ``seconds`` limits the wheel's download; without it
    the limit follows from its size. An unfinished download is kept and continued next time.
    """
    if not key or not jsonio.fingerprint(inputs).startswith(key):
        raise fail(ExitCode.BUG, f"{key!r} is not the key of the inputs that were given")
    started = time.monotonic()
    try:
        raw = store.read(f"{key}/{MANIFEST}", MANIFEST_LIMIT)
        if raw is None:
            return None
        digest = sha256(raw).hexdigest()
        beside = f"{key}/{digest}"
        authority = trust.authority(
            raw, lambda: store.read(f"{beside}/{SIGNATURE}", SIGNATURE_LIMIT)
        )
        manifest = checked(raw, key, inputs)
        partial = into.parent / PARTIAL / f"{manifest.sha256}.whl"
        bring = _Bringing(store, f"{beside}/{manifest.file}", partial, manifest, progress, seconds)
        bring.whole(config or PipConfig())
        _place(partial, into, manifest, raw, {"store": store.name, "authority": authority})
    except StoreError as error:
        return from_store(error).refused(store.name)
    except RefusalError as error:
        return error.refused(store.name)
    except OSError as error:
        text = f"{error.strerror or error} ({error.filename})"
        return RefusalError("local", text).refused(store.name)
    return Fetched(
        folder=into,
        wheel=into / manifest.file,
        store=store.name,
        authority=authority,
        manifest_sha256=digest,
        seconds=time.monotonic() - started,
    )


class _Bringing:
    """The download of one wheel: continued, bounded in bytes and time, checked by hash."""

    def __init__(
        self,
        store: Store,
        path: str,
        partial: Path,
        manifest: Manifest,
        progress: Progress | None,
        seconds: float | None,
    ) -> None:
        self.store, self.path, self.partial, self.manifest = store, path, partial, manifest
        self.progress = progress
        allowed = max(LEAST_SECONDS, manifest.size / SLOWEST_BYTES_PER_SECOND)
        self.deadline = time.monotonic() + (allowed if seconds is None else seconds)

    def whole(self, config: PipConfig) -> None:
        """Have the wheel at ``partial``; RefusalError if what came is not what was signed."""
        self.partial.parent.mkdir(parents=True, exist_ok=True)
        continued = self.partial.exists()
        if not self._try(config) and not (continued and self._try(config)):
            found = f"sha256 is not {self.manifest.sha256}, or not {self.manifest.size} bytes"
            raise RefusalError("damaged", f"{self.manifest.file}: {found}; it was thrown away")

    def _try(self, config: PipConfig) -> bool:
        retried(config, self._attempt, on=self._may_pass)
        size = self.partial.stat().st_size
        if size == self.manifest.size and jsonio.sha256_of(self.partial) == self.manifest.sha256:
            return True
        self.partial.unlink()
        return False

    def _may_pass(self, error: Exception) -> bool:
        passing = isinstance(error, StoreError) and error.trouble is Trouble.UNREACHABLE
        return passing and time.monotonic() < self.deadline

    def _attempt(self) -> None:
        have = self.partial.stat().st_size if self.partial.exists() else 0
        if have == self.manifest.size:
            return
        if have > self.manifest.size:
            self.partial.unlink()
            have = 0
        with self.store.stream(self.path, have) as body:
            if body is None:
                text = f"the manifest names {self.manifest.file}, which is not in the store"
                raise RefusalError("damaged", text)
            with self.partial.open("ab" if body.start else "wb") as sink:
                have = body.start
                for chunk in body.chunks:
                    have += len(chunk)
                    if have > self.manifest.size:
                        break
                    sink.write(chunk)
                    self._watch(have)
                sink.flush()
                os.fsync(sink.fileno())
        if have > self.manifest.size:
            self.partial.unlink()
            raise RefusalError(
                "damaged", f"{self.manifest.file} has more than {self.manifest.size} bytes"
            )
        if have < self.manifest.size:
            # A connection that broke is a StoreError; this is all the store has.
            self.partial.unlink()
            text = f"{self.manifest.file} has only {have} of {self.manifest.size} bytes"
            raise RefusalError("damaged", text)

    def _watch(self, have: int) -> None:
        if self.progress is not None:
            self.progress(have, self.manifest.size)
        if time.monotonic() > self.deadline:
            text = f"too slow: {have} of {self.manifest.size} bytes; they are kept to continue from"
            raise StoreError(Trouble.UNREACHABLE, text)


def _place(
    partial: Path, into: Path, manifest: Manifest, raw: bytes, origin: Mapping[str, str]
) -> None:
    """Fill a folder beside, then give it the entry's name; what lay there goes afterwards."""
    beside = Path(tempfile.mkdtemp(dir=partial.parent, prefix="placing-"))
    try:
        new, old = beside / "new", beside / "old"
        new.mkdir()
        partial.replace(new / manifest.file)
        (new / manifest.file).chmod(0o644)
        jsonio.write(new / ORIGIN, {**origin, "fetched": now()})
        jsonio.write_text(new / MANIFEST, raw.decode("ascii"))
        if into.exists():
            into.replace(old)
        try:
            new.replace(into)
        except OSError:
            if old.exists():
                old.replace(into)
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    with contextlib.suppress(OSError):
        partial.parent.rmdir()
