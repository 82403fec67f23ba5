"""NUMA nodes from sysfs; a container without sysfs has none to show."""

from __future__ import annotations

import re
from pathlib import Path

from cpubuild.facts.memory import of_node
from cpubuild.facts.model import NumaNode
from cpubuild.facts.read import Texts, cpu_list, read_texts

FOLDER = "sys/devices/system/node"


def probe(root: Path) -> dict[str, str]:
    """Read the CPU list and meminfo of every node."""
    return read_texts(root, [f"{FOLDER}/node[0-9]*/{name}" for name in ("cpulist", "meminfo")])


def parse(texts: Texts) -> tuple[NumaNode, ...]:
    """Return the nodes by number; empty when sysfs shows none."""
    found = (
        re.fullmatch(rf"{FOLDER}/node(0|[1-9]\d{{0,4}})/cpulist", name, re.ASCII) for name in texts
    )
    numbers = sorted(int(match[1]) for match in found if match)
    nodes = []
    for number in numbers:
        total, available = of_node(texts.get(f"{FOLDER}/node{number}/meminfo", ""))
        cpus = cpu_list(texts[f"{FOLDER}/node{number}/cpulist"])
        nodes.append(NumaNode(id=number, cpus=cpus, memory_total=total, memory_available=available))
    return tuple(nodes)
