"""Choose the sources of vLLM and put them in the cache: git tag, else sdist, or a local path."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from packaging.version import InvalidVersion, Version

from cpubuild.errors import ExitCode, fail
from cpubuild.sources import Rejected, trees
from cpubuild.sources.fetch import Progress, download, file_sha256
from cpubuild.sources.git import COMMIT, SECONDS, describe, fetch_commit, ls_remote
from cpubuild.sources.index import IndexFile, Listing, listing, nothing_listed
from cpubuild.sources.pipconfig import PipConfig
from cpubuild.sources.vllm_errors import not_cached, refuse_ancient, unknown_ref, unknown_version

REPOSITORY = "https://github.com/vllm-project/vllm.git"
LATEST_LOOKS_AT = 40
Kind = Literal["git", "sdist", "path"]


@dataclass(frozen=True, kw_only=True, slots=True)
class VllmChoice:
    """Where one vLLM comes from.

    ``version`` is None when only the fetched tree can tell it. ``key`` names the content: the
    sdist's sha256, the commit, or the hash of a local tree. ``url`` is the repository or the
    file; ``path`` the local folder, archive, or (a ``file:`` index) sdist. ``warning`` says what
    was wrong with the tree that was kept of it.
    """

    spec: str
    kind: Kind
    key: str
    reason: str
    version: str | None = None
    ref: str | None = None
    commit: str | None = None
    url: str | None = None
    filename: str | None = None
    sha256: str | None = None
    size: int | None = None
    path: str | None = None
    warning: str | None = None
    rejected: tuple[Rejected, ...] = ()


def spec_kind(spec: str) -> Literal["latest", "version", "ref", "path"]:
    """What ``--vllm`` was given; a bare name is a path only if it cannot be a version."""
    if spec == "latest":
        return "latest"
    if spec.startswith(("/", "./", "../", "~")) or spec in (".", "..") or spec.endswith(".tar.gz"):
        return "path"
    if re.fullmatch(r"[0-9a-f]{7,40}", spec):
        return "ref"
    try:
        Version(spec)
    except InvalidVersion:
        return "path" if Path(spec).is_dir() else "ref"
    return "version"


def choose_vllm(
    spec: str,
    *,
    config: PipConfig,
    folder: Path,
    offline: bool = False,
    torch_pin_of: Callable[[str], str | None] | None = None,
    torch_available: Callable[[str], bool] | None = None,
    repository: str = REPOSITORY,
    seconds: float = SECONDS,
) -> VllmChoice:
    """Decide where the vLLM that ``spec`` names comes from; nothing big is downloaded.

    ``folder`` is the cache of trees: with ``offline`` only what lies there (or on a local index)
    is chosen. For ``latest``, ``torch_pin_of`` tells a version's torch (None: unknown) and
    ``torch_available`` whether its CPU build can be had here; without them every release counts.
    """
    kind = spec_kind(spec)
    if kind == "path":
        return _local(spec)
    if kind == "version":
        refuse_ancient(spec)
    if offline and kind != "version":
        kept = recorded(spec, folder)
        if kept is not None:
            return kept
        raise not_cached(spec, folder)
    if kind == "ref":
        return _git_ref(spec, repository, seconds)
    if kind == "latest":
        found = listing("vllm", config)
        version, passed = newest(found, torch_pin_of=torch_pin_of, torch_available=torch_available)
        chosen = _version(spec, version, found, repository, seconds)
        return replace(chosen, rejected=passed + chosen.rejected)
    if offline:
        kept = recorded(spec, folder) or _on_this_host(spec, config)
        if kept is None:
            raise not_cached(spec, folder)
        return kept
    return _version(spec, spec.removeprefix("v"), listing("vllm", config), repository, seconds)


def _on_this_host(spec: str, config: PipConfig) -> VllmChoice | None:
    release = listing("vllm", config, offline=True).find(spec)
    if release is None or release.sdist is None or release.sdist.path is None:
        return None
    return _sdist(spec, release.version, release.sdist, ())


def recorded(spec: str, folder: Path) -> VllmChoice | None:
    """The choice that was fetched for ``spec`` before, if its tree is still in the cache."""
    found: list[VllmChoice] = []
    for _, record in trees.records(folder):
        try:
            choice = VllmChoice(**(record | {"rejected": ()}))  # type: ignore[arg-type]
        except TypeError:
            continue
        named = spec in (choice.ref, choice.commit) or _same(spec, choice.version)
        if spec == choice.spec or (named and choice.kind != "path"):
            found.append(choice)
    if spec == "latest":
        found.sort(key=lambda c: Version(c.version or "0"))
    return replace(found[-1], reason=f"already in the cache; {found[-1].reason}") if found else None


def newest(
    found: Listing,
    *,
    torch_pin_of: Callable[[str], str | None] | None = None,
    torch_available: Callable[[str], bool] | None = None,
) -> tuple[str, tuple[Rejected, ...]]:
    """The newest final, not withdrawn release whose torch can be had; and those passed over."""
    passed: list[Rejected] = []
    for release in found.releases[:LATEST_LOOKS_AT]:
        name = f"vLLM {release.version}"
        version = Version(release.version)
        if version.is_prerelease or version.is_devrelease:
            passed.append(Rejected(what=name, why="it is a pre-release"))
        elif release.yanked:
            passed.append(Rejected(what=name, why="it was withdrawn by its makers"))
        elif release.sdist is None:
            passed.append(Rejected(what=name, why="the index has no source distribution of it"))
        elif torch_pin_of is None or torch_available is None:
            return release.version, tuple(passed)
        elif (pin := torch_pin_of(release.version)) is None:
            passed.append(Rejected(what=name, why="which torch it asks for could not be read"))
        elif not torch_available(pin):
            why = f"it asks for torch {pin}, whose CPU build cannot be had here"
            passed.append(Rejected(what=name, why=why))
        else:
            return release.version, tuple(passed)
    if not found.releases:
        raise nothing_listed(found)
    raise fail(
        ExitCode.DOWNLOAD,
        f"no vLLM release can be built here: {passed[0].what}: {passed[0].why} (and "
        f"{len(passed) - 1} more passed over)",
        why="`latest` means the newest release whose CPU torch can be had on this host",
        remedy=("name a version: --vllm VERSION", "make PyTorch's CPU index or a mirror reachable"),
    )


def _version(
    spec: str, version: str, found: Listing, repository: str, seconds: float
) -> VllmChoice:
    release = found.find(version)
    version = release.version if release is not None else version
    tag = "v" + version
    refs = ls_remote(repository, f"refs/tags/{tag}", f"refs/tags/{tag}^{{}}", seconds=seconds)
    commit = refs.commit(f"refs/tags/{tag}")
    if commit is not None:
        return VllmChoice(
            spec=spec,
            kind="git",
            key=commit,
            version=str(Version(version)),
            ref=tag,
            commit=commit,
            url=repository,
            reason=f"{repository} answered in {refs.seconds:.1f} s and has the tag {tag}",
        )
    why = f"it has no tag {tag}" if refs.reached else refs.detail
    rejected = (Rejected(what=repository, why=why), *found.failed)
    if release is not None and release.sdist is not None:
        return _sdist(spec, release.version, release.sdist, rejected)
    if not found.releases:
        raise nothing_listed(replace(found, failed=rejected))
    if release is not None:
        raise fail(
            ExitCode.DOWNLOAD,
            f"vLLM {version} has no source distribution on the index, and {repository}: {why}",
            remedy=("give its sources as a path: --vllm DIR",),
        )
    raise unknown_version(spec, tuple(r.version for r in found.releases))


def _sdist(spec: str, version: str, sdist: IndexFile, rejected: tuple[Rejected, ...]) -> VllmChoice:
    local = sdist.path
    sha256 = sdist.sha256 or (file_sha256(local) if local is not None else None)
    because = f"; not {rejected[0].what}: {rejected[0].why}" if rejected else ""
    return VllmChoice(
        spec=spec,
        kind="sdist",
        key=sha256 or f"vllm-{version}",
        version=version,
        url=sdist.url,
        filename=sdist.filename,
        sha256=sha256,
        size=sdist.size,
        path=str(local) if local is not None else None,
        reason=f"{sdist.filename} from {sdist.origin}"
        + (" with its sha256" if sha256 else ", which gives no hash")
        + because,
        rejected=rejected,
    )


def _git_ref(spec: str, repository: str, seconds: float) -> VllmChoice:
    refs = (
        ls_remote(repository, seconds=max(seconds, 20.0)) if _quick(repository, seconds) else None
    )
    if refs is None or not refs.reached:
        raise fail(
            ExitCode.DOWNLOAD,
            f"vLLM {spec} is a git ref and {repository} does not answer",
            why="only released versions can be had from a package index",
            remedy=("--vllm VERSION (see the package index)", "--vllm DIR (a checkout of yours)"),
        )
    commit = refs.commit(spec, f"refs/tags/{spec}", f"refs/heads/{spec}")
    if commit is None and re.fullmatch(r"[0-9a-f]{7,40}", spec):
        known = {c for _, c in refs.refs if c.startswith(spec)}
        commit = spec if COMMIT.fullmatch(spec) else known.pop() if len(known) == 1 else None
    if commit is None:
        raise unknown_ref(spec, refs)
    tag = spec if refs.commit(f"refs/tags/{spec}") else None
    return VllmChoice(
        spec=spec,
        kind="git",
        key=commit,
        version=_version_of(tag),
        ref=tag or spec,
        commit=commit,
        url=repository,
        reason=f"the git ref {spec} was asked for; {repository} has it as {commit[:12]}",
    )


def _quick(repository: str, seconds: float) -> bool:
    return ls_remote(repository, "HEAD", seconds=seconds).reached


def _local(spec: str) -> VllmChoice:
    path = Path(spec).expanduser().resolve()
    if path.is_dir() and ((path / "setup.py").is_file() or (path / "pyproject.toml").is_file()):
        said = describe(path) or _pkg_info(path)
        return VllmChoice(
            spec=spec,
            kind="path",
            key=trees.tree_sha256(path),
            version=_version_of(said),
            ref=said,
            path=str(path),
            reason=f"the folder {path} was asked for",
        )
    if path.is_file() and path.name.endswith(".tar.gz"):
        digest = file_sha256(path)
        match = re.fullmatch(r"vllm-(.+)\.tar\.gz", path.name)
        return VllmChoice(
            spec=spec,
            kind="path",
            key=digest,
            version=_version_of(match[1]) if match else None,
            filename=path.name,
            sha256=digest,
            size=path.stat().st_size,
            path=str(path),
            reason=f"the archive {path} was asked for",
        )
    what = "does not exist" if not path.exists() else "is neither a vLLM tree nor a .tar.gz of one"
    raise fail(
        ExitCode.SETTINGS,
        f"--vllm {spec}: {path} {what}",
        why="a folder must hold vLLM's setup.py, an archive must be its source distribution",
        remedy=("--vllm VERSION", "--vllm latest", "--vllm DIR"),
    )


def fetch_vllm(
    choice: VllmChoice,
    folder: Path,
    *,
    downloads: Path,
    config: PipConfig,
    offline: bool = False,
    progress: Progress | None = None,
    tell: Callable[[str], None] = trees.warn,
) -> Path:
    """Return the tree of ``choice`` under ``folder``; fetched, unpacked and recorded only once.

    One that has been changed since is unpacked again, and ``tell`` hears why.
    """
    record = asdict(replace(choice, rejected=(), warning=None))

    def fill(tree: Path) -> None:
        if choice.kind == "path" and choice.path and Path(choice.path).is_dir():
            trees.copy_tree(Path(choice.path), tree)
            return
        if choice.kind == "git":
            if offline:
                raise not_cached(choice.spec, folder)
            tag = choice.ref if choice.ref and re.match(r"v\d", choice.ref) else None
            fetch_commit(choice.url or REPOSITORY, choice.commit or "", tree, tag=tag)
            return
        archive = download(
            _index_file(choice), downloads, config=config, offline=offline, progress=progress
        )
        trees.unpack(archive, tree)

    return trees.place(folder, f"vllm-{choice.key[:32]}", record, fill, tell=tell)


def _index_file(choice: VllmChoice) -> IndexFile:
    url = choice.url or Path(choice.path or "").as_uri()
    return IndexFile(
        project="vllm",
        version=choice.version or "",
        filename=choice.filename or url.rsplit("/", 1)[-1],
        url=url,
        kind="sdist",
        origin="the package index",
        sha256=choice.sha256,
        size=choice.size,
    )


def _same(spec: str, version: str | None) -> bool:
    if version is None:
        return False
    if spec == "latest":
        return True
    try:
        return Version(spec) == Version(version)
    except InvalidVersion:
        return False


def _version_of(text: str | None) -> str | None:
    try:
        return str(Version(text)) if text else None
    except InvalidVersion:
        return None


def _pkg_info(tree: Path) -> str | None:
    path = tree / "PKG-INFO"
    if not path.is_file():
        return None
    match = re.search(r"^Version: (\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else None
