"""The C library and its version: asked live, read from file names under another root."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from cpubuild.facts.model import Libc
from cpubuild.facts.programs import ask

GLOBS = (
    "lib/ld-musl-*.so.1",
    "lib/libc-2.*.so",
    "lib64/libc-2.*.so",
    "lib/*-linux-gnu*/libc-2.*.so",
    "lib64/ld-linux*.so.*",
    "lib/ld-linux*.so.*",
    "lib/*-linux-gnu*/libc.so.6",
    "lib64/libc.so.6",
    "usr/lib64/libc.so.6",
)


def probe(root: Path, environ: Mapping[str, str]) -> str:
    """Return what names the library: ``glibc 2.36``, musl's own banner, or a list of file names."""
    if root != Path("/"):
        return "\n".join(_names(root))
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        text = None
    if text:
        return text
    loaders = sorted(Path("/lib").glob("ld-musl-*.so.1"))
    return ask([str(loaders[0])], environ, timeout=5.0).stderr if loaders else ""


def _names(root: Path) -> Iterable[str]:
    for pattern in GLOBS:
        try:
            yield from sorted(path.relative_to(root).as_posix() for path in root.glob(pattern))
        except OSError:
            continue


def parse(text: str) -> Libc:
    """Build the fact; the version is "" where only the name is known."""
    glibc = re.search(r"\bglibc (\d+\.\d+)|\blibc-(2\.\d+)\.so", text, re.ASCII)
    if glibc:
        return Libc(name="glibc", version=glibc[1] or glibc[2])
    if "musl" in text:
        musl = re.search(r"Version (\d+(?:\.\d+)+)", text, re.ASCII)
        return Libc(name="musl", version=musl[1] if musl else "")
    if re.search(r"ld-linux|libc\.so\.6", text):
        return Libc(name="glibc", version="")
    return Libc(name="unknown", version="")
