"""Patches of the series for an installed package: which of them fit, and the files they make."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.patching import Checked, Outcome, PatchContext, Selected, check, git, select
from cpubuild.release import Release
from cpubuild.release.known import known_release, known_versions
from cpubuild.repair.proof import refuse
from cpubuild.repair.store import Change

STATEMENT = "platform-cpu-statement"
VERSION = re.compile(r"^(?:__version__ = )?version = ['\"]([^'\"]+)['\"]", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitting:
    """Patches that apply, a sentence for each, and what of the series does not fit this package."""

    patches: tuple[Checked, ...]
    said: tuple[str, ...]


def version_of(document: Mapping[str, Any]) -> str | None:
    """The release of the installed files: the metadata's version, else the module's own."""
    if document["distributions"]:
        return str(document["distributions"][0]["version"])
    try:
        text = Path(document["module"]["origin"]).with_name("_version.py").read_text("utf-8")
    except OSError:
        return None
    match = VERSION.search(text)
    return match[1] if match else None


def release_of(version: str, arch: str) -> Release | None:
    """The recorded release, else the one before it under this version; None: older than all."""
    try:
        asked = Version(Version(version).public)
    except InvalidVersion:
        return None
    exact = known_release(str(asked), arch)
    if exact is not None:
        return exact
    before = [v for v in known_versions() if Version(v) <= asked]
    nearest = known_release(before[-1], arch) if before else None
    return replace(nearest, version=str(asked)) if nearest else None


def fitting(document: Mapping[str, Any], *, statement: bool) -> Fitting:
    """The patches that the installed files lack; ``statement``: the platform's is wanted too."""
    version, tree = version_of(document), tree_of(document)
    release = release_of(version, str(document["machine"])) if version else None
    if release is None:
        if statement:
            raise refuse("the release of these files is not known", "patches are made for releases")
        return Fitting(patches=(), said=())
    context = PatchContext(
        arch=str(document["machine"]),
        gcc_version=None,
        gcc_probe_ok=False,
        triton=(tree / "triton" / "backends" / "cpu").is_dir(),
    )
    chosen = [
        one
        for one in select(release, context, phase="installed")
        if statement or one.id != STATEMENT
    ]
    return which_fit(tree, chosen, needed=STATEMENT if statement else None)


def which_fit(tree: Path, chosen: Sequence[Selected], *, needed: str | None) -> Fitting:
    """Those that apply, proved together; one that does not fit is said, the needed one raises."""
    kept: list[Selected] = []
    result: tuple[Checked, ...] = ()
    said = []
    for one in chosen:
        try:
            result = check(tree, [*kept, one])
            kept.append(one)
        except CpuBuildError as error:
            if one.id == needed:
                raise refuse(str(error), "without a record only this patch could help") from error
            said.append(f"{one.id} does not fit these files and is left out: {error}")
    applying = tuple(c for c in result if c.outcome is Outcome.APPLIES)
    return Fitting(patches=applying, said=(*(f"patch {c.id}: {c.reason}" for c in applying), *said))


def tree_of(document: Mapping[str, Any]) -> Path:
    """The folder that holds the package vllm."""
    return Path(document["module"]["origin"]).parent.parent


def changes(tree: Path, patches: Sequence[Checked], tag: str) -> list[Change]:
    """The files as the patches leave them, and their bytecode, which must be made anew.

    ``tag`` is the interpreter's cache tag. Bytecode of other interpreters and levels goes away:
    Python makes it again when it needs it.
    """
    made = []
    for path, content in patched(tree, patches).items():
        source = tree / path
        if source.resolve() != tree.resolve() / path:
            raise refuse(
                f"{source} is a link to {source.resolve()}",
                "a repair would change the files of another environment",
            )
        made.append(Change(path=source, content=content))
        for cached in sorted((source.parent / "__pycache__").glob(f"{source.stem}.*.pyc")):
            again = cached.name == f"{source.stem}.{tag}.pyc"
            made.append(Change(path=cached, content=None, written_elsewhere=again))
    return made


def patched(tree: Path, patches: Sequence[Checked]) -> dict[str, bytes]:
    """The content of every file that the patches touch, made in a copy and held against hashes."""
    touched = {file.path: file.after for one in patches for file in one.files}
    with tempfile.TemporaryDirectory(prefix="cpubuild-repair-") as scratch:
        root = Path(scratch)
        for path in touched:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes((tree / path).read_bytes())
        for one in patches:
            git.apply(root, one.diff)
        contents = {path: (root / path).read_bytes() for path in touched}
    from cpubuild.patching.engine import digest

    wrong = [path for path, after in touched.items() if digest(contents[path]) != after]
    if wrong:
        raise fail(ExitCode.BUG, f"the patches left something else in {', '.join(wrong)}")
    return contents
