"""Every recorded host gives the facts its expected.json states."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from cpubuild.facts import isa
from cpubuild.facts.collect import collect
from cpubuild.facts.model import HostFacts
from cpubuild.facts.serial import facts_from_json, facts_to_json

HOSTS = Path(__file__).parents[2] / "hosts"
FOLDERS = sorted(path.parent for path in HOSTS.glob("*/expected.json"))
VERDICTS = {
    "amx-bf16": "AMX and BF16",
    "avx512-bf16": "AVX512 and BF16",
    "avx512": "AVX512",
    "avx2": "AVX2 only",
    "unsupported": "not supported",
    "neon": "NEON only",
    "neon-bf16-i8mm": "NEON, BF16 and I8MM",
    "vsx": "VSX",
    "vsx-mma": "VSX and MMA",
    "vxe": "VXE",
    "rvv": "RVV",
}


@cache
def facts_of(folder: Path) -> HostFacts:
    return collect(folder, disks={})


@cache
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hosts_make", HOSTS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def observed(facts: HostFacts) -> dict[str, object]:
    cpu, memory, around = facts.cpu, facts.memory, facts.container
    return {
        "arch": cpu.arch,
        "vendor": cpu.vendor,
        "model": cpu.model,
        "isa": sorted(isa.isa_of(cpu)),
        "x86_target": isa.x86_target(cpu) or "",
        "level": isa.level(cpu),
        "logical": cpu.logical,
        "physical": cpu.physical,
        "allowed": list(cpu.allowed),
        "offline": list(cpu.offline),
        "quota": cpu.quota,
        "hypervisor": cpu.hypervisor or "",
        "memory_total": memory.total,
        "swap_total": memory.swap_total,
        "cgroup_version": memory.cgroup_version,
        "limit": memory.limit,
        "used": memory.used,
        "nodes": len(facts.numa),
        "container": around.kind,
        "get_mempolicy": around.get_mempolicy,
        "shm": around.shm,
        "family": facts.distro.family,
        "libc": f"{facts.libc.name} {facts.libc.version}",
        "kernel": facts.kernel,
    }


def test_there_are_enough_hosts() -> None:
    assert len(FOLDERS) >= 20


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_facts_are_those_expected(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    assert expected.pop("source")
    seen = observed(facts_of(folder))
    assert {"isa", "level"} <= expected.keys()
    assert {name: seen[name] for name in expected} == expected


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_name_of_a_host_is_its_verdict(folder: Path) -> None:
    verdict, _, machine = folder.name.partition("--")
    assert machine
    assert isa.level(facts_of(folder).cpu) == VERDICTS[verdict]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_facts_survive_json(folder: Path) -> None:
    facts = facts_of(folder)
    assert facts_from_json(json.loads(json.dumps(facts_to_json(facts)))) == facts


def test_folders_are_what_the_table_makes() -> None:
    made = {row["name"]: make().host_files(row) for row in make().rows()}
    assert len(made) == len(make().rows())
    for name, files in made.items():
        kept = {
            path.relative_to(HOSTS / name).as_posix(): path.read_text("utf-8")
            for path in (HOSTS / name).rglob("*")
            if path.is_file()
        }
        assert kept == files, name
    assert {folder.name for folder in FOLDERS} - made.keys() == {"amx-bf16--sapphire-rapids-vm"}


def test_the_recorded_machine_names_nobody() -> None:
    assert (
        make().scrub("Linux version 6.1.0-x (me@there) a") == "Linux version 6.1.0 (builder@host) a"
    )
    group = "4:memory:/some-service/0123456789abcdef0123456789abcdef"
    assert make().scrub(group) == "4:memory:/service/unit"
    assert make().scrub("1 2 0:3 / /mnt/x rw - ext4 d rw\nkept\n") == "kept\n"
