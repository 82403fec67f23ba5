"""Choose oneDNN and cache its tree: the pinned tag, a local folder, the distro's source."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from packaging.version import InvalidVersion, Version

from cpubuild import run
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.facts.model import Distro
from cpubuild.sources import Rejected, apt, trees
from cpubuild.sources.fetch import file_sha256
from cpubuild.sources.git import COMMIT, SECONDS, fetch_commit, git_environment, ls_remote

REPOSITORY = "https://github.com/uxlfoundation/oneDNN.git"
# Suites to look at before the host's own, on the host's own mirror. Older ones (bookworm: 2.6)
# lack the interface that vLLM's CPU kernels call.
SUITES: dict[str, tuple[str, ...]] = {"debian": ("trixie",)}
COMPONENTS = {"debian": "main", "ubuntu": "universe"}
MINIMUM = "3.7"
# Of Debian's patches only upstream's own corrections are taken: they mend x86 matmul kernels.
# The others move spdlog and googletest to system packages, set the name of a shared library,
# or are for other processors; a static build inside vLLM wants none of them.
PATCHES = re.compile(r"upstream-.*\.patch")
LOCAL_SETTING = "CPUBUILD_ONEDNN"


@dataclass(frozen=True, kw_only=True, slots=True)
class OnednnChoice:
    """Where oneDNN comes from. ``tag`` is what the vLLM tree pins, ``version`` what is obtained.

    ``package`` is the distro's version in full; ``files`` are name, sha256 and size. ``warning``
    is set when another version than the pinned one is used, or when that cannot be told.
    """

    tag: str
    kind: Literal["git", "directory", "distro"]
    key: str
    reason: str
    version: str | None
    commit: str | None = None
    url: str | None = None
    path: str | None = None
    package: str | None = None
    suite: str | None = None
    files: tuple[tuple[str, str, int], ...] = ()
    warning: str | None = None
    rejected: tuple[Rejected, ...] = ()


def choose_onednn(
    tag: str,
    *,
    distro: Distro,
    folder: Path,
    directory: Path | None = None,
    offline: bool = False,
    repository: str = REPOSITORY,
    seconds: float = SECONDS,
    minimum: str = MINIMUM,
    root: Path = Path("/"),
) -> OnednnChoice:
    """Decide where oneDNN ``tag`` (``v3.13`` or a commit) comes from.

    A ``directory`` that the user names is always taken. Else the pinned tag, else the distro's
    source package of at least ``minimum``; for that the signed index (10 MB) is fetched to
    ``folder``. With ``offline`` only the cache in ``folder`` is looked at.
    """
    if directory is not None:
        return _directory(tag, directory)
    if offline:
        kept = recorded(tag, folder)
        if kept is None:
            raise _nothing(tag, distro, [Rejected(what=str(folder), why="the cache has none")])
        return kept
    rejected: list[Rejected] = []
    refs = ls_remote(repository, f"refs/tags/{tag}", f"refs/tags/{tag}^{{}}", seconds=seconds)
    commit = refs.commit(f"refs/tags/{tag}")
    if commit is None and refs.reached and COMMIT.fullmatch(tag):
        commit = tag
    if commit is not None:
        return OnednnChoice(
            tag=tag,
            kind="git",
            key=commit,
            version=_number(tag),
            commit=commit,
            url=repository,
            reason=f"the pinned {tag}; {repository} answered in {refs.seconds:.1f} s",
        )
    why = f"it has no tag {tag}" if refs.reached else refs.detail
    rejected.append(Rejected(what=repository, why=why))
    rejected.append(Rejected(what="a local folder", why=f"{LOCAL_SETTING} is not set"))
    found = _distro(tag, distro, folder, minimum, root, rejected)
    if found is None:
        raise _nothing(tag, distro, rejected)
    return replace(found, rejected=tuple(rejected))


def recorded(tag: str, folder: Path) -> OnednnChoice | None:
    """The choice that was fetched for ``tag`` before; its reason tells if the tree is damaged."""
    for tree, record in trees.records(folder):
        if record.get("tag") != tag or record.get("kind") not in ("git", "distro"):
            continue
        files = tuple(map(tuple, record.get("files") or ()))  # type: ignore[call-overload]
        try:
            kept = OnednnChoice(**(record | {"files": files, "rejected": ()}))  # type: ignore[arg-type]
        except TypeError:
            continue
        wrong = trees.damage(tree.parent)
        state = f"{wrong}: it is fetched again" if wrong else "already in the cache"
        return replace(kept, reason=f"{state}; {kept.reason}")
    return None


def fetch_onednn(choice: OnednnChoice, folder: Path, *, offline: bool = False) -> Path:
    """Return the tree of ``choice``; a local folder is used where it lies, others are cached."""
    if choice.kind == "directory":
        tree = Path(choice.path or "")
        check_tree(tree)
        return tree

    def fill(tree: Path) -> None:
        if offline:
            raise fail(
                ExitCode.DOWNLOAD,
                f"oneDNN {choice.version} is not in the cache ({folder}) and this run is offline",
                remedy=("run once without --offline", f"{LOCAL_SETTING}=DIR"),
            )
        if choice.kind == "git":
            tag = None if COMMIT.fullmatch(choice.tag) else choice.tag
            fetch_commit(choice.url or REPOSITORY, choice.commit or "", tree, tag=tag)
        else:
            _fill_from_package(choice, folder, tree)
        check_tree(tree)

    record = asdict(replace(choice, rejected=()))
    return trees.place(folder, f"onednn-{choice.key[:32]}", record, fill)


def check_tree(tree: Path) -> None:
    """Raise a SETTINGS error unless ``tree`` is a oneDNN source tree that CMake can take."""
    needed = ("CMakeLists.txt", "cmake/options.cmake", "src/cpu/CMakeLists.txt", "include/dnnl.h")
    missing = [n for n in needed if not (tree / n).is_file()]
    if missing:
        raise fail(
            ExitCode.SETTINGS,
            f"{tree} is not a oneDNN source tree: it has no {', '.join(missing)}",
            why="vLLM's CMake adds oneDNN as a subdirectory and compiles it",
            remedy=(f"{LOCAL_SETTING}=DIR (the unpacked sources of oneDNN)",),
        )


def tree_version(tree: Path) -> str | None:
    """The version that a oneDNN tree gives itself; None when it does not say."""
    for name in ("CMakeLists.txt", "cmake/version.cmake"):
        path = tree / name
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        match = re.search(r'set\(PROJECT_VERSION\s+"([0-9.]+)"', text)
        if match:
            return match[1]
    return None


def differs(tag: str, version: str | None) -> str | None:
    """The warning for a version other than the pinned one, with both numbers; None if it is it."""
    if version is None:
        return f"oneDNN {tag} is pinned; which version is used instead cannot be told"
    pinned = _number(tag)
    if pinned is None:
        return f"oneDNN {version} is used; the pin is the commit {tag[:12]}"
    used, wanted = Version(version), Version(pinned)
    if used.release[: len(wanted.release)] == wanted.release:
        return None
    return f"oneDNN {version} is used; this vLLM pins {tag.removeprefix('v')}"


def _directory(tag: str, directory: Path) -> OnednnChoice:
    tree = directory.expanduser().resolve()
    check_tree(tree)
    version = tree_version(tree)
    return OnednnChoice(
        tag=tag,
        kind="directory",
        key=trees.tree_sha256(tree),
        version=version,
        path=str(tree),
        reason=f"{LOCAL_SETTING} names {tree}",
        warning=differs(tag, version),
    )


def _distro(
    tag: str,
    distro: Distro,
    folder: Path,
    minimum: str,
    root: Path,
    rejected: list[Rejected],
) -> OnednnChoice | None:
    name = f"the source package of {distro.pretty or distro.id}"
    if distro.family != "apt":
        why = f"taking it is written for apt only, and this is {distro.id} ({distro.family})"
        rejected.append(Rejected(what=name, why=why))
        return None
    entry = apt.main_entry(apt.read_entries(root), distro.codename)
    if entry is None:
        why = f"no entry of /etc/apt has the suite {distro.codename or '(unknown)'} and main"
        rejected.append(Rejected(what=name, why=why))
        return None
    suites = dict.fromkeys((*SUITES.get(distro.id, ()), distro.codename))
    for suite in suites:
        source, why = _offered(folder, entry, suite, COMPONENTS.get(distro.id, "main"))
        upstream = upstream_version(source.version) if source else None
        if source is not None and upstream is not None and Version(upstream) < Version(minimum):
            why = f"it has {source.version}, and vLLM's kernels need {minimum} or newer"
        if source is None or why:
            rejected.append(Rejected(what=f"source package onednn of {suite}", why=why))
            continue
        return OnednnChoice(
            tag=tag,
            kind="distro",
            key=_key(source),
            version=upstream,
            url=source.uri,
            package=source.version,
            suite=suite,
            files=source.files,
            reason=f"onednn {source.version}, source package of {suite}, signature checked by apt",
            warning=differs(tag, upstream),
        )
    return None


def _offered(
    folder: Path, entry: apt.AptEntry, suite: str, component: str
) -> tuple[apt.AptSource | None, str]:
    private = apt.PrivateApt(folder / f"apt-{suite}")
    private.open(apt.source_stanza(entry, suite, component))
    failed = private.update()
    if failed:
        return None, failed
    source = private.source("onednn", suite)
    return source, "" if source else "the suite has no such package"


def _key(source: apt.AptSource) -> str:
    dsc = next((f for f in source.files if f[0].endswith(".dsc")), source.files[0])
    return dsc[1]


def _fill_from_package(choice: OnednnChoice, folder: Path, tree: Path) -> None:
    private = apt.PrivateApt(folder / f"apt-{choice.suite}")
    source = apt.AptSource(
        package="onednn",
        version=choice.package or "",
        suite=choice.suite or "",
        uri=choice.url or "",
        files=choice.files,
    )
    with TemporaryDirectory(dir=folder, prefix=".onednn-") as temporary:
        place = Path(temporary)
        private.download(source, place)
        verify_files(place, choice.files)
        names = [name for name, _, _ in choice.files]
        trees.unpack(place / _one(names, r".*\.orig\.tar\.\w+"), tree)
        packaging = place / "packaging"
        packaging.mkdir()
        trees.unpack(place / _one(names, r".*\.debian\.tar\.\w+"), packaging)
        apply_series(packaging, tree)


def verify_files(folder: Path, files: tuple[tuple[str, str, int], ...]) -> None:
    """Compare what lies in ``folder`` with names, hashes and sizes; raise naming what differs."""
    for name, sha256, size in files:
        path = folder / name
        if not path.is_file() or path.stat().st_size != size or file_sha256(path) != sha256:
            found = f"{path.stat().st_size} bytes" if path.is_file() else "nothing"
            raise fail(
                ExitCode.DOWNLOAD,
                f"{name} is not what the signed index lists ({size} bytes, sha256 {sha256}): "
                f"{found} came",
                remedy=("run the same command again",),
            )


def apply_series(packaging: Path, tree: Path) -> tuple[str, ...]:
    """Apply upstream's corrections from the package's series to ``tree``; return their names."""
    # unpack() drops the one top folder, which here is debian/ itself.
    series = packaging / "patches/series"
    lines = series.read_text(encoding="utf-8").splitlines() if series.is_file() else []
    names = [n for line in lines if PATCHES.fullmatch(n := line.split("#")[0].strip())]
    for name in names:
        env = git_environment() | {"GIT_CEILING_DIRECTORIES": str(tree.resolve().parent)}
        done = run.capture(
            ["git", "apply", "--whitespace=nowarn", str((series.parent / name).resolve())],
            cwd=tree,
            env=env,
        )
        run.must(done, ExitCode.PATCH, f"the distro's patch {name} does not apply to oneDNN")
    return tuple(names)


def upstream_version(package: str) -> str | None:
    """The upstream part of a Debian version: ``3.7.2+ds-2`` is 3.7.2; None if it has none."""
    match = re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", package)
    return match[1] if match else None


def _number(tag: str) -> str | None:
    if COMMIT.fullmatch(tag):
        return None
    try:
        return str(Version(tag))
    except InvalidVersion:
        return None


def _one(names: list[str], pattern: str) -> str:
    found = [n for n in names if re.fullmatch(pattern, n)]
    if len(found) != 1:
        raise fail(
            ExitCode.DOWNLOAD,
            f"the source package of oneDNN has another shape: {', '.join(names)}",
            why=f"one file like {pattern} is expected",
        )
    return found[0]


def _nothing(tag: str, distro: Distro, rejected: list[Rejected]) -> CpuBuildError:
    by_hand = {
        "dnf": "dnf download --source onednn, unpack it",
        "zypper": "zypper source-download onednn, unpack it",
    }.get(distro.family, f"unpack the sources of oneDNN {tag} somewhere")
    return fail(
        ExitCode.DOWNLOAD,
        f"oneDNN {tag} cannot be had here: " + "; ".join(f"{r.what}: {r.why}" for r in rejected),
        why="vLLM's CPU kernels are compiled together with oneDNN's sources",
        remedy=(
            f"{by_hand}, then set {LOCAL_SETTING}=DIR",
            f"let git reach a mirror: git config --global url.MIRROR.insteadOf {REPOSITORY}",
        ),
    )
