"""Check, apply and reverse selected patches; nothing is ever half applied.

A check runs the whole sequence in a scratch copy of the files concerned, so patches that touch the
same file are proved together. Only then are the very same diffs applied to the tree, and the files'
hashes compared with those of the scratch copy.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cpubuild.errors import CpuBuildError, ExitCode, Problem
from cpubuild.patching import diff as diffs
from cpubuild.patching import edits, git, series
from cpubuild.patching.model import (
    Applied,
    Checked,
    Edit,
    Outcome,
    Patch,
    Selected,
    Touched,
)
from cpubuild.patching.predicate import in_releases

ABSENT = "absent"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scratch:
    """A copy, made file by file on first use, of the part of ``tree`` that patches touch."""

    tree: Path
    root: Path

    def bring(self, path: str) -> Path:
        """Copy ``path`` here unless it is here; where it is, whether or not it exists."""
        target = self.root / path
        if not target.exists() and (self.tree / path).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.tree / path, target)
        return target

    def read(self, path: str) -> str | None:
        """The text of ``path`` as it is now, after the patches so far."""
        here = self.root / path
        source = here if here.is_file() else self.tree / path
        return git.decode(source.read_bytes()) if source.is_file() else None

    def glob(self, pattern: str) -> tuple[str, ...]:
        """The files of the tree that match ``pattern``, sorted."""
        found = (p for p in self.tree.glob(pattern) if p.is_file())
        return tuple(sorted(p.relative_to(self.tree).as_posix() for p in found))


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One diff to apply (``change``), or why there is none (``already``, ``absent``)."""

    state: str
    source: str
    diff: str = ""
    expected: str = ""


def check(tree: Path, selected: Sequence[Selected]) -> tuple[Checked, ...]:
    """Say for each patch whether it applies, is applied already, or has nothing to do here.

    Changes nothing. Raises one PATCH error that lists every patch that does not fit, with file,
    hunk and remedy.
    """
    checked: list[Checked] = []
    problems: list[Problem] = []
    tail: list[str] = []
    with tempfile.TemporaryDirectory(prefix="cpubuild-patching-") as root:
        scratch = Scratch(tree=tree, root=Path(root))
        for one in selected:
            try:
                checked.append(_check_one(scratch, one))
            except CpuBuildError as error:
                problems += error.problems
                tail += error.tail
    if problems:
        raise CpuBuildError(*problems, tail=tuple(tail))
    return tuple(checked)


def apply(tree: Path, selected: Sequence[Selected]) -> tuple[Applied, ...]:
    """Apply ``selected`` to ``tree`` and return the record that ``reverse`` needs.

    A patch that the tree holds already stays as it is, and its record says so. On any failure the
    patches applied so far are reversed and the error is raised.
    """
    done: list[Applied] = []
    try:
        for one in check(tree, selected):
            record = Applied(
                id=one.id,
                outcome=one.outcome,
                reason=one.reason,
                source=one.source,
                diff=one.diff,
                diff_sha256=digest(git.encode(one.diff)),
                files=one.files,
            )
            done.append(record)
            if one.outcome is Outcome.APPLIES:
                _really_apply(tree, record)
    except BaseException:
        if done and all(_hash(tree / t.path) == t.before for t in done[-1].files):
            done.pop()
        reverse(tree, done)
        raise
    return tuple(done)


def reverse(tree: Path, applied: Sequence[Applied]) -> None:
    """Undo the recorded patches, last first, byte for byte.

    Raises a PATCH error, before anything is undone, if a file is not as the record left it.
    """
    ours = [one for one in applied if one.outcome is Outcome.APPLIES]
    last = {touched.path: (one, touched.after) for one in ours for touched in one.files}
    changed = [
        _refusal(one.id, f"{path} was changed since the patch was applied; it is not reversed")
        for path, (one, after) in last.items()
        if _hash(tree / path) != after
    ]
    if changed:
        raise CpuBuildError(*changed)
    for one in reversed(ours):
        finished = git.apply(tree, one.diff, reverse=True)
        wrong = [t.path for t in one.files if _hash(tree / t.path) != t.before]
        if not finished.ok or wrong:
            what = f"{', '.join(wrong) or 'the diff'} cannot be reversed"
            raise CpuBuildError(_refusal(one.id, what, why=finished.stderr.strip()))


def digest(data: bytes) -> str:
    """The hex sha256 of ``data``."""
    return hashlib.sha256(data).hexdigest()


def _check_one(scratch: Scratch, selected: Selected) -> Checked:
    patch = selected.patch
    steps: list[Step] = []
    before: dict[str, str] = {}
    for edit in patch.edits:
        if edit.releases and not in_releases(edit.releases, selected.release.version):
            continue
        step = _step(scratch, edit, selected)
        if step.state == ABSENT and patch.absent == "refuse":
            raise CpuBuildError(series.refusal(patch, step.expected))
        if step.diff:
            for path in diffs.paths(step.diff):
                before.setdefault(path, _hash(scratch.bring(path)))
            _apply_in_scratch(scratch, step, patch)
        steps.append(step)
    files = tuple(
        Touched(path=path, before=old, after=_hash(scratch.root / path))
        for path, old in before.items()
    )
    return Checked(
        id=patch.id,
        outcome=_outcome(steps),
        reason=selected.reason,
        source=", ".join(dict.fromkeys(step.source for step in steps)),
        diff="".join(step.diff for step in steps),
        files=files,
    )


def _outcome(steps: Iterable[Step]) -> Outcome:
    states = {step.state for step in steps}
    if "change" in states:
        return Outcome.APPLIES
    return Outcome.ALREADY if "already" in states else Outcome.NOT_NEEDED


def _step(scratch: Scratch, edit: Edit, selected: Selected) -> Step:
    if edit.file is not None:
        return _static(scratch, edit.file, selected.patch)
    rendered = edits.render(edits.Request(edit=edit, selected=selected, tree=scratch))
    return Step(
        state=rendered.state,
        source=f"generated ({edit.kind})",
        diff=diffs.unified(rendered.changes),
        expected=rendered.expected,
    )


def _static(scratch: Scratch, file: str, patch: Patch) -> Step:
    text = git.decode((series.folder() / file).read_bytes())
    for path in diffs.paths(text):
        scratch.bring(path)
    forward = git.apply(scratch.root, text, check=True)
    if forward.ok:
        return Step(state="change", source=file, diff=text)
    if git.apply(scratch.root, text, check=True, reverse=True).ok:
        return Step(state="already", source=file)
    named, line = git.conflict(forward)
    found = diffs.hunk(text, named, line) if named and line else ()
    where = f"{named}, hunk at line {line}" if line else f"{named}: no such file"
    problem = series.refusal(patch, f"{file} does not apply to {where}")
    raise CpuBuildError(problem, tail=found)


def _apply_in_scratch(scratch: Scratch, step: Step, patch: Patch) -> None:
    finished = git.apply(scratch.root, step.diff)
    if not finished.ok:
        path, line = git.conflict(finished)
        what = f"the diff made for {path} does not apply (hunk at line {line})"
        raise CpuBuildError(series.refusal(patch, what, why=finished.stderr.strip()))


def _really_apply(tree: Path, record: Applied) -> None:
    finished = git.apply(tree, record.diff)
    if not finished.ok:
        raise CpuBuildError(
            _refusal(record.id, "git could not apply it", why=finished.stderr.strip())
        )
    wrong = [t.path for t in record.files if _hash(tree / t.path) != t.after]
    if wrong:
        git.apply(tree, record.diff, reverse=True)
        what = f"git reported success, but {', '.join(wrong)} is not what it must be"
        raise CpuBuildError(_refusal(record.id, what))


def _refusal(name: str, what: str, *, why: str = "") -> Problem:
    patch = next((p for p in series.load() if p.id == name), None)
    if patch is not None:
        return series.refusal(patch, what, why=why)
    return Problem(what=f"patch {name}: {what}", why=why, exit_code=ExitCode.PATCH)


def _hash(path: Path) -> str:
    return digest(path.read_bytes()) if path.is_file() else ""
