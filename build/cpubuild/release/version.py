"""The version of a tree: given, from its PKG-INFO, or from the git tag it is checked out at."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.version import InvalidVersion, Version

from cpubuild import run
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.release.files import read_text, unreadable

PKG_INFO = "PKG-INFO"
DESCRIBED = re.compile(r"v(?P<tag>[^-]+)-(?P<distance>\d+)-g(?P<commit>[0-9a-f]+)$")


def read_version(tree: Path, given: str | None) -> str:
    """The normalised version of ``tree``.

    A commit after a tag gets the version that setuptools-scm gives it by default: the next one,
    as a development release.
    """
    if given is not None:
        return _normal(given, "the given version")
    if (tree / PKG_INFO).is_file():
        text = read_text(tree, PKG_INFO, "a Version line")
        match = re.search(r"(?mi)^Version:[ \t]*(\S+)[ \t]*$", text.split("\n\n")[0])
        if match is None:
            raise unreadable(PKG_INFO, "there is no version", "a line 'Version: X.Y.Z'")
        return _normal(match[1], PKG_INFO)
    if (tree / ".git").exists():
        return _from_git(tree)
    raise _no_version(tree, "there is neither PKG-INFO nor .git")


def next_development(tag: str, distance: int, commit: str) -> str:
    """The version of the commit ``distance`` commits after ``tag``; ``tag`` itself at 0."""
    version = Version(tag)
    if distance == 0:
        return str(version)
    if version.pre is not None:
        label, number = version.pre
        base = ".".join(map(str, version.release)) + f"{label}{number + 1}"
    else:
        *front, last = version.release
        base = ".".join(map(str, [*front, last + 1]))
    return str(Version(f"{base}.dev{distance}+g{commit}"))


def _from_git(tree: Path) -> str:
    argv = ["git", "-C", str(tree), "describe", "--tags", "--long", "--match", "v[0-9]*"]
    done = run.capture(argv, timeout=30.0)
    match = DESCRIBED.match(done.stdout.strip())
    if not done.ok or match is None:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise _no_version(tree, f"git describe: {said[-1] if said else done.describe_end()}")
    try:
        return next_development(match["tag"], int(match["distance"]), match["commit"])
    except InvalidVersion:
        raise _no_version(tree, f"the tag v{match['tag']} is no version") from None


def _no_version(tree: Path, what: str) -> CpuBuildError:
    return fail(
        ExitCode.SETTINGS,
        f"{tree}: the version of this tree cannot be told: {what}",
        why="expected there: PKG-INFO of a release sdist, or a git checkout with its release tags",
        remedy=("fetch the tags: git fetch --tags", "or name the version with --vllm VERSION"),
    )


def _normal(version: str, where: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion:
        raise unreadable(where, f"{version!r} is no version", "a version such as 0.32.0") from None
