"""Read the series: ``series.toml`` and the diffs that lie beside it."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cpubuild
from cpubuild.errors import ExitCode, Problem, fail
from cpubuild.patching.model import Edit, Patch

NEEDS = {
    "diff": ("file",),
    "substitute": ("path", "find", "replace"),
    "requirements": ("drop",),
    "host-target": (),
    "options": ("find",),
}


def folder() -> Path:
    """The series' folder: shipped inside the package, else the checkout's own."""
    package = Path(cpubuild.__file__).parent
    shipped = package / "_shipped" / "patches"
    return shipped if shipped.is_dir() else package.parents[1] / "patches"


def load(where: Path | None = None) -> tuple[Patch, ...]:
    """Read the series in its order; a mistake in it is a PATCH error that names every one."""
    return _load((where or folder()) / "series.toml")


@functools.cache
def _load(path: Path) -> tuple[Patch, ...]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise _unreadable(path, str(error)) from error
    patches = _structured(path, table)
    mistakes = list(_mistakes(patches, path.parent))
    if mistakes:
        raise _unreadable(path, "; ".join(mistakes))
    return patches


def _structured(path: Path, table: dict[str, Any]) -> tuple[Patch, ...]:
    import cattrs

    converter = cattrs.Converter(forbid_extra_keys=True)
    try:
        return converter.structure(table.get("patch"), tuple[Patch, ...])
    except Exception as error:
        raise _unreadable(path, "; ".join(cattrs.transform_error(error))) from error


def _mistakes(patches: tuple[Patch, ...], where: Path) -> Iterator[str]:
    ids = [p.id for p in patches]
    for name in sorted({i for i in ids if ids.count(i) > 1}):
        yield f"{name} appears twice"
    for patch in patches:
        if not (patch.when and patch.edits and patch.phases):
            yield f"{patch.id} has no phase, no predicate or no edit"
        for edit in patch.edits:
            yield from (f"{patch.id}: {m}" for m in _edit_mistakes(edit, where))


def _edit_mistakes(edit: Edit, where: Path) -> Iterator[str]:
    for key in NEEDS[edit.kind]:
        if not getattr(edit, key):
            yield f"a {edit.kind} edit needs {key}"
    if edit.file and not (where / edit.file).is_file():
        yield f"{edit.file} is not there"
    for pattern in filter(None, (edit.find, edit.done)):
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"{pattern!r} is not a regular expression: {error}"


def _unreadable(path: Path, reason: str) -> Exception:
    return fail(
        ExitCode.PATCH,
        f"{path} cannot be used: {reason}",
        why="The patch series says what a release needs on this host; none of it is guessed.",
        remedy=("Install the tool again, or take the file from its repository.",),
    )


def refusal(patch: Patch, what: str, *, why: str = "") -> Problem:
    """The PATCH problem that says what of ``patch`` does not fit the tree, and what to do."""
    return Problem(
        what=f"patch {patch.id}: {what}",
        why=why or patch.why,
        remedy=(
            "Start from an unchanged tree of this release (remove the work tree and run again).",
            f"If the release is newer than the series, choose an older one, or renew {patch.id} "
            f"in {folder() / 'series.toml'}.",
        ),
        exit_code=ExitCode.PATCH,
    )
