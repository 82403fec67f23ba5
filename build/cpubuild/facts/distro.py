"""The distribution, by the distro library, and the package family it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from cpubuild.facts.model import Distro

Family = Literal["apt", "dnf", "zypper", "pacman", "apk", "unknown"]
FAMILIES: dict[str, Family] = {
    "debian": "apt",
    "ubuntu": "apt",
    "linuxmint": "apt",
    "raspbian": "apt",
    "pop": "apt",
    "kali": "apt",
    "deepin": "apt",
    "uos": "apt",
    "rhel": "dnf",
    "fedora": "dnf",
    "centos": "dnf",
    "rocky": "dnf",
    "almalinux": "dnf",
    "ol": "dnf",
    "amzn": "dnf",
    "openeuler": "dnf",
    "anolis": "dnf",
    "alinux": "dnf",
    "opencloudos": "dnf",
    "tencentos": "dnf",
    "kylin": "dnf",
    "suse": "zypper",
    "opensuse": "zypper",
    "opensuse-leap": "zypper",
    "opensuse-tumbleweed": "zypper",
    "sles": "zypper",
    "sled": "zypper",
    "arch": "pacman",
    "manjaro": "pacman",
    "endeavouros": "pacman",
    "alpine": "apk",
}


def probe(root: Path) -> dict[str, str]:
    """Return os-release as pairs; empty when there is none or it cannot be understood."""
    import distro

    # with a root of its own the library resolves the links of os-release inside that root
    where = None if root == Path("/") else str(root)
    try:
        found = distro.LinuxDistribution(
            include_lsb=False, include_uname=False, include_oslevel=False, root_dir=where
        )
        info = dict(found.os_release_info())
        if info:
            info["_codename"] = found.codename()
            info["_version"] = found.version(best=False)
    except (OSError, ValueError):  # an unclosed quote, a byte that is no text
        return {}
    return info


def parse(info: Mapping[str, str]) -> Distro:
    """Build the fact; unknown parts are ""."""
    name = info.get("id", "").lower()
    like = tuple(info.get("id_like", "").lower().split())
    version = info.get("version_id") or info.get("_version", "")
    return Distro(
        id=name,
        version=version,
        codename=info.get("version_codename") or info.get("_codename", ""),
        pretty=info.get("pretty_name") or info.get("name", ""),
        family=family(name, like),
        like=like,
    )


def family(name: str, like: tuple[str, ...]) -> Family:
    """Return the package family of a distribution by its id, else by what it says it is like."""
    return next((FAMILIES[word] for word in (name, *like) if word in FAMILIES), "unknown")
