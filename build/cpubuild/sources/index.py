"""Releases of a project on the indexes and find-links that pip is configured with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cpubuild.errors import ExitCode, fail
from cpubuild.sources import Rejected
from cpubuild.sources.pipconfig import PipConfig, local_path, redact
from cpubuild.sources.session import limits, open_session, reason, retried

if TYPE_CHECKING:
    import requests
    from pypi_simple import DistributionPackage, ProjectPage

DEFAULT_INDEX = "pip's default index"
FOUND_THROUGH = "its releases are found through pip's configured indexes and find-links"


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexFile:
    """One file of a release: ``origin`` says where it was listed, ``size`` is in bytes.

    ``url`` is http(s) or ``file:``; ``kind`` is ``wheel``, ``sdist`` or what else the index has.
    ``metadata`` tells whether ``url`` + ``.metadata`` holds the wheel's METADATA.
    """

    project: str
    version: str
    filename: str
    url: str
    kind: str
    origin: str
    sha256: str | None = None
    size: int | None = None
    yanked: bool = False
    requires_python: str | None = None
    metadata: bool = False

    @property
    def path(self) -> Path | None:
        """The file itself when it lies on this host."""
        return local_path(self.url)


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexRelease:
    """One version and its files, in the order of the indexes."""

    version: str
    files: tuple[IndexFile, ...]

    @property
    def yanked(self) -> bool:
        """Whether every file of the release was withdrawn."""
        return all(f.yanked for f in self.files)

    @property
    def sdist(self) -> IndexFile | None:
        """The source distribution, a local one or one with a hash first."""
        found = [f for f in self.files if f.kind == "sdist" and f.filename.endswith(".tar.gz")]
        return min(found, key=lambda f: (f.path is None, f.sha256 is None), default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """What all places together say of a project: releases newest first, and who did not answer."""

    project: str
    releases: tuple[IndexRelease, ...]
    asked: tuple[str, ...]
    failed: tuple[Rejected, ...] = ()

    def find(self, version: str) -> IndexRelease | None:
        """The release equal to ``version`` (``0.32`` is ``0.32.0``)."""
        wanted = Version(version)
        return next((r for r in self.releases if Version(r.version) == wanted), None)


def listing(
    project: str, config: PipConfig, *, offline: bool = False, seconds: float | None = None
) -> Listing:
    """Ask every configured place for ``project``; a place that fails is named, not fatal.

    ``seconds`` limits each request and switches the retries off (a probe). With ``offline`` only
    folders of this host are read.
    """
    places = [(url, True) for url in config.index_urls]
    if config.index_url is None and not config.no_index:
        places.insert(0, ("", True))
    places += [(url, False) for url in config.find_links]
    files: list[IndexFile] = []
    failed: list[Rejected] = []
    asked: list[str] = []
    session = open_session(config)
    for url, is_index in places:
        name = redact(url) or DEFAULT_INDEX
        if offline and (not url or local_path(url) is None):
            failed.append(Rejected(what=name, why="not asked: this run is offline"))
            continue
        try:
            asked.append(name)
            files += _ask(project, url, is_index, session, config, seconds)
        except (OSError, ValueError) as error:
            failed.append(Rejected(what=name, why=reason(error)))
    session.close()
    return Listing(project=project, releases=group(files), asked=tuple(asked), failed=tuple(failed))


def releases(project: str, config: PipConfig, *, offline: bool = False) -> tuple[IndexRelease, ...]:
    """The releases of ``project``, newest first; a DOWNLOAD error if none is known anywhere."""
    found = listing(project, config, offline=offline)
    if not found.releases:
        raise nothing_listed(found)
    return found.releases


def nothing_listed(found: Listing) -> Exception:
    """Build the error for a project that no place lists: who did not answer, and what helps."""
    asked = [name for name in found.asked if name not in _names(found.failed)]
    without = f"it is not on {', '.join(asked)}" if asked else ""
    if not found.failed:
        return fail(
            ExitCode.DOWNLOAD,
            f"no package index of this host lists {found.project}: {without or 'none is set'}",
            why=FOUND_THROUGH,
            remedy=("python -m pip config list", "python -m pip config debug"),
        )
    unreached = "; ".join(f"{r.what}: {r.why}" for r in found.failed)
    return fail(
        ExitCode.DOWNLOAD,
        f"{found.project} cannot be found, for these could not be reached: {unreached}",
        why=FOUND_THROUGH + (f"; {without}" if without else ""),
        remedy=(
            "cpubuild check --only network   # says what answers from here",
            "pip config set global.index-url URL   # a mirror that this host reaches",
            "--state FOLDER --offline   # a state root that a run with a network has filled",
            "--wheel-cache URL   # a shared wheel spares the compile, not sources and packages",
            "docs/offline.md says what a run without a network needs",
        ),
    )


def _names(rejected: Iterable[Rejected]) -> set[str]:
    return {r.what for r in rejected}


def group(files: Iterable[IndexFile]) -> tuple[IndexRelease, ...]:
    """Group files by version, newest first; files whose version cannot be read are left out."""
    by_version: dict[Version, list[IndexFile]] = {}
    for file in files:
        try:
            by_version.setdefault(Version(file.version), []).append(file)
        except InvalidVersion:
            continue
    return tuple(
        IndexRelease(version=str(v), files=tuple(by_version[v]))
        for v in sorted(by_version, reverse=True)
    )


def index_files(
    project: str,
    index: str,
    config: PipConfig,
    *,
    session: requests.Session | None = None,
    seconds: float | None = None,
) -> list[IndexFile]:
    """The files that one index (``""``: pip's default) lists for ``project``; empty if it has none.

    Raises OSError (requests' errors are) when it does not answer.
    """
    session = session or open_session(config)
    return _ask(project, index, True, session, config, seconds)


def _ask(
    project: str,
    url: str,
    is_index: bool,
    session: requests.Session,
    config: PipConfig,
    seconds: float | None,
) -> list[IndexFile]:
    local = local_path(url) if url else None
    if local is not None:
        return _local_index(project, local, url) if is_index else local_links(project, local, url)
    if seconds is not None:
        return _remote(project, url, is_index, session, limits(config, seconds))
    return retried(config, lambda: _remote(project, url, is_index, session, limits(config)))


def _remote(
    project: str, url: str, is_index: bool, session: requests.Session, timeout: tuple[float, float]
) -> list[IndexFile]:
    from pypi_simple import NoSuchProjectError, PyPISimple

    if is_index:
        client = PyPISimple(url.rstrip("/") + "/", session=session) if url else None
        client = client or PyPISimple(session=session)
        try:
            page = client.get_project_page(project, timeout=timeout)
        except NoSuchProjectError:
            return []
        return _page_files(project, page, redact(url) or DEFAULT_INDEX)
    answer = session.get(url, timeout=timeout)
    answer.raise_for_status()
    return _html_files(project, answer.text, answer.url, redact(url))


def _local_index(project: str, folder: Path, url: str) -> list[IndexFile]:
    page = folder / canonicalize_name(project)
    if page.is_dir():
        page /= "index.html"
    if not page.is_file():
        return []
    return _html_files(project, page.read_text(encoding="utf-8"), page.as_uri(), url)


def local_links(project: str, place: Path, origin: str) -> list[IndexFile]:
    """The files of ``project`` in a folder, or behind the links of a local HTML page."""
    if place.is_file() and place.suffix in (".html", ".htm"):
        return _html_files(project, place.read_text(encoding="utf-8"), place.as_uri(), origin)
    paths = [place] if place.is_file() else sorted(place.iterdir())
    found = (
        _parsed(project, p.name, p.resolve().as_uri(), origin, size=p.stat().st_size)
        for p in paths
        if p.is_file()
    )
    return [f for f in found if f is not None]


def _html_files(project: str, html: str, base: str, origin: str) -> list[IndexFile]:
    from pypi_simple import ProjectPage

    return _page_files(project, ProjectPage.from_html(project, html, base_url=base), origin)


def _page_files(project: str, page: ProjectPage, origin: str) -> list[IndexFile]:
    found = (_from_package(project, p, origin) for p in page.packages)
    return [f for f in found if f is not None]


def _from_package(project: str, package: DistributionPackage, origin: str) -> IndexFile | None:
    name = package.filename.strip().rsplit("/", 1)[-1]
    return _parsed(
        project,
        name,
        package.url,
        origin,
        sha256=package.digests.get("sha256"),
        size=package.size,
        yanked=package.is_yanked,
        requires_python=package.requires_python,
        metadata=bool(package.has_metadata),
    )


def _parsed(
    project: str,
    filename: str,
    url: str,
    origin: str,
    *,
    sha256: str | None = None,
    size: int | None = None,
    yanked: bool = False,
    requires_python: str | None = None,
    metadata: bool = False,
) -> IndexFile | None:
    from pypi_simple import UnparsableFilenameError, parse_filename

    try:
        name, version, kind = parse_filename(filename, project)
    except UnparsableFilenameError:
        return None
    if canonicalize_name(name) != canonicalize_name(project):
        return None
    path = local_path(url) if urlsplit(url).scheme == "file" else None
    if path is not None and size is None:
        size = path.stat().st_size if path.is_file() else None
    return IndexFile(
        project=canonicalize_name(name),
        version=version,
        filename=filename,
        url=url,
        kind=kind,
        origin=origin,
        sha256=sha256,
        size=size,
        yanked=yanked,
        requires_python=requires_python,
        metadata=metadata,
    )
