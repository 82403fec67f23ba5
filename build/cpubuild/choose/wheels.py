"""Whether a prebuilt CPU wheel of a release would run on a host."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cpubuild.choose.levels import version_of
from cpubuild.choose.tables import needs_table
from cpubuild.facts.model import HostFacts
from cpubuild.release import Release


def wheel_option(facts: HostFacts, release: Release) -> str | None:
    """The remedy that names the upstream CPU wheel, None where its libc or ISA does not fit."""
    here, libc = version_of(release.version), facts.libc
    have = version_of(libc.version)
    if here is None or have is None or libc.name != "glibc":
        return None
    for row in needs_table()["wheel"]:
        if (
            row["arch"] == facts.cpu.arch
            and SpecifierSet(row["versions"]).contains(here, prereleases=True)
            and have >= Version(row["glibc"])
            and set(row["flags"]) <= facts.cpu.flags
        ):
            return (
                f"the release's own CPU wheel (needs glibc {row['glibc']}, this host has "
                f"{libc.version})  # price: not compiled for this host, from GitHub"
            )
    return None
