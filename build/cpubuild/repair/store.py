"""Replace files so that they can be put back: the originals and a manifest come first.

The manifest names every path with the hash before and after, so that a change that was cut short
can be taken back as well as a whole one, and one that others touched since is not.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpubuild.errors import ExitCode, fail
from cpubuild.repair.proof import refuse

MANIFEST = "manifest.json"
ANY = "any"


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A file that becomes ``content`` (None: goes away); ``written_elsewhere``: by another program.

    A file that another program writes afterwards (bytecode) is put back whatever it holds then.
    """

    path: Path
    content: bytes | None
    written_elsewhere: bool = False


def folder_for(folder: Path, site: Path) -> Path:
    """Where the originals of one site-packages folder are kept."""
    key = hashlib.sha256(str(site).encode()).hexdigest()[:12]
    return folder / "repairs" / key


def digest(path: Path) -> str:
    """The sha256 of a file, empty when there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def keep(store: Path, changes: Sequence[Change], whole: Sequence[Path], said: str) -> None:
    """Copy what will change into ``store``, with the manifest; nothing else is touched.

    ``whole`` names folders that the changes make: they must hold nothing else when they are taken
    away. ``said`` is what the repair makes of the installation, in words.
    """
    if store.exists():
        raise refuse(
            f"{store} holds the originals of an earlier repair",
            "they would be lost; undo it first (repair --undo), or move that folder away",
        )
    rows = []
    try:
        (store / "original").mkdir(parents=True)
        for number, change in enumerate(changes):
            if change.path.is_file():
                shutil.copy2(change.path, store / "original" / str(number))
            after = "" if change.content is None else hashlib.sha256(change.content).hexdigest()
            rows.append(
                {
                    "path": str(change.path),
                    "before": digest(change.path),
                    "after": ANY if change.written_elsewhere else after,
                }
            )
        manifest = {"files": rows, "folders": [str(p) for p in whole], "said": said}
        (store / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    except OSError as error:
        shutil.rmtree(store, ignore_errors=True)
        raise fail(
            ExitCode.PREREQUISITE,
            f"cannot keep the originals in {store}: {error.strerror or error}",
            remedy=("run it as the owner of the environment",),
        ) from error


def carry_out(store: Path, changes: Sequence[Change]) -> None:
    """Make the changes, each file whole; on a failure everything is put back."""
    try:
        for change in changes:
            if change.content is None:
                change.path.unlink(missing_ok=True)
            else:
                place(change.path, change.content)
        for folder in {c.path.parent for c in changes if c.content is None}:
            remove_empty(folder)
    except OSError as error:
        restore(store)
        raise fail(
            ExitCode.PREREQUISITE,
            f"cannot write {error.filename}: {error.strerror or error}",
            why="repair replaces files in the environment; what was done is taken back",
            remedy=("run it as the owner of the environment",),
        ) from error


def place(path: Path, content: bytes) -> None:
    """Write a file whole; one that is linked from elsewhere (a cache) is left as it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".cpubuild-part")
    part.write_bytes(content)
    if path.exists():
        shutil.copymode(path, part)
    part.replace(path)


def remove_empty(folder: Path) -> None:
    """Remove a folder, and the folders in it, that hold no file."""
    for path in sorted(folder.rglob("*"), reverse=True) if folder.is_dir() else ():
        if path.is_dir():
            with contextlib.suppress(OSError):
                path.rmdir()
    with contextlib.suppress(OSError):
        folder.rmdir()


def read(store: Path) -> dict[str, Any]:
    """The manifest of a repair; raises when there is none."""
    try:
        manifest: dict[str, Any] = json.loads((store / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise fail(
            ExitCode.SETTINGS,
            "there is no repair to undo here",
            why=f"{store} holds no originals",
        ) from error
    return manifest


def changed_since(store: Path) -> tuple[str, ...]:
    """Files that are neither what the repair found nor what it left."""
    manifest = read(store)
    known = {row["path"] for row in manifest["files"]}
    off = [
        row["path"]
        for row in manifest["files"]
        if row["after"] != ANY and digest(Path(row["path"])) not in (row["before"], row["after"])
    ]
    added = [
        str(path)
        for folder in manifest["folders"]
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and str(path) not in known
    ]
    return (*off, *added)


def restore(store: Path) -> None:
    """Put every original back, byte for byte, take away what was new, drop the backup."""
    manifest = read(store)
    for number, row in enumerate(manifest["files"]):
        path, original = Path(row["path"]), store / "original" / str(number)
        if row["before"]:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(path.name + ".cpubuild-part")
            shutil.copy2(original, part)
            part.replace(path)
        elif path.is_file():
            path.unlink()
    for folder in manifest["folders"]:
        remove_empty(Path(folder))
    shutil.rmtree(store)
