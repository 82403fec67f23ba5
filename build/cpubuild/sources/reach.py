"""Which sources answer from here, found out together within a few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

from cpubuild.facts.model import Reach
from cpubuild.sources.git import ls_remote
from cpubuild.sources.index import DEFAULT_INDEX, index_files
from cpubuild.sources.pipconfig import PipConfig, local_path, redact
from cpubuild.sources.session import limits, open_session, reason

SECONDS = 3.0
LARGEST_POOL = 16


def probe_reach(
    sources: Iterable[str],
    *,
    config: PipConfig | None = None,
    seconds: float = SECONDS,
    offline: bool = False,
) -> tuple[Reach, ...]:
    """Ask every source at the same time; all is decided after about ``seconds``.

    A source is an http(s) URL, a git repository (``git+`` URL or one that ends in ``.git``), a
    folder or ``file:`` URL, or ``""`` for pip's default index. Any HTTP answer below 500 counts
    as reached. With ``offline`` no socket is opened and remote sources are unreachable.
    """
    names = list(sources)
    if not names:
        return ()
    known = config or PipConfig()
    pool = ThreadPoolExecutor(max_workers=min(LARGEST_POOL, len(names)))
    started = time.monotonic()
    futures = [pool.submit(_timed, n, known, seconds, offline) for n in names]
    answers: list[Reach] = []
    for name, future in zip(names, futures, strict=True):
        left = max(0.05, started + seconds + 0.5 - time.monotonic())
        try:
            answers.append(future.result(timeout=left))
        except TimeoutError:
            late = f"no answer within {seconds:g} s"
            answers.append(Reach(name=_shown(name), ok=False, seconds=seconds, detail=late))
    pool.shutdown(wait=False, cancel_futures=True)
    return tuple(answers)


def _timed(name: str, config: PipConfig, seconds: float, offline: bool) -> Reach:
    started = time.monotonic()
    ok, detail = _probe_for(name, config, seconds, offline)()
    return Reach(
        name=_shown(name), ok=ok, seconds=round(time.monotonic() - started, 3), detail=detail
    )


def _probe_for(
    name: str, config: PipConfig, seconds: float, offline: bool
) -> Callable[[], tuple[bool, str]]:
    if name and local_path(name) is not None:
        return lambda: _folder(name)
    if offline:
        return lambda: (False, "this run is offline")
    if not name:
        return lambda: _default_index(config, seconds)
    if name.startswith("git+") or name.endswith(".git"):
        return lambda: _git(name.removeprefix("git+"), seconds)
    return lambda: _http(name, config, seconds)


def _folder(name: str) -> tuple[bool, str]:
    path = local_path(name)
    there = path is not None and path.exists()
    return there, "" if there else "does not exist"


def _git(name: str, seconds: float) -> tuple[bool, str]:
    refs = ls_remote(name, "HEAD", seconds=seconds)
    return refs.reached, refs.detail


def _default_index(config: PipConfig, seconds: float) -> tuple[bool, str]:
    url = default_index_url()
    if url is not None:
        return _http(index_page(url), config, seconds)
    try:
        index_files("pip", "", config, seconds=seconds)
    except (OSError, ValueError) as error:
        return False, reason(error)
    return True, ""


def default_index_url() -> str | None:
    """The index that this interpreter's pip takes when it is told of none; None if it hides it.

    Asking that page costs a request, listing it would cost an HTML parser's import besides.
    """
    try:
        return str(import_module("pip._internal.models.index").PyPI.simple_url)
    except (ImportError, AttributeError):
        return None


def index_page(url: str) -> str:
    """A page that every index has and that is small, unlike its root; a folder stays itself."""
    return url if local_path(url) is not None else url.rstrip("/") + "/pip/"


def _http(name: str, config: PipConfig, seconds: float) -> tuple[bool, str]:
    session = open_session(config)
    try:
        with session.get(name, timeout=limits(config, seconds), stream=True) as answer:
            if answer.status_code >= 500:
                return False, f"HTTP status {answer.status_code}"
            return True, f"HTTP status {answer.status_code}" if answer.status_code >= 400 else ""
    except (OSError, ValueError) as error:
        return False, reason(error)
    finally:
        session.close()


def _shown(name: str) -> str:
    return redact(name) or DEFAULT_INDEX
