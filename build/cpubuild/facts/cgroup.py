"""The control groups of this process: which limits hold it, in version 1, version 2 or both.

The kernel names a process's group by a path in each hierarchy (/proc/self/cgroup) and shows where
a hierarchy is mounted, and from which of its groups on (/proc/self/mountinfo). A limit may stand at
any level between the group and the mount, and all of them hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cpubuild.facts.read import Texts, cpu_list, integer, read_text

PROCESS_FILES = ("proc/self/cgroup", "proc/self/mountinfo", "proc/1/cgroup")
VALUES = {
    ("memory", 1): ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"),
    ("memory", 2): ("memory.max", "memory.current", "memory.stat"),
    ("cpu", 1): ("cpu.cfs_quota_us", "cpu.cfs_period_us"),
    ("cpu", 2): ("cpu.max",),
    ("cpuset", 1): ("cpuset.effective_cpus", "cpuset.cpus"),
    ("cpuset", 2): ("cpuset.cpus.effective", "cpuset.cpus"),
}
NO_LIMIT = 1 << 60
"""Version 1 writes "no limit" as the largest page-aligned number; nothing real is so large."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """One level of one hierarchy: ``folder`` is relative to the root, ``version`` 1 or 2."""

    folder: str
    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Mount:
    point: str
    start: str
    version: int
    controllers: frozenset[str]


def probe(root: Path) -> dict[str, str]:
    """Read the process's groups and every limit file on their way up."""
    texts: dict[str, str] = {}
    for name in PROCESS_FILES:
        text = read_text(root, name)
        if text is not None:
            texts[name] = text
    for (controller, version), names in VALUES.items():
        for group in levels(texts, controller):
            for name in names if group.version == version else ():
                text = read_text(root, f"{group.folder}/{name}")
                if text is not None:
                    texts[f"{group.folder}/{name}"] = text
    return texts


def levels(texts: Texts, controller: str) -> tuple[Group, ...]:
    """Return the groups that may limit ``controller``, the process's own first, version 1 first."""
    paths = _paths(texts)
    groups: list[Group] = []
    for mount in _mounts(texts):
        if mount.version == 1 and controller not in mount.controllers:
            continue
        path = paths.get(controller if mount.version == 1 else "", "/")
        for folder in _way_up(mount, path):
            group = Group(folder=folder, version=mount.version)
            if group not in groups:
                groups.append(group)
    return tuple(groups)


def memory(texts: Texts) -> tuple[int | None, int | None, int | None]:
    """Return (cgroup version, limit, used) in bytes.

    ``limit`` is the smallest on the way up. ``used`` is the part of it that cannot be had any
    more, in this group or because a group above is fuller; file cache, which the kernel gives
    back before it kills, does not count.
    """
    version: int | None = None
    limits: list[int] = []
    rooms: list[int] = []
    for group in levels(texts, "memory"):
        limit_name, used_name, stat_name = VALUES["memory", group.version]
        text = texts.get(f"{group.folder}/{limit_name}")
        if text is None:
            continue
        version = version or group.version
        limit = integer(text)
        if limit is None or not 0 <= limit < NO_LIMIT:
            continue
        used = integer(texts.get(f"{group.folder}/{used_name}")) or 0
        cache = _file_cache(texts.get(f"{group.folder}/{stat_name}", ""), group.version)
        limits.append(limit)
        rooms.append(limit - max(0, used - cache))
    if not limits:
        return version, None, None
    return version, min(limits), max(0, min(limits) - min(rooms))


def cpu_quota(texts: Texts) -> float | None:
    """Return the smallest CPU bandwidth on the way up, in CPUs; None when nothing limits it."""
    quotas = [_quota(texts, group) for group in levels(texts, "cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


def cpuset(texts: Texts) -> tuple[int, ...]:
    """Return the CPU numbers of the nearest group that names some; empty when none does."""
    for group in levels(texts, "cpuset"):
        for name in VALUES["cpuset", group.version]:
            numbers = cpu_list(texts.get(f"{group.folder}/{name}", ""))
            if numbers:
                return numbers
    return ()


def _quota(texts: Texts, group: Group) -> float | None:
    if group.version == 2:
        words = texts.get(f"{group.folder}/cpu.max", "").split()
        quota = integer(words[0]) if words else None
        period = integer(words[1]) if len(words) > 1 else 100_000
    else:
        quota = integer(texts.get(f"{group.folder}/cpu.cfs_quota_us"))
        period = integer(texts.get(f"{group.folder}/cpu.cfs_period_us"))
    if quota is None or period is None or quota <= 0 or period <= 0:
        return None
    return quota / period


def _file_cache(stat: str, version: int) -> int:
    prefix = "total_" if version == 1 else ""
    found = re.findall(rf"^{prefix}(?:in)?active_file (\d{{1,20}})$", stat, re.ASCII | re.MULTILINE)
    return sum(int(number) for number in found)


def _paths(texts: Texts) -> dict[str, str]:
    """Map a controller to this process's path; version 2 has the key ""."""
    text = texts.get("proc/self/cgroup") or texts.get("proc/1/cgroup") or ""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/"):
            for controller in parts[1].split(","):
                paths.setdefault(controller, parts[2])
    return paths


def _mounts(texts: Texts) -> tuple[_Mount, ...]:
    mounts = [
        m for line in texts.get("proc/self/mountinfo", "").splitlines() if (m := _mount(line))
    ]
    if not mounts:
        mounts = list(_usual_mounts())
    return tuple(sorted(mounts, key=lambda mount: mount.version))


def _mount(line: str) -> _Mount | None:
    left, _, right = line.partition(" - ")
    before, after = left.split(" "), right.split(" ")
    if len(before) < 5 or len(after) < 3 or after[0] not in ("cgroup", "cgroup2"):
        return None
    return _Mount(
        point=_unescape(before[4]).strip("/"),
        start=_unescape(before[3]),
        version=2 if after[0] == "cgroup2" else 1,
        controllers=frozenset(after[2].split(",")),
    )


def _usual_mounts() -> Iterator[_Mount]:
    for controller in ("memory", "cpu", "cpuset"):
        yield _Mount(
            point=f"sys/fs/cgroup/{controller}",
            start="/",
            version=1,
            controllers=frozenset({controller}),
        )
    yield _Mount(point="sys/fs/cgroup", start="/", version=2, controllers=frozenset())


def _way_up(mount: _Mount, path: str) -> Iterator[str]:
    inner, start = PurePosixPath(path), PurePosixPath(mount.start)
    parts = inner.relative_to(start).parts if inner.is_relative_to(start) else ()
    parts = tuple(part for part in parts if part != "/")
    if ".." in parts:  # the group lies outside this cgroup namespace: only the mount is visible
        parts = ()
    for count in range(len(parts), -1, -1):
        yield "/".join((mount.point, *parts[:count]))


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-3][0-7]{2})", lambda match: chr(int(match[1], 8)), text)
