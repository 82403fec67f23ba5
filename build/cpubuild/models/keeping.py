"""Put a model where it stays: in a folder beside its place first, moved there in one step."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cpubuild import jsonio
from cpubuild.errors import ExitCode, fail
from cpubuild.models import store
from cpubuild.models.hubs import HubFile
from cpubuild.models.judge import Judgement
from cpubuild.models.store import FILES, RECEIPT, Stored, StoredFile
from cpubuild.state import State, now, size_of

PARTIAL = ".partial"
WHAT = "what.json"
SPARE = 256 << 20


def partial(state: State, entry: Path) -> Path:
    """Where the files of ``entry`` are gathered before it is there."""
    key = "--".join(entry.relative_to(state.models).parts)
    return state.models / PARTIAL / key


@contextlib.contextmanager
def gathering(state: State, entry: Path, what: Mapping[str, Any]) -> Iterator[Path]:
    """Hold the folder that ``entry`` will become; BUSY at once if another run gathers the same.

    A stored model that is not whole any more goes back to it, so that only what is lost comes
    again.
    """
    from filelock import FileLock, Timeout

    state.own()
    work = partial(state, entry)
    work.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(work.with_name(work.name + ".lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise fail(
            ExitCode.BUSY,
            f"another run is getting {what['id']}",
            remedy=("wait for it to end and try again",),
        ) from error
    try:
        if entry.is_dir() and not work.exists():
            (entry / RECEIPT).unlink(missing_ok=True)
            entry.replace(work)
        (work / FILES).mkdir(parents=True, exist_ok=True)
        jsonio.write(work / WHAT, what)
        yield work
    finally:
        lock.release()


def unfinished(state: State) -> tuple[dict[str, Any], ...]:
    """What was begun and is not finished: id, hub, revision, the bytes that are there."""
    found = []
    for path in sorted(state.models.glob(f"{PARTIAL}/*/{WHAT}")):
        with contextlib.suppress(Exception):
            found.append({**(jsonio.read(path) or {}), "size": size_of(path.parent)})
    return tuple(found)


def need_room(where: Path, needed: int, have: int, name: str) -> None:
    """Raise PREREQUISITE unless the disk takes what is left of ``needed`` bytes, and some spare."""
    left = max(0, needed - have)
    free = shutil.disk_usage(where).free
    if left + SPARE > free:
        raise fail(
            ExitCode.PREREQUISITE,
            f"{name} needs {(left + SPARE) / 1e9:.2f} GB on the disk, {free / 1e9:.2f} GB are free",
            why=f"it is to lie in {where}",
            remedy=("make room (cpubuild clean, cpubuild model rm)", "give another --state"),
        )


def hashed(folder: Path, files: Sequence[HubFile]) -> tuple[StoredFile, ...]:
    """The files as the receipt has them, each with the sha256 that was announced or is now."""
    return tuple(
        StoredFile(
            path=f.path,
            size=(folder / f.path).stat().st_size,
            sha256=f.sha256 or jsonio.sha256_of(folder / f.path),
        )
        for f in files
    )


def settle(
    entry: Path,
    work: Path,
    judged: Judgement,
    *,
    files: Sequence[StoredFile],
    extra: Mapping[str, Any],
    **named: str,
) -> Stored:
    """Write the receipt and move the gathered folder to its place; ``named`` as in ``Stored``."""
    kept = {f.path for f in files}
    inside = work / FILES
    for path in () if inside.is_symlink() else list(inside.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)  # what the hub's client keeps for itself
        elif path.name not in kept:
            path.unlink()
    made = Stored(
        entry=entry,
        created=now(),
        size=judged.size,
        parameters=judged.parameters,
        dtype=judged.dtype,
        files=tuple(files),
        **named,
    )
    facts = {"architecture": judged.architecture, "context": judged.context}
    store.write(made, work, {**facts, **extra, "findings": judged.findings})
    (work / WHAT).unlink(missing_ok=True)
    entry.parent.mkdir(parents=True, exist_ok=True)
    if entry.exists():
        shutil.rmtree(entry)
    work.replace(entry)
    return made
