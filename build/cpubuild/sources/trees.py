"""Source trees in the cache: unpacked safely, named by their content, whole or not there."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cpubuild import ui
from cpubuild.errors import ExitCode, fail

# Only at the top: vLLM keeps requirement files in requirements/build.
IGNORED_AT_TOP = frozenset({".git", ".deps", "build", "dist"})
IGNORED = frozenset({"__pycache__"})
RECORD = "source.json"
SEAL = "tree.sha256"


def warn(text: str) -> None:
    """Say what was found wrong with a kept tree."""
    ui.say(f"{ui.mark('warn')} {text}")


def place(
    folder: Path,
    key: str,
    record: Mapping[str, object],
    fill: Callable[[Path], None],
    *,
    tell: Callable[[str], None] = warn,
) -> Path:
    """Return ``folder``/``key``/tree as ``fill`` made it in an empty folder, now or before.

    A tree that is not as it was made is made again, and ``tell`` hears why. The tree appears by
    one rename, with ``record`` and its fingerprint beside it; an interrupted run leaves nothing
    under ``key``.
    """
    home = folder / key
    tree = home / "tree"
    if home.is_dir():
        wrong = damage(home)
        if not wrong:
            return tree
        tell(f"{wrong}: it is made again from its download")
        record = _record_of(home) or record
    folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{key[:20]}-", dir=folder))
    try:
        work.chmod(0o755)
        (work / "tree").mkdir()
        fill(work / "tree")
        text = json.dumps(dict(record), indent=2, sort_keys=True)
        (work / RECORD).write_text(text + "\n", encoding="utf-8")
        (work / SEAL).write_text(tree_sha256(work / "tree") + "\n", encoding="utf-8")
        if home.is_dir() and not home.is_symlink():
            shutil.rmtree(home)
        else:
            home.unlink(missing_ok=True)
        work.replace(home)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return tree


def damage(home: Path) -> str:
    """Why the tree in ``home`` is not the one that was placed there; empty when it is.

    Every file is read: a tree of vLLM takes less than a second.
    """
    tree = home / "tree"
    if not tree.is_dir():
        return f"{tree} is gone"
    if _record_of(home) is None:
        return f"{home / RECORD} is gone or damaged"
    try:
        sealed = (home / SEAL).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        return f"{tree} was kept without a fingerprint"
    try:
        found = tree_sha256(tree)
    except OSError as error:
        return f"{error.filename or tree} cannot be read ({error.strerror})"
    return "" if found == sealed else f"{tree} has been changed since it was unpacked"


def records(folder: Path) -> Iterator[tuple[Path, dict[str, object]]]:
    """The trees under ``folder`` and what was recorded of each; a damaged record is passed over.

    The tree itself may be gone: :func:`place` makes it again.
    """
    for path in sorted(folder.glob(f"*/{RECORD}")):
        found = _record_of(path.parent)
        if found is not None:
            yield path.parent / "tree", found


def _record_of(home: Path) -> dict[str, object] | None:
    try:
        found = json.loads((home / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def unpack(archive: Path, tree: Path) -> None:
    """Unpack a tar archive with one top folder into ``tree``, without that folder.

    Members that would leave the tree, devices and absolute links are refused; a damaged archive
    is a DOWNLOAD error that names it.
    """
    inner = tree.with_name(tree.name + ".unpacked")
    inner.mkdir()
    try:
        with tarfile.open(archive) as source:
            _extract(source, inner)
        tops = list(inner.iterdir())
        root = tops[0] if len(tops) == 1 and tops[0].is_dir() else inner
        for child in root.iterdir():
            child.replace(tree / child.name)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise fail(
            ExitCode.DOWNLOAD,
            f"{archive.name} cannot be unpacked: {error}",
            why=f"the archive is {archive}",
            remedy=(f"rm {archive}", "run the same command again"),
        ) from error
    finally:
        shutil.rmtree(inner, ignore_errors=True)


def _extract(source: tarfile.TarFile, folder: Path) -> None:
    if hasattr(tarfile, "data_filter"):
        source.extractall(folder, filter="data")
        return
    # Python before 3.11.4 (Debian 12 has 3.11.2) knows no filters.
    for member in source.getmembers():
        plain_member(member)
        source.extract(member, folder)


def plain_member(member: tarfile.TarInfo) -> None:
    """Raise ValueError unless a member stays inside; make its owner and mode ordinary ones."""
    targets = [member.name]
    if member.issym():
        targets.append(posixpath.join(posixpath.dirname(member.name), member.linkname))
    elif member.islnk():
        targets.append(member.linkname)
    elif not (member.isreg() or member.isdir()):
        raise ValueError(f"{member.name} is neither file, folder nor link")
    absolute = member.name.startswith("/") or member.linkname.startswith("/")
    if absolute or any(posixpath.normpath(t).split("/")[0] == ".." for t in targets):
        raise ValueError(f"{member.name} would lie or point outside the tree")
    member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
    member.mode = (member.mode & 0o755) | (0o700 if member.isdir() else 0o600)


def copy_tree(source: Path, tree: Path) -> None:
    """Copy a local source tree without its version control, build products and caches."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        return {n for n in names if _left_out(Path(folder) == source, n)}

    shutil.copytree(source, tree, symlinks=True, dirs_exist_ok=True, ignore=ignored)


def _left_out(at_top: bool, name: str) -> bool:
    return name in IGNORED or (at_top and name in IGNORED_AT_TOP)


def tree_sha256(tree: Path) -> str:
    """A hash of names, contents, link targets and executable bits, as ``copy_tree`` would copy."""
    total = hashlib.sha256()
    for path in files(tree):
        name = path.relative_to(tree).as_posix()
        if path.is_symlink():
            kind, digest = "l", hashlib.sha256(str(path.readlink()).encode()).hexdigest()
        else:
            kind = "x" if os.access(path, os.X_OK) else "f"
            with path.open("rb") as source:
                digest = hashlib.file_digest(source, "sha256").hexdigest()
        total.update(f"{kind} {digest} {name}\n".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def files(tree: Path) -> list[Path]:
    """The files and links that belong to a source tree, sorted by name."""
    found: list[Path] = []
    for folder, folders, names in os.walk(tree):
        here = Path(folder)
        folders[:] = [n for n in folders if not _left_out(here == tree, n)]
        links = [n for n in folders if (here / n).is_symlink()]
        folders[:] = [n for n in folders if n not in links]
        found += [here / n for n in (*names, *links) if not _left_out(here == tree, n)]
    return sorted(p for p in found if p.is_symlink() or p.is_file())
