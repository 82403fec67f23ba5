"""Get a model through git and git-lfs: one commit, resumed, held against the hashes git has."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cpubuild import run
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.models import failures, fetching, hubs, judge, keeping, names, store
from cpubuild.models.hubs import GIT, HubFile, Listing
from cpubuild.models.names import Reference
from cpubuild.models.store import FILES
from cpubuild.state import State

ADDRESS = re.compile(r"(https?|ssh|git|file)://\S+|[\w.-]+@[\w.-]+:\S+")
POINTER = re.compile(
    r"\Aversion https://git-lfs\.github\.com/spec/v1\n(?:ext-.*\n)*oid sha256:([0-9a-f]{64})\n"
    r"size (\d+)\n?\Z"
)
POINTER_LIMIT = 1024
REMOTE = "origin"
NETWORK = re.compile(
    r"resolve host|Connection (refused|timed out|reset)|unable to access|Could not connect"
    r"|Failed to connect|dial tcp|No route|timed out|early EOF|connection abort",
    re.IGNORECASE,
)
REFUSED = re.compile(r"\b40[13]\b|Authentication failed|could not read Username|Permission denied")
ABSENT = re.compile(r"not found|404|does not (appear to be|exist)", re.IGNORECASE)
INSTALL = (
    "apt-get install git git-lfs",
    "leave out --from git: the hub's own client needs neither",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Repository:
    """A repository by its address, as a working tree in ``folder``."""

    url: str
    asked: Reference
    folder: Path
    environ: Mapping[str, str]

    def git(self, *words: str, timeout: float = 600.0) -> str:
        """Run git; DOWNLOAD with its cause if it fails. Nothing of it is logged."""
        env = dict(self.environ) | {
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "LC_ALL": "C",
        }
        cwd = self.folder if self.folder.is_dir() else None
        done = run.capture(["git", *words], env=env, cwd=cwd, timeout=timeout)
        if done.ok:
            return done.stdout
        raise self.failed(done)

    def failed(self, done: run.Completed) -> CpuBuildError:
        """What git said, as the failure it means."""
        lines = [x for x in (done.stderr + done.stdout).splitlines() if x.strip()]
        said = " / ".join(lines[-3:]) or done.describe_end()
        kinds = (("gated", REFUSED), ("network", NETWORK), ("absent", ABSENT))
        kind = next((k for k, p in kinds if p.search("\n".join(lines))), "other")
        if "No space left" in done.stderr:
            kind = "space"
        error = {"kind": kind, "type": "git", "message": said}
        kept = hubs.bytes_in(self.folder) if self.folder.is_dir() else 0
        return failures.explained(error, GIT, self.asked, failures.redact(self.url), kept=kept)


def need_programs(environ: Mapping[str, str]) -> None:
    """Raise PREREQUISITE naming what is missing of git and git-lfs."""
    for words in (("git", "--version"), ("git", "lfs", "version")):
        if not run.capture(words, env=environ, timeout=60).ok:
            missing = "git-lfs" if "lfs" in words else "git"
            raise fail(
                ExitCode.PREREQUISITE,
                f"--from git needs {missing}, and it is not there",
                why="without git-lfs a clone holds pointers instead of weights",
                remedy=INSTALL,
            )


def address(name: str, revision: str | None, environ: Mapping[str, str]) -> tuple[str, Reference]:
    """The address of a repository and its id: a URL as it is, an id on Hugging Face."""
    if ADDRESS.fullmatch(name):
        parts = [re.sub(r"[^\w.-]", "_", p) for p in re.split(r"[/:]", name) if p]
        id_ = "/".join(parts[-2:]).removesuffix(".git")
        return name, Reference(id=id_, revision=revision)
    asked = names.reference(name)
    asked = Reference(id=asked.id, revision=revision or asked.revision)
    return f"{hubs.endpoint(hubs.HF, environ)}/{asked.id}", asked


def from_git(
    name: str,
    revision: str | None,
    state: State,
    environ: Mapping[str, str],
    ask: judge.Ask | None,
    *,
    offline: bool,
) -> fetching.Got:
    """Get a model by ``git fetch`` of one commit and ``git lfs pull`` of its large files."""
    url, asked = address(name, revision, environ)
    if found := fetching.stored_already(asked, GIT, state, offline=offline):
        return found
    if offline and not url.startswith("file:"):
        raise failures.offline(asked.id, failures.redact(url), GIT)
    need_programs(environ)
    remote = Repository(url=url, asked=asked, folder=Path(), environ=environ)
    commit = commit_of(remote)
    entry = store.place(state, GIT, asked.id, commit)
    kept = store.read(entry / store.RECEIPT)
    if kept is not None and not kept.missing():
        return fetching.Got(stored=kept, changed=False)
    named = {"id": asked.id, "hub": GIT, "revision": commit}
    with keeping.gathering(state, entry, named) as work:
        files = work / FILES
        tree = Repository(url=url, asked=asked, folder=files, environ=environ)
        listing = check_out(tree, commit)
        # git-lfs keeps each file in .git too until the model is stored.
        keeping.need_room(files, 2 * listing.size, hubs.bytes_in(files), asked.id)
        with fetching.watched(f"{asked.id} by git", files / ".git", listing.size):
            include = ",".join(f.path for f in listing.files)
            tree.git("lfs", "pull", REMOTE, "--include", include, timeout=hubs.FETCH_SECONDS)
        fetching.compare(files, listing)
        judged = judge.judge(files, ask=ask)
        judged.refuse(f"{asked.id} came as the repository has it and is not stored")
        shutil.rmtree(files / ".git")
        stored = keeping.settle(
            entry,
            work,
            judged,
            files=keeping.hashed(files, listing.files),
            extra={"endpoint": failures.redact(url), "asked": asked.revision},
            kind="fetched",
            source=failures.redact(url),
            **named,
        )
    return fetching.Got(stored=stored, changed=True, judged=judged)


def commit_of(remote: Repository) -> str:
    """The commit that the revision (a branch, a tag, a commit; else HEAD) names there."""
    wanted = remote.asked.revision or "HEAD"
    if fetching.COMMIT.fullmatch(wanted):
        return wanted
    rows = [row.split() for row in remote.git("ls-remote", remote.url).splitlines()]
    refs = {name: commit for commit, name in rows}
    forms = (wanted, f"refs/heads/{wanted}", f"refs/tags/{wanted}^{{}}", f"refs/tags/{wanted}")
    commit = next((refs[form] for form in forms if form in refs), None)
    if commit is None:
        error = {"kind": "revision", "type": "git", "message": f"no ref {wanted}"}
        raise failures.explained(error, GIT, remote.asked, failures.redact(remote.url))
    return commit


def check_out(tree: Repository, commit: str) -> Listing:
    """The working tree of one commit with pointers for its large files; what it holds."""
    if not (tree.folder / ".git").is_dir():
        for path in tree.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        tree.git("init", "--quiet")
        tree.git("remote", "add", REMOTE, tree.url)
        tree.git("lfs", "install", "--local", "--skip-repo")
    # git-lfs derives from the remote where the large files are.
    tree.git("remote", "set-url", REMOTE, tree.url)
    tree.git("fetch", "--quiet", "--depth", "1", REMOTE, commit, timeout=hubs.FETCH_SECONDS)
    tree.git("checkout", "--quiet", "--force", "FETCH_HEAD")
    found = tuple(listed(tree))
    return Listing(
        hub=GIT,
        id=tree.asked.id,
        endpoint=tree.url,
        asked=tree.asked.revision,
        commit=commit,
        files=hubs.wanted(found, tree.asked),
    )


def listed(tree: Repository) -> Sequence[HubFile]:
    """The files of the commit: a large one by its pointer, a small one by git's own hash."""
    found = []
    for row in tree.git("ls-tree", "-r", "-l", "-z", "HEAD").split("\0"):
        facts, _, path = row.partition("\t")
        if not path:
            continue
        _, kind, sha1, size = facts.split()
        if kind != "blob":
            continue
        pointer = None
        if int(size) <= POINTER_LIMIT:
            pointer = POINTER.match(tree.git("cat-file", "blob", sha1))
        found.append(
            HubFile(path=path, size=int(pointer[2]), sha256=pointer[1])
            if pointer
            else HubFile(path=path, size=int(size), sha1=sha1)
        )
    return found
