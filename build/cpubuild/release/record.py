"""Record releases in data/releases.json from their source distributions (a maintainer's command).

``python -m cpubuild.release.record SDIST.tar.gz...`` writes the whole table anew from the given
files, so it must be given every release that the table is to hold.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from cpubuild.errors import CpuBuildError
from cpubuild.release import read_release
from cpubuild.release.known import NAME_SETS, RELEASES, SCHEMA
from cpubuild.release.model import Release

# The first is in every release; the others are recorded where a release names a torch for them.
ARCHES = ("x86_64", "aarch64", "ppc64le", "s390x", "riscv64")
TARGET = Path(__file__).parent.parent / "data" / RELEASES
NOTE = "Written by `python -m cpubuild.release.record SDIST...`; do not edit by hand."


def record(archives: Sequence[Path]) -> dict[str, Any]:
    """The table for ``archives``: facts per release and architecture, with their provenance."""
    entries: dict[str, Any] = {}
    names: dict[str, dict[str, frozenset[str]]] = {}
    for archive in archives:
        releases = read_archive(archive)
        version = releases[0].version
        entries[version] = {"sdist": _provenance(archive), **shared_and_own(releases)}
        names[version] = {kind: getattr(releases[0], kind) for kind in NAME_SETS}
    order = sorted(entries, key=Version)
    for index, version in enumerate(order):
        for kind in NAME_SETS:
            before = names[order[index - 1]][kind] if index else frozenset()
            entries[version][kind] = {
                "added": sorted(names[version][kind] - before),
                "removed": sorted(before - names[version][kind]),
            }
    return {"schema": SCHEMA, "note": NOTE, "releases": {v: entries[v] for v in order}}


def read_archive(archive: Path) -> tuple[Release, ...]:
    """The release in a source distribution, once per architecture that it has a torch for."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        (tree,) = (p for p in Path(folder).iterdir() if p.is_dir())
        return tuple(r for arch in ARCHES if (r := read_for(tree, arch)) is not None)


def read_for(tree: Path, arch: str) -> Release | None:
    """The release for ``arch``; None where it names no torch, except for the first of ARCHES."""
    try:
        return read_release(tree, arch=arch)
    except CpuBuildError as error:
        nameless = any("names no torch" in problem.what for problem in error.problems)
        if arch != ARCHES[0] and nameless:
            return None
        raise


def shared_and_own(releases: tuple[Release, ...]) -> dict[str, Any]:
    """Part the fields of a release into those all architectures share and each one's own."""
    documents = [_document(release) for release in releases]
    first = documents[0]
    shared = {k: v for k, v in first.items() if all(d[k] == v for d in documents)}
    own = {
        release.arch: {k: v for k, v in document.items() if k not in shared}
        for release, document in zip(releases, documents, strict=True)
    }
    return {"all": shared, "arch": own}


def main(arguments: Sequence[str]) -> int:
    """Write the table; the exit code is the error's class."""
    if not arguments:
        sys.stderr.write("usage: python -m cpubuild.release.record SDIST.tar.gz...\n")
        return 2
    try:
        table = record([Path(argument) for argument in arguments])
    except CpuBuildError as error:
        for problem in error.problems:
            sys.stderr.write(f"{problem.what}; {problem.why}\n")
        return int(error.exit_code)
    TARGET.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    sys.stderr.write(f"{len(table['releases'])} releases in {TARGET}\n")
    return 0


def _document(release: Release) -> dict[str, Any]:
    left_out = {"version", "arch", *NAME_SETS}
    fields = dataclasses.asdict(release)
    plain = json.dumps({k: v for k, v in fields.items() if k not in left_out}, default=sorted)
    document: dict[str, Any] = json.loads(plain)
    return document


def _provenance(archive: Path) -> dict[str, str]:
    with archive.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"filename": archive.name, "sha256": digest}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
