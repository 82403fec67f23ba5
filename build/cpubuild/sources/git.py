"""Public git repositories: what they hold, asked in seconds, and one commit as a tree."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cpubuild import run
from cpubuild.errors import ExitCode
from cpubuild.sources.pipconfig import redact

SECONDS = 4.0
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteRefs:
    """What ``git ls-remote`` said: ``refs`` maps full names to commits, tags already peeled.

    ``reached`` is False when the repository did not answer or git is missing; ``detail`` says why.
    """

    repository: str
    reached: bool
    refs: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    detail: str = ""

    def commit(self, *names: str) -> str | None:
        """The commit of the first of ``names`` that exists."""
        known = dict(self.refs)
        return next((known[n] for n in names if n in known), None)


def git_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for git: never a prompt, and no repository but the one that is named."""
    env = dict(os.environ if environ is None else environ)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"):
        env.pop(name, None)
    return env | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=4",
        "LC_ALL": "C.UTF-8",
    }


def ls_remote(repository: str, *patterns: str, seconds: float = SECONDS) -> RemoteRefs:
    """Ask ``repository`` for the refs that match ``patterns`` (all of them when none is given)."""
    done = run.capture(
        ["git", "ls-remote", repository, *patterns], env=git_environment(), timeout=seconds
    )
    if done.ok:
        return RemoteRefs(
            repository=repository,
            reached=True,
            refs=parse_ls_remote(done.stdout),
            seconds=done.seconds,
        )
    return RemoteRefs(
        repository=repository,
        reached=False,
        seconds=done.seconds,
        detail=why_unreached(done.returncode, done.timed_out, done.stderr, seconds),
    )


def why_unreached(returncode: int, timed_out: bool, stderr: str, seconds: float) -> str:
    """Say in words why ``git ls-remote`` gave no answer."""
    if timed_out:
        return f"no answer within {seconds:g} s"
    if returncode == 127:
        return "git is not installed"
    lines = [line for line in stderr.splitlines() if line.strip()]
    fatal = next((line for line in lines if line.startswith("fatal:")), lines[-1] if lines else "")
    fatal = re.sub(r"^unable to access '[^']*': ", "", fatal.removeprefix("fatal: "))
    return redact(fatal) or f"git ended with status {returncode}"


def parse_ls_remote(text: str) -> tuple[tuple[str, str], ...]:
    """Read the lines ``commit<TAB>ref``; an annotated tag is replaced by the commit it names."""
    refs: dict[str, str] = {}
    for line in text.splitlines():
        commit, tab, name = line.partition("\t")
        if not tab or not COMMIT.fullmatch(commit):
            continue
        if name.endswith("^{}"):
            refs[name.removesuffix("^{}")] = commit
        else:
            refs.setdefault(name, commit)
    return tuple(refs.items())


def fetch_commit(
    repository: str, commit: str, tree: Path, *, tag: str | None = None, seconds: float = 900.0
) -> None:
    """Make ``tree`` (an empty folder) a shallow checkout of ``commit``, with ``tag`` if given.

    What was fetched is compared with ``commit``: a tag that has moved since is an error.
    """
    wanted = f"refs/tags/{tag}:refs/tags/{tag}" if tag else commit
    for argv in (
        ["git", "init", "--quiet", "."],
        ["git", "fetch", "--quiet", "--depth", "1", repository, wanted],
        ["git", "-c", "advice.detachedHead=false", "checkout", "--quiet", commit],
    ):
        done = run.capture(argv, cwd=tree, env=git_environment(), timeout=seconds)
        run.must(
            done,
            ExitCode.DOWNLOAD,
            f"{tag or commit} could not be fetched from {repository}",
            why="the sources are taken at exactly that commit",
        )


def describe(tree: Path) -> str | None:
    """What ``git describe --tags`` says of the checkout in ``tree``; None if it is none."""
    if not (tree / ".git").exists():
        return None
    done = run.capture(
        ["git", "describe", "--tags", "--always", "--match", "v[0-9]*"],
        cwd=tree,
        env=git_environment(),
        timeout=20,
    )
    return done.stdout.strip() or None if done.ok else None
