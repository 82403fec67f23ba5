"""Repair an installation, say what was done, and take it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpubuild.errors import ExitCode, fail
from cpubuild.repair import metadata, patches, proof, store
from cpubuild.repair.store import Change
from cpubuild.run import capture
from cpubuild.verify import identity
from cpubuild.verify.target import Target, interpreter

COMPILE_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Repair:
    """What was (or would be) done: the metadata folders and the versions, in words too.

    ``patches`` names those of the series that are applied to installed files. ``folder`` is the
    metadata folder after it, None where there is none.
    """

    changed: bool
    before: str
    after: str
    folder: str | None
    backup: str | None
    lines: tuple[str, ...]
    patches: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The result as one document."""
        return {
            "changed": self.changed,
            "before": self.before,
            "after": self.after,
            "folder": self.folder,
            "backup": self.backup,
            "patches": list(self.patches),
            "lines": list(self.lines),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What is to be done to one installation.

    ``version`` is what the metadata says afterwards, None where it stays without an answer and
    the package itself states that it is a CPU build.
    """

    site: Path
    changes: tuple[Change, ...]
    before: str
    version: str | None
    folder: Path | None
    whole: tuple[Path, ...]
    patches: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def after(self) -> str:
        """The installation after it, in words."""
        return (
            f"vllm {self.version}" if self.version else f"{self.before}, stated to be a CPU build"
        )


def repair(python: Path, *, folder: Path, dry_run: bool = False) -> Repair:
    """Make the vLLM of ``python`` recognisable and mend known defects; the backup is in ``folder``.

    Metadata is made true first. Where there is no record to start from, the package itself states
    that it is a CPU build. Patches of the series that the installed files lack are applied to
    them. Raises a VERIFY error, with nothing touched, for what cannot be made right this way.
    """
    target = Target(python=interpreter(python), folder=folder.absolute())
    document = ask(target)
    work = planned(document)
    if not work.changes:
        lines = (f"nothing to do: {work.before} is recognised", *work.lines)
        return Repair(
            changed=False,
            before=work.before,
            after=work.before,
            folder=str(work.folder) if work.folder else None,
            backup=None,
            lines=lines,
        )
    kept = store.folder_for(target.folder, work.site)
    if not dry_run:
        store.keep(kept, work.changes, work.whole, work.after)
        store.carry_out(kept, work.changes)
        renew_bytecode(target, kept, work.changes)
        confirm(target, kept, work)
    return Repair(
        changed=not dry_run,
        before=work.before,
        after=work.after,
        folder=str(work.folder) if work.folder else None,
        backup=str(kept),
        lines=(*work.lines, f"the originals are kept in {kept}"),
        patches=work.patches,
    )


def undo(python: Path, *, folder: Path) -> Repair:
    """Put back what ``repair`` replaced, byte for byte; raises when there is nothing to."""
    target = Target(python=interpreter(python), folder=folder.absolute())
    origin = ask(target)["module"]["origin"]
    kept = store.folder_for(target.folder, Path(origin).parent.parent if origin else Path())
    manifest = store.read(kept)
    changed = store.changed_since(kept)
    if changed:
        raise fail(
            ExitCode.VERIFY,
            f"{', '.join(changed[:5])} was changed after the repair",
            why="putting the old files back would undo that change too",
            remedy=(f"restore {kept / 'original'} by hand, or reinstall vllm",),
        )
    store.restore(kept)
    now = ask(target)
    after = spelled(identity.owner(now), now)
    return Repair(
        changed=True,
        before=str(manifest["said"]),
        after=after,
        folder=None,
        backup=None,
        lines=(f"{len(manifest['files'])} files are as they were: {after}",),
    )


def ask(target: Target) -> dict[str, Any]:
    """The identity document of the target."""
    target.prepare(fresh_caches=False)
    done, document = target.identity()
    if document is None:
        raise fail(
            ExitCode.VERIFY,
            f"{target.python} gave no answer: {done.describe_end()}",
            tail=tuple(done.stderr.splitlines()[-10:]),
        )
    return document


def spelled(dist: Mapping[str, Any] | None, document: Mapping[str, Any]) -> str:
    """An installation in words."""
    if dist is None:
        return f"vllm {patches.version_of(document) or ''} without metadata".replace("  ", " ")
    return f"{dist['name']} {dist['version']}"


def planned(document: Mapping[str, Any]) -> Work:
    """What an installation needs; the proof that it is a CPU build comes before any change."""
    recognised = "cpu" in str(document["version"]["value"] or "")
    dist = identity.owner(document) if recognised else proof.owner(document)
    recorded = proof.recorded(dist)
    if not document["module"]["origin"]:
        raise proof.refuse("the module vllm is not there", "a repair needs the files")
    fit = patches.fitting(document, statement=not recognised and not recorded)
    lines: tuple[str, ...] = fit.said
    if fit.patches or not recognised:
        library = proof.cpu_library(document)
        lines = (f"{library.name} is a CPU build, owned by {spelled(dist, document)}", *lines)
    tree = patches.tree_of(document)
    tag = str(document["python"]["cache_tag"])
    changes = patches.changes(tree, fit.patches, tag) if fit.patches else []
    old = Path(dist["folder"]) if dist is not None and recorded else None
    version = document["version"]["value"]
    new = old
    if old is not None and dist is not None and not recognised:
        version = metadata.cpu_version(dist["version"])
        new = old.with_name(metadata.folder_name(version))
        if new.exists():
            raise proof.refuse(f"{new} is there already", "its files would be mixed with new ones")
        lines = (*lines, f"{old.name} becomes {new.name}")
        changes += metadata.renamed(old, new, version, rows_of(changes, old.parent))
    elif old is not None and changes:
        changes += recorded_again(old, changes)
    elif not recognised:
        lines = (*lines, "there is no record: `vllm --version` stays without an answer")
    return Work(
        site=tree,
        changes=tuple(changes),
        before=spelled(dist, document),
        version=version,
        folder=new,
        whole=(new,) if new is not None and new != old else (),
        patches=tuple(c.id for c in fit.patches),
        lines=lines,
    )


def rows_of(changes: Sequence[Change], site: Path) -> dict[str, bytes | None]:
    """The changes as RECORD has paths; bytecode that will be written has no hash there."""
    return {
        c.path.relative_to(site).as_posix(): b"" if c.written_elsewhere else c.content
        for c in changes
        if c.path.is_relative_to(site)
    }


def recorded_again(folder: Path, changes: Sequence[Change]) -> list[Change]:
    """RECORD, true of the changed files."""
    path = folder / "RECORD"
    before = path.read_text(encoding="utf-8")
    after = metadata.record(before, rows_of(changes, folder.parent))
    return [Change(path=path, content=after.encode())] if after != before else []


def renew_bytecode(target: Target, kept: Path, changes: Sequence[Change]) -> None:
    """Compile the changed files whose bytecode there was, by the target's own interpreter."""
    cached = [c.path for c in changes if c.written_elsewhere]
    sources = [str(p.parent.parent / (p.name.split(".")[0] + ".py")) for p in cached]
    if not sources:
        return
    argv = [str(target.python), "-m", "py_compile", *sources]
    done = capture(argv, env=target.clean(), cwd=target.neutral, timeout=COMPILE_SECONDS)
    if not done.ok or not all(p.is_file() for p in cached):
        store.restore(kept)
        raise fail(
            ExitCode.VERIFY,
            f"the changed files do not compile, the repair was taken back: {done.describe_end()}",
            tail=tuple(done.stderr.splitlines()[-10:]),
        )


def confirm(target: Target, kept: Path, work: Work) -> None:
    """Ask the target again; put everything back when it does not see what it should."""
    if work.version is not None:
        seen = ask(target)["version"]["value"]
        good, said = seen == work.version, f"still reports {seen}"
    else:
        answer = target.run(("platform",), name="repaired")
        resolved = (answer.good("platform") or {}).get("resolved") or {}
        good = bool(resolved.get("is_cpu"))
        said = f"still takes {resolved.get('class')}"
    if good:
        return
    store.restore(kept)
    raise fail(
        ExitCode.VERIFY,
        f"the environment {said} after the repair, which was taken back",
        why="something else answers for vllm before this does",
    )
