"""From settings to an opened shared cache; whatever is wrong is said before anything is built."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.sources.pipconfig import PipConfig, local_path, redact
from cpubuild.wheelcache.folder import FolderStore
from cpubuild.wheelcache.model import Mode, Store
from cpubuild.wheelcache.s3 import open_s3
from cpubuild.wheelcache.trust import Trust, sign
from cpubuild.wheelcache.web import open_web

TOKEN_VARIABLE = "CPUBUILD_CACHE_TOKEN"  # noqa: S105 - the name of a variable, not a secret
MODES: tuple[Mode, ...] = ("read", "read-write")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
FORMS = (
    "a folder: /srv/wheels or file:///srv/wheels",
    "a server: https://host/prefix",
    "an S3-compatible bucket: s3://bucket/prefix",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """A shared cache as the settings describe it; ``signer`` is None where nothing is published."""

    store: Store
    trust: Trust
    signer: Path | None = None


def open_shared(
    url: str | None,
    *,
    mode: Mode,
    trust: Path | None,
    key: Path | None,
    environ: Mapping[str, str],
    config: PipConfig | None = None,
) -> Shared | None:
    """The shared cache of the settings, None without ``url``; SETTINGS errors for what is wrong.

    Opens no connection. With mode ``read-write`` and a key, one signature is made to see that the
    key can sign: an hour later, after the build, would be late.
    """
    if url is None:
        return None
    store = open_store(
        url, mode=mode, token=environ.get(TOKEN_VARIABLE), config=config, environ=environ
    )
    if trust is None and mode == "read":
        raise fail(
            ExitCode.SETTINGS,
            f"the wheel cache {store.name} is set, but no trust file is",
            why="wheels of a shared cache run on this host, so somebody must vouch for them",
            remedy=("set CPUBUILD_WHEEL_CACHE_TRUST to a file as in docs/wheel-cache.md",),
        )
    if mode == "read-write" and key is not None:
        sign(b"whether this key can sign\n", key)
    return Shared(
        store=store,
        trust=Trust.load(trust) if trust is not None else Trust(),
        signer=key if mode == "read-write" else None,
    )


def open_store(
    url: str,
    *,
    mode: Mode = "read",
    token: str | None = None,
    config: PipConfig | None = None,
    environ: Mapping[str, str] | None = None,
) -> Store:
    """Open the store that ``url`` names; a SETTINGS error for a URL that names none."""
    if mode not in MODES:
        raise _unusable(url, f"its mode {mode!r} is none of {', '.join(MODES)}")
    writable = mode == "read-write"
    parts = _split(url)
    if parts.scheme == "s3" and "://" in url:
        retries = config.retries if config is not None and config.retries is not None else 3
        return open_s3(
            _bucket(url, parts),
            parts.path,
            writable=writable,
            environ=os.environ if environ is None else environ,
            retries=retries,
        )
    if parts.scheme in ("http", "https") and "://" in url:
        _web_fits(url, parts, token)
        return open_web(url, writable=writable, token=token, config=config or PipConfig())
    folder = local_path(url)
    if folder is None:
        raise _unusable(url, f"{parts.scheme}:// is not a kind of store")
    if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise _unusable(url, f"it names the host {parts.netloc}; file:///folder has three slashes")
    if not folder.is_absolute():
        raise _unusable(url, "a folder is named from / on")
    return FolderStore(root=folder, writable=writable)


def _split(url: str) -> SplitResult:
    if not url.strip() or not url.isprintable() or ("://" in url and " " in url):
        raise _unusable(url, "it is empty, or holds what no URL holds")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise _unusable(url, str(error)) from error
    if "://" in url and "@" in parts.netloc:
        raise _unusable(url, f"it holds credentials; use {TOKEN_VARIABLE} or ~/.netrc")
    if "://" in url and (parts.query or parts.fragment):
        raise _unusable(url, "it has a query or a fragment")
    return parts


def _bucket(url: str, parts: SplitResult) -> str:
    if not BUCKET.fullmatch(parts.netloc):
        raise _unusable(url, "it names no bucket")
    return parts.netloc


def _web_fits(url: str, parts: SplitResult, token: str | None) -> None:
    if not parts.hostname:
        raise _unusable(url, "it names no host")
    if token and parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise _unusable(url, f"{TOKEN_VARIABLE} would travel in clear; use https or unset it")
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise _unusable(url, f"{TOKEN_VARIABLE} holds characters that no token has")


def _unusable(url: str, why: str) -> CpuBuildError:
    return fail(
        ExitCode.SETTINGS,
        f"the wheel cache {redact(url)!r} is not usable: {why}",
        why="wheel_cache names a store that several hosts share",
        remedy=FORMS,
    )
