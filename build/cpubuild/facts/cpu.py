"""The processor: what /proc/cpuinfo, sysfs and the control groups say of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from cpubuild.facts import cgroup
from cpubuild.facts.model import Cpu
from cpubuild.facts.read import Texts, colon_fields, cpu_list, read_texts

FILES = (
    "uname",
    "proc/cpuinfo",
    "proc/version",
    "proc/self/status",
    "proc/sysinfo",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/offline",
    "sys/devices/system/cpu/present",
    "sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list",
    "sys/devices/system/clocksource/clocksource0/available_clocksource",
    "sys/hypervisor/type",
    "sys/class/dmi/id/sys_vendor",
    "sys/class/dmi/id/product_name",
    "proc/device-tree/hypervisor/compatible",
)
ARCHES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
MARKS = (
    ("aarch64", r"^CPU implementer\s*:"),
    ("x86_64", r"^flags\s*:.*\blm\b"),
    ("ppc64le", r"^cpu\s*:\s*POWER"),
    ("s390x", r"^vendor_id\s*:\s*IBM/S390"),
    ("riscv64", r"^isa\s*:\s*rv64"),
)
HYPERVISORS = (
    ("kvm", r"kvm-clock|\bKVM\b|linux,kvm|qemu"),
    ("hyper-v", r"hyperv_clocksource|Microsoft Corporation|microsoft"),
    ("vmware", r"VMware"),
    ("xen", r"\bxen\b"),
    ("virtualbox", r"VirtualBox|innotek"),
    ("kvm", r"Google Compute Engine|Amazon EC2|OpenStack|DigitalOcean|Alibaba Cloud"),
    ("powervm", r"CHRP IBM|pSeries"),
    ("z/vm", r"z/VM"),
)


def probe(root: Path) -> dict[str, str]:
    """Read the processor's files under ``root``; ``uname`` is made when the root is ``/``."""
    texts = read_texts(root, FILES)
    if root == Path("/"):
        system = os.uname()
        texts["uname"] = f"{system.sysname} {system.release} {system.machine}"
    return {**texts, **cgroup.probe(root)}


def parse(texts: Texts) -> Cpu:
    """Build the facts; words that the kernel did not give are empty, numbers None."""
    info = texts.get("proc/cpuinfo", "")
    arch = architecture(texts)
    fields = colon_fields(info)
    numbers = _numbers(info)
    online = cpu_list(texts.get("sys/devices/system/cpu/online", "")) or numbers
    return Cpu(
        arch=arch,
        vendor=_vendor(arch, fields),
        model=_model(arch, fields),
        flags=_flags(arch, info, fields),
        logical=len(online) or 1,
        physical=_cores(texts, online),
        allowed=_allowed(texts, online) or (0,),
        offline=_offline(texts, online),
        quota=cgroup.cpu_quota(texts),
        hypervisor=_hypervisor(arch, texts, fields),
        siblings=_siblings(texts, online),
    )


def architecture(texts: Texts) -> str:
    """Return the machine name: the kernel's own when recorded, else what cpuinfo looks like."""
    words = texts.get("uname", "").split()
    if words:
        return ARCHES.get(words[-1], words[-1])
    info = texts.get("proc/cpuinfo", "")
    return next((arch for arch, mark in MARKS if re.search(mark, info, re.MULTILINE)), "unknown")


def kernel(texts: Texts) -> str:
    """Return the kernel's release (``6.1.0-13-amd64``), "" when unknown."""
    words = texts.get("uname", "").split()
    if len(words) > 1:
        return words[1]
    match = re.match(r"Linux version (\S+)", texts.get("proc/version", ""))
    return match[1] if match else ""


def _flags(arch: str, info: str, fields: dict[str, str]) -> frozenset[str]:
    if arch == "ppc64le":
        words = re.findall(r"[\w+]+", fields.get("cpu", ""))
        return frozenset(words) - {"supported", "architected", "raw"}
    if arch == "riscv64":
        return frozenset(_riscv_extensions(fields.get("isa", "")))
    key = {"x86_64": "flags", "aarch64": "Features", "s390x": "features"}.get(arch, "flags")
    lines = re.findall(rf"^{key}[ \t]*:(.*)$", info, re.MULTILINE)
    sets = [frozenset(line.split()) for line in lines]
    return frozenset.intersection(*sets) if sets else frozenset()


def _riscv_extensions(isa: str) -> Iterator[str]:
    base, *longer = isa.lower().split("_")
    match = re.match(r"(rv\d+)([a-z]*)", base)
    if match:
        yield match[1]
        yield from match[2]
    yield from (word for word in longer if word)


def _vendor(arch: str, fields: dict[str, str]) -> str:
    if arch == "aarch64":
        return _arm_vendors().get(fields.get("CPU implementer", ""), "")
    if arch in ("ppc64le", "s390x"):
        return "IBM"
    return fields.get("vendor_id", fields.get("mvendorid", ""))


def _model(arch: str, fields: dict[str, str]) -> str:
    if arch == "aarch64":
        part = fields.get("CPU part", "")
        named = fields.get("Model") or fields.get("Hardware") or ""
        core = _arm_core(fields.get("CPU implementer", ""), part) or part
        return f"{named} ({core})" if named and core else named or core
    if arch == "ppc64le":
        return fields.get("cpu", "").partition(",")[0]
    if arch == "s390x":
        return fields.get("processor 0", "").rpartition("machine =")[2].strip()
    return fields.get("model name") or fields.get("uarch", "")


def _arm_vendors() -> dict[str, str]:
    from archspec.cpu.schema import TARGETS_JSON

    return dict(TARGETS_JSON["conversions"]["arm_vendors"])


def _arm_core(implementer: str, part: str) -> str:
    """Return archspec's name of an ARM core ("" when its table has none)."""
    from archspec.cpu import TARGETS

    vendor = _arm_vendors().get(implementer)
    names = [t.name for t in TARGETS.values() if part and t.cpu_part == part and t.vendor == vendor]
    return names[0] if len(names) == 1 else EXTRA_ARM_CORES.get((implementer, part), "")


EXTRA_ARM_CORES = {
    ("0x41", "0xd0b"): "cortex_a76",
    ("0x41", "0xd05"): "cortex_a55",
    ("0x41", "0xd03"): "cortex_a53",
}
"""Cores of small boards that archspec does not list (ARM's main ID register, part number)."""


def _numbers(info: str) -> tuple[int, ...]:
    found = re.findall(r"^processor\s*:\s*(\d{1,5})\s*$", info, re.ASCII | re.MULTILINE)
    found += re.findall(r"^processor (\d{1,5}):", info, re.ASCII | re.MULTILINE)
    return tuple(sorted({int(number) for number in found}))


def _siblings(texts: Texts, online: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    lists = {
        cpu_list(texts.get(f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list", ""))
        for number in online
    }
    return tuple(sorted(cpus for cpus in lists if cpus))


def _cores(texts: Texts, online: tuple[int, ...]) -> int | None:
    siblings = _siblings(texts, online)
    if siblings:
        return len(siblings)
    blocks = re.split(r"\n\s*\n", texts.get("proc/cpuinfo", ""))
    cores = {
        (fields.get("physical id", "0"), fields["core id"])
        for fields in map(colon_fields, blocks)
        if "core id" in fields
    }
    return len(cores) or None


def _allowed(texts: Texts, online: tuple[int, ...]) -> tuple[int, ...]:
    """CPUs this process may use: its affinity, its cpuset and what is online, where they agree."""
    allowed = set(online)
    for numbers in (
        cpu_list(colon_fields(texts.get("proc/self/status", "")).get("Cpus_allowed_list", "")),
        cgroup.cpuset(texts),
    ):
        if numbers and allowed:
            # lxcfs numbers the CPUs it shows from 0, the affinity does not: then only that counts
            allowed = (allowed & set(numbers)) or set(numbers)
        elif numbers:
            allowed = set(numbers)
    return tuple(sorted(allowed))


def _offline(texts: Texts, online: tuple[int, ...]) -> tuple[int, ...]:
    present = cpu_list(texts.get("sys/devices/system/cpu/present", ""))
    offline = cpu_list(texts.get("sys/devices/system/cpu/offline", ""))
    # "offline" counts slots that hold no CPU at all; "present" leaves those out
    return tuple(n for n in offline if n not in online and (not present or n in present))


def _hypervisor(arch: str, texts: Texts, fields: dict[str, str]) -> str | None:
    hints = "\n".join(
        (
            texts.get("sys/devices/system/clocksource/clocksource0/available_clocksource", ""),
            texts.get("sys/hypervisor/type", ""),
            texts.get("sys/class/dmi/id/sys_vendor", ""),
            texts.get("sys/class/dmi/id/product_name", ""),
            texts.get("proc/device-tree/hypervisor/compatible", ""),
            texts.get("proc/version", "") if "microsoft" in texts.get("proc/version", "") else "",
            texts.get("proc/sysinfo", "") if arch == "s390x" else "",
            fields.get("machine", "") if arch == "ppc64le" else "",
        )
    )
    if arch == "x86_64" and not re.search(r"\bhypervisor\b", fields.get("flags", "")):
        return None
    named = next(
        (name for name, mark in HYPERVISORS if re.search(mark, hints, re.IGNORECASE)), None
    )
    return named or ("unnamed" if arch == "x86_64" else None)
