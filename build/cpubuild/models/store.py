"""Models under the state root: one folder for each revision, with a receipt, listed and found."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpubuild import jsonio
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.models import names
from cpubuild.state import State, size_of
from cpubuild.verify import hub, modelfiles

RECEIPT = "model.json"
FILES = "files"
DEPTH = "*/*/*/*"
LOCAL = "local"
GET = (
    "cpubuild model get {}   # or a folder, or an archive; cpubuild model list shows what is known"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFile:
    """One file of a model as its receipt has it; ``sha256`` None: the hub named none."""

    path: str
    size: int
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """A model that is kept: ``entry`` holds its receipt, ``path`` its files.

    ``kind``: ``fetched`` and ``unpacked`` files are ours, ``linked`` ones lie in somebody's
    folder. ``revision`` is a commit, or for what came from here the key of its content.
    """

    entry: Path
    id: str
    hub: str
    revision: str
    kind: str
    source: str
    created: str
    size: int
    parameters: int
    dtype: str
    files: tuple[StoredFile, ...]

    @property
    def path(self) -> Path:
        """The folder of the model's files."""
        return self.entry / FILES

    def missing(self) -> tuple[str, ...]:
        """Files that are not there, or not as large as the receipt says."""
        return tuple(f.path for f in self.files if size_at(self.path / f.path) != f.size)

    def to_json(self) -> dict[str, Any]:
        """The model as the verb's documents show it."""
        shown = {n: getattr(self, n) for n in ("id", "hub", "revision", "kind", "source")}
        rest = {n: getattr(self, n) for n in ("created", "size", "parameters", "dtype")}
        return {**shown, **rest, "path": self.path, "whole": not self.missing()}


def size_at(path: Path) -> int | None:
    """The size of a file; None where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def place(state: State, hub_name: str, id_: str, revision: str) -> Path:
    """The folder of one revision of a model."""
    owner, _, name = id_.rpartition("/")
    return state.models / hub_name / (owner or LOCAL) / name / re.sub(r"[^\w.-]", "_", revision)


def read(receipt: Path) -> Stored | None:
    """A stored model by its receipt; None if there is none or it cannot be read as such."""
    try:
        kept = jsonio.read(receipt)
        if kept is None or kept.get("schema") != 1:
            return None
        texts = {
            n: str(kept[n]) for n in ("id", "hub", "revision", "kind", "source", "created", "dtype")
        }
        numbers = {n: int(kept[n]) for n in ("size", "parameters")}
        rows = tuple(StoredFile(**row) for row in kept["files"])
    except (CpuBuildError, KeyError, TypeError, ValueError):
        return None
    return Stored(entry=receipt.parent, files=rows, **texts, **numbers)  # type: ignore[arg-type]


def write(stored: Stored, entry: Path, extra: Mapping[str, Any]) -> None:
    """Write the receipt of a model into ``entry``, ``extra`` facts beside those it must have."""
    own = {n: getattr(stored, n) for n in ("id", "hub", "revision", "kind", "source", "created")}
    rest = {n: getattr(stored, n) for n in ("size", "parameters", "dtype", "files")}
    jsonio.write(entry / RECEIPT, {"schema": 1, **own, **rest, **extra})


def stored(state: State) -> tuple[Stored, ...]:
    """Every model that is kept, by id and age."""
    found = (read(path) for path in state.models.glob(f"{DEPTH}/{RECEIPT}"))
    return tuple(sorted((s for s in found if s), key=lambda s: (s.id.lower(), s.created)))


def damaged(state: State) -> tuple[Path, ...]:
    """Entries whose receipt cannot be read."""
    return tuple(p.parent for p in state.models.glob(f"{DEPTH}/{RECEIPT}") if read(p) is None)


def matching(name: str, state: State) -> tuple[Stored, ...]:
    """The stored models that a name means: id, short name, name alone, each with ``@revision``.

    Names are compared without regard to case; of a revision its beginning is enough.
    """
    wanted, _, revision = name.lower().partition("@")
    return tuple(
        s
        for s in stored(state)
        if wanted in (s.id.lower(), s.id.lower().rpartition("/")[2], f"{s.hub}/{s.id}".lower())
        and s.revision.lower().startswith(revision)
    )


def find(name: str, state: State, environ: Mapping[str, str]) -> Path:
    """The folder of a model's files: a folder as it is, a stored model, else a hub's cache.

    Of several revisions the one that was stored last. SETTINGS, with what there is and how to get
    it, if nothing is meant or what is meant is not whole.
    """
    path = Path(name).expanduser()
    if path.is_dir() and (path / "config.json").is_file():
        return Path(os.path.abspath(path))  # noqa: PTH100 - links stay as they are
    if kept := stored_path(name, state):
        return kept
    for cached in in_caches(name, environ):
        return cached
    if path.is_dir():
        raise fail(
            ExitCode.SETTINGS,
            f"{path} is no model's folder: it holds no config.json",
            remedy=(f"cpubuild model check {path}",),
        )
    raise not_there(name, state)


def stored_path(name: str, state: State) -> Path | None:
    """The folder of the stored model that a name means, None if it means none; not whole: SETTINGS.

    Of several revisions the one that was stored last. A folder of that name is not looked for.
    """
    kept = () if Path(name).expanduser().is_dir() else matching(name, state)
    if not kept:
        return None
    newest = max(kept, key=lambda s: s.created)
    if lost := newest.missing():
        raise not_whole(newest, lost)
    return newest.path


def in_caches(name: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Whole copies of a model in the hubs' own caches."""
    try:
        asked = names.reference(name)
    except CpuBuildError:
        return
    if asked.revision is None:
        found: Iterable[Path] = hub.in_caches(asked.id, environ)
        yield from (p for p in found if not modelfiles.problems(p)[0])


def not_whole(model: Stored, lost: tuple[str, ...]) -> CpuBuildError:
    """The error for a stored model that has lost files."""
    again = model.source if model.hub == LOCAL else f"{model.id} --revision {model.revision}"
    return fail(
        ExitCode.SETTINGS,
        f"{model.id} is not whole any more: {', '.join(lost[:3])} "
        f"{'is' if len(lost) == 1 else 'are'} not there or not as large as the receipt says",
        why=f"it lies in {model.path}",
        remedy=(f"cpubuild model rm {model.id}", f"cpubuild model get {again}"),
    )


def not_there(name: str, state: State) -> CpuBuildError:
    """The error for a name that is no model here."""
    have = sorted({s.id for s in stored(state)})
    try:
        reference: str | None = names.reference(name).id
    except CpuBuildError:
        reference = None
    return fail(
        ExitCode.SETTINGS,
        f"{name} is no folder here and no stored model",
        why="stored are: " + ", ".join(have)
        if have
        else f"no model is stored under {state.models}",
        remedy=(GET.format(reference or "qwen2.5-0.5b-instruct"),),
    )


def remove(model: Stored, state: State) -> int:
    """Remove a stored model; a linked folder stays as it is. Returns the bytes that were freed."""
    freed = 0 if model.path.is_symlink() else size_of(model.path)
    # The receipt first: without it the rest counts for nothing.
    (model.entry / RECEIPT).unlink(missing_ok=True)
    if model.path.is_symlink():
        model.path.unlink()
    shutil.rmtree(model.entry)
    for folder in model.entry.parents:
        if folder == state.models or any(folder.iterdir()):
            break
        folder.rmdir()
    return freed
