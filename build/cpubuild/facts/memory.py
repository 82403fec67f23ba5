"""Memory and swap of the host, and the control group's limit on them."""

from __future__ import annotations

import re
from pathlib import Path

from cpubuild.facts import cgroup
from cpubuild.facts.model import Memory
from cpubuild.facts.read import Texts, read_texts


def probe(root: Path) -> dict[str, str]:
    """Read /proc/meminfo and the memory files of the process's groups."""
    return {**read_texts(root, ["proc/meminfo"]), **cgroup.probe(root)}


def parse(texts: Texts) -> Memory:
    """Build the facts in bytes; what /proc/meminfo does not say is 0."""
    values = _meminfo(texts.get("proc/meminfo", ""))
    version, limit, used = cgroup.memory(texts)
    free = values.get("MemFree", 0) + values.get("Buffers", 0) + values.get("Cached", 0)
    return Memory(
        total=values.get("MemTotal", 0),
        available=values.get("MemAvailable", free),
        swap_total=values.get("SwapTotal", 0),
        swap_free=values.get("SwapFree", 0),
        cgroup_version=version,
        limit=limit,
        used=used,
    )


def _meminfo(text: str) -> dict[str, int]:
    """Map each name to bytes (the file counts in KiB and calls it kB)."""
    pattern = r"^(?:Node \d+ )?([\w()]+):\s+(\d{1,17})(?: kB)?\s*$"
    found = re.findall(pattern, text, re.ASCII | re.MULTILINE)
    return {name: int(number) * 1024 for name, number in found}


def of_node(text: str) -> tuple[int | None, int | None]:
    """Return total and available bytes of a NUMA node's meminfo; None for what it does not say.

    The kernel gives no MemAvailable for a node: what is free, file cache and reclaimable slabs.
    """
    values = _meminfo(text)
    parts = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")
    available = sum(values.get(name, 0) for name in parts) if "MemFree" in values else None
    return values.get("MemTotal"), available
