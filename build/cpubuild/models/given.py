"""A model that is here already: a folder is checked and linked, an archive unpacked safely."""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from cpubuild import jsonio, ui
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.models import judge, keeping, store
from cpubuild.models.fetching import Got
from cpubuild.models.hubs import HubFile
from cpubuild.models.store import FILES, LOCAL, StoredFile
from cpubuild.sources.trees import plain_member
from cpubuild.state import State

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".zip")
UNPACKED = "unpacked"


def is_given(name: str) -> bool:
    """Whether a name means something on this disk: a folder, an archive, or a path in its form."""
    path = Path(name).expanduser()
    return path.exists() or name.startswith(("/", ".", "~")) or name.endswith(ARCHIVES)


def get(name: str, state: State, ask: judge.Ask | None) -> Got:
    """Register a folder or unpack an archive; SETTINGS if it is neither, VERIFY if it is bad."""
    path = Path(os.path.abspath(Path(name).expanduser()))  # noqa: PTH100 - links stay as they are
    if path.is_dir():
        return linked(path, state, ask)
    if path.is_file() and path.name.endswith(ARCHIVES):
        return from_archive(path, state, ask)
    raise fail(
        ExitCode.SETTINGS,
        f"{path} is no folder and no archive" if path.exists() else f"there is no {path}",
        remedy=(f"give a folder, or a file that ends in {', '.join(ARCHIVES)}",),
    )


def linked(folder: Path, state: State, ask: judge.Ask | None) -> Got:
    """Register a folder where it lies: nothing is copied, and nothing in it is touched."""
    judged = judge.judge(folder, ask=ask)
    judged.refuse(f"{folder} is not registered")
    files = contents(folder)
    entry, named = placed(state, folder.name, str(folder), "linked", files)
    kept = store.read(entry / store.RECEIPT)
    if kept is not None and not kept.missing():
        return Got(stored=kept, changed=False, judged=judged)
    with keeping.gathering(state, entry, named) as work:
        inside = work / FILES
        if inside.is_symlink():
            inside.unlink()
        elif inside.exists():
            shutil.rmtree(inside)
        inside.symlink_to(folder)
        done = keeping.settle(entry, work, judged, files=files, extra={}, **named)
    for old in store.stored(state):
        if old.kind == "linked" and old.source == str(folder) and old.entry != entry:
            store.remove(old, state)
    return Got(stored=done, changed=True, judged=judged)


def placed(
    state: State, name: str, source: str, kind: str, files: tuple[StoredFile, ...]
) -> tuple[Path, dict[str, str]]:
    """The place of a local model, named by its content and where it is from, and its names."""
    clean = re.sub(r"[^\w.-]", "_", name).lstrip(".") or "model"
    revision = jsonio.fingerprint([source if kind == "linked" else "", files])[:16]
    id_ = f"{LOCAL}/{clean}"
    named = {"id": id_, "hub": LOCAL, "revision": revision, "kind": kind, "source": source}
    return store.place(state, LOCAL, id_, revision), named


def contents(folder: Path) -> tuple[StoredFile, ...]:
    """The files of a model's folder, not those below it, with their hashes."""
    paths = sorted(p for p in folder.iterdir() if p.is_file())
    found = tuple(HubFile(path=p.name, size=None) for p in paths)
    return keeping.hashed(folder, found)


def from_archive(archive: Path, state: State, ask: judge.Ask | None) -> Got:
    """Unpack an archive beside the store, check what was in it, and move that to its place."""
    state.own()
    work = state.models / keeping.PARTIAL / f"{UNPACKED}-{jsonio.fingerprint(str(archive))[:16]}"
    shutil.rmtree(work, ignore_errors=True)
    try:
        with ui.Progress(f"unpack {archive.name}"), explained(archive):
            unpack(archive, work / "tree", state.models)
            model = model_in(work / "tree", archive)
            flat = flattened(model, work / "tree", work / "flat")
        judged = judge.judge(flat, ask=ask)
        judged.refuse(f"what {archive} holds is not stored")
        files = contents(flat)
        stem = re.sub(r"\.(tar(\.\w+)?|tgz|txz|zip)$", "", archive.name)
        name = model.name if model != work / "tree" else stem
        entry, named = placed(state, name, str(archive), "unpacked", files)
        kept = store.read(entry / store.RECEIPT)
        if kept is not None and not kept.missing():
            return Got(stored=kept, changed=False, judged=judged)
        with keeping.gathering(state, entry, named) as gathered:
            shutil.rmtree(gathered / FILES)
            flat.replace(gathered / FILES)
            done = keeping.settle(entry, gathered, judged, files=files, extra={}, **named)
        return Got(stored=done, changed=True, judged=judged)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def explained(archive: Path) -> Iterator[None]:
    """Turn what an archive's reader raises into a DOWNLOAD error that names the archive."""
    damage = (tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError, zlib.error)
    try:
        yield
    except CpuBuildError:
        raise
    except (*damage, NotImplementedError, RuntimeError, OSError) as error:
        raise fail(
            ExitCode.DOWNLOAD,
            f"{archive} cannot be unpacked: {error}",
            why="it is damaged, truncated, or holds what no archive of a model should",
            remedy=("copy or download the archive again",),
        ) from error


def unpack(archive: Path, tree: Path, disk: Path) -> None:
    """Unpack an archive into ``tree``; ValueError for a member that would leave it."""
    tree.mkdir(parents=True)
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as packed:
            rows = packed.infolist()
            keeping.need_room(disk, sum(r.file_size for r in rows), 0, archive.name)
            for row in rows:
                inside(row.filename)
            for row in rows:
                packed.extract(row, tree)
        return
    with tarfile.open(archive) as source:
        members = source.getmembers()
        keeping.need_room(disk, sum(m.size for m in members), 0, archive.name)
        for member in members:
            plain_member(member)
        extract: Callable[..., None] = source.extractall
        if hasattr(tarfile, "data_filter"):
            extract(tree, filter="data")
        else:
            extract(tree)


def inside(name: str) -> None:
    """Raise ValueError for a name that leads out of a folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", name):
        raise ValueError(f"{name} would lie outside the folder")


def model_in(tree: Path, archive: Path) -> Path:
    """The folder of the model in an unpacked archive: the one nearest to the top."""
    found = sorted(tree.rglob("config.json"), key=lambda p: (len(p.parts), str(p)))
    if not found:
        raise fail(
            ExitCode.VERIFY,
            f"{archive} holds no model: there is no config.json in it",
            remedy=("pack the folder that holds config.json, the tokenizer and *.safetensors",),
        )
    return found[0].parent


def flattened(model: Path, tree: Path, flat: Path) -> Path:
    """The model's files as plain files in a folder: a hub's cache packs links to blobs."""
    flat.mkdir()
    for path in sorted(p for p in model.iterdir() if p.is_file()):
        real = path.resolve()
        if not real.is_relative_to(tree.resolve()):
            raise ValueError(f"{path.name} leads out of the archive")
        os.link(real, flat / path.name)
    return flat
