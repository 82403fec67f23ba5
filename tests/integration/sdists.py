"""Real vLLM source distributions for tests: fetched once, checked by sha256, unpacked once.

``CPUBUILD_TEST_SDISTS`` names a folder that already holds ``vllm-<version>.tar.gz`` files; it is
only read. ``CPUBUILD_TEST_CACHE`` moves the cache (default: the user's cache folder). What is
not there comes from the package index that pip is configured for.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock
from platformdirs import user_cache_path

VERSIONS = (
    "0.6.3.post1",
    "0.9.2",
    "0.11.2",
    "0.14.1",
    "0.17.1",
    "0.20.0",
    "0.24.0",
    "0.28.0",
    "0.30.0",
    "0.31.0",
    "0.32.0",
    "0.33.0",
)


def sdist_tree(version: str) -> Path:
    """The unpacked sdist of vLLM ``version``; shared between tests, so copy before changing it.

    Skips the calling test when the index cannot be reached and nothing is cached; a wrong hash
    is a failure.
    """
    cache = cache_folder()
    with FileLock(cache / f"vllm-{version}.lock"):
        archive = sdist_archive(version)
        tree = cache / f"vllm-{version}-{sha256(archive)[:12]}"
        if not tree.is_dir():
            _unpack(archive, tree, f"vllm-{version}")
    return tree


def sdist_archive(version: str) -> Path:
    """The tarball of vLLM ``version``: given, cached, or downloaded and checked."""
    name = f"vllm-{version}.tar.gz"
    given = os.environ.get("CPUBUILD_TEST_SDISTS")
    for folder in (Path(given) if given else None, cache_folder()):
        if folder is not None and (folder / name).is_file():
            return folder / name
    return _download(version, cache_folder() / name)


def cache_folder() -> Path:
    """The folder that keeps tarballs and trees between runs; made when missing."""
    given = os.environ.get("CPUBUILD_TEST_CACHE")
    folder = Path(given) if given else user_cache_path("vllm-cpu-build-tests", appauthor=False)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def sha256(path: Path) -> str:
    """The hex sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download(version: str, target: Path) -> Path:
    import requests
    from pypi_simple import PYPI_SIMPLE_ENDPOINT, PyPISimple

    session = requests.Session()
    if "cert" in pip_settings():
        session.verify = pip_settings()["cert"]
    endpoint = pip_settings().get("index-url", PYPI_SIMPLE_ENDPOINT)
    partial = target.with_suffix(".part")
    try:
        with PyPISimple(endpoint, session=session) as index:
            page = index.get_project_page("vllm", timeout=60)
            package = next(
                (p for p in page.packages if p.package_type == "sdist" and p.version == version),
                None,
            )
            if package is None:
                pytest.skip(f"the package index has no sdist of vllm {version}")
            assert "sha256" in package.digests, f"the index gives no sha256 for {package.filename}"
            index.download_package(package, partial, verify=True, timeout=120)
    except (requests.ConnectionError, requests.Timeout) as error:
        pytest.skip(f"vllm {version} is not cached and the package index does not answer: {error}")
    assert sha256(partial) == package.digests["sha256"]
    return partial.replace(target)


@functools.cache
def pip_settings() -> dict[str, str]:
    """What pip's configuration files and environment say, by option name; environment last."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    pairs = re.findall(r"(?m)^(\S+?)\.([a-z-]+)='(.*)'$", listed)
    order = {"global": 0, "install": 1, "download": 2, ":env:": 3}
    kept = sorted((p for p in pairs if p[0] in order), key=lambda p: order[p[0]])
    return {option: value for _, option, value in kept}


def _unpack(archive: Path, tree: Path, inner: str) -> None:
    with tempfile.TemporaryDirectory(dir=tree.parent, prefix="unpack-") as scratch:
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
        shutil.move(Path(scratch) / inner, tree)
