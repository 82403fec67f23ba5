"""Releases whose trees were read before: what can be said of them without fetching one."""

from __future__ import annotations

from cpubuild.release import Release, known_release, known_versions


def known_releases(arch: str) -> tuple[Release, ...]:
    """All recorded releases that name this architecture, newest first."""
    found = (known_release(version, arch) for version in reversed(known_versions()))
    return tuple(release for release in found if release is not None)
