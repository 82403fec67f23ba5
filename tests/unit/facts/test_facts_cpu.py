from __future__ import annotations

import pytest

from cpubuild.facts import cpu, isa, memory, numa
from cpubuild.facts.model import Cpu
from cpubuild.facts.read import MOST_CPUS, cpu_list, integer

AVX512 = "avx512f avx512bw avx512dq avx512vl f16c avx2"


def x86(flags: str, **more: object) -> Cpu:
    return cpu.parse({"uname": "Linux 6.1 x86_64", "proc/cpuinfo": f"flags : {flags}\n"})


def test_flags_are_those_that_every_processor_has() -> None:
    info = "processor : 0\nflags : lm avx2 fma\n\nprocessor : 1\nflags : lm avx2\n"
    found = cpu.parse({"proc/cpuinfo": info})
    assert found.arch == "x86_64"
    assert found.flags == {"lm", "avx2"}
    assert found.logical == 2
    assert found.allowed == (0, 1)


def test_vmx_flags_are_not_flags() -> None:
    assert x86("lm avx2\nvmx flags : vnmi").flags == {"lm", "avx2"}


@pytest.mark.parametrize(
    ("info", "arch"),
    [
        ("CPU implementer : 0x41\n", "aarch64"),
        ("cpu\t: POWER9, altivec supported\n", "ppc64le"),
        ("vendor_id       : IBM/S390\n", "s390x"),
        ("isa\t: rv64imafdc\n", "riscv64"),
        ("flags : fpu sse2\n", "unknown"),
        ("", "unknown"),
    ],
)
def test_the_architecture_is_read_from_cpuinfo_when_uname_is_not_recorded(
    info: str, arch: str
) -> None:
    assert cpu.parse({"proc/cpuinfo": info}).arch == arch


def test_uname_decides_over_cpuinfo() -> None:
    # an emulated process sees the host's cpuinfo
    found = cpu.parse({"uname": "Linux 6.1 aarch64", "proc/cpuinfo": "flags : lm avx2\n"})
    assert found.arch == "aarch64"
    assert found.flags == frozenset()


def test_riscv_letters_and_names() -> None:
    found = cpu.parse({"proc/cpuinfo": "processor : 0\nisa : rv64imafdcv_zvfhmin_zvl256b\n"})
    assert {"rv64", "i", "m", "v", "zvfhmin", "zvl256b"} <= found.flags
    assert isa.level(found) == "RVV"


def test_arm_core_that_archspec_does_not_know_is_named_by_its_number() -> None:
    info = "CPU implementer : 0x41\nCPU part : 0xfff\nFeatures : asimd\n"
    assert cpu.parse({"proc/cpuinfo": info}).model == "0xfff"


def test_cores_are_counted_by_sibling_lists_of_the_online_cpus() -> None:
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    texts = {
        "sys/devices/system/cpu/online": "0-3\n",
        topology.format(0): "0,2\n",
        topology.format(2): "0,2\n",
        topology.format(1): "1,3\n",
        topology.format(3): "1,3\n",
        topology.format(9): "9\n",
    }
    assert cpu.parse(texts).physical == 2


def test_affinity_beyond_what_is_online_does_not_count() -> None:
    texts = {
        "sys/devices/system/cpu/online": "0-1\n",
        "proc/self/status": "Cpus_allowed_list:\t0-127\n",
    }
    assert cpu.parse(texts).allowed == (0, 1)


@pytest.mark.parametrize(
    ("flags", "files", "name"),
    [
        ("lm", {"sys/class/dmi/id/sys_vendor": "QEMU"}, None),
        ("lm hypervisor", {"sys/class/dmi/id/sys_vendor": "QEMU"}, "kvm"),
        ("lm hypervisor", {"sys/class/dmi/id/sys_vendor": "VMware, Inc."}, "vmware"),
        ("lm hypervisor", {"sys/hypervisor/type": "xen\n"}, "xen"),
        ("lm hypervisor", {"sys/class/dmi/id/sys_vendor": "Microsoft Corporation"}, "hyper-v"),
        ("lm hypervisor", {}, "unnamed"),
    ],
)
def test_hypervisor(flags: str, files: dict[str, str], name: str | None) -> None:
    texts = {"proc/cpuinfo": f"flags : {flags}\n", "uname": "Linux 6.1 x86_64", **files}
    assert cpu.parse(texts).hypervisor == name


@pytest.mark.parametrize(
    ("flags", "target", "words"),
    [
        (f"{AVX512} avx512_bf16 avx512_vnni amx_tile amx_bf16", "_C", "AMX and BF16"),
        (f"{AVX512} avx512_bf16 avx512_vnni amx_tile", "_C", "AVX512 and BF16"),
        (f"{AVX512} avx512_bf16 avx512_vnni amx_bf16", "_C", "AVX512 and BF16"),
        (f"{AVX512} amx_tile amx_bf16", "_C_AVX512", "AVX512"),
        (AVX512, "_C_AVX512", "AVX512"),
        ("avx2 f16c", "_C_AVX2", "AVX2 only"),
        ("avx2", None, "not supported"),
        ("avx2 f16c avx512f", None, "not supported"),
        (f"{AVX512} avx512_bf16", None, "not supported"),
        ("sse4_2 avx", None, "not supported"),
    ],
)
def test_target_and_level(flags: str, target: str | None, words: str) -> None:
    found = x86(flags)
    assert isa.x86_target(found) == target
    assert isa.level(found) == words


def test_the_reason_names_what_is_missing_and_who_may_hide_it() -> None:
    reason = isa.x86_reason(x86(f"{AVX512} avx512_bf16 hypervisor"))
    assert "avx512_vnni" in reason
    assert "hypervisor may hide" in reason
    assert "hypervisor" not in isa.x86_reason(x86("sse2"))
    assert "does not decide" in isa.x86_reason(
        x86(f"{AVX512} avx512_bf16 avx512_vnni amx_tile amx_bf16")
    )
    assert "unknown" in isa.x86_reason(x86(""))


def test_other_architectures_have_no_x86_target() -> None:
    found = cpu.parse({"proc/cpuinfo": "CPU implementer : 0x41\nFeatures : asimd\n"})
    assert isa.x86_target(found) is None
    assert "aarch64" in isa.x86_reason(found)
    assert isa.level(found) == "not supported"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3,8\n", (0, 1, 2, 3, 8)),
        ("", ()),
        ("5-2", ()),
        ("1,x,3", (1, 3)),
        (f"0-{10 * MOST_CPUS}", ()),
        ("0-99999999999999999999", ()),
        ("٣", ()),
    ],
)
def test_cpu_list(text: str, numbers: tuple[int, ...]) -> None:
    assert cpu_list(text) == numbers


def test_integer() -> None:
    assert integer(" -12\n") == -12
    assert integer("max") is None
    assert integer("9" * 40) is None
    assert integer(None) is None


def test_old_kernels_without_mem_available() -> None:
    text = "MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 5 kB\nCached: 20 kB\n"
    assert memory.parse({"proc/meminfo": text}).available == 35 * 1024


def test_numa_nodes_by_number_and_without_meminfo() -> None:
    texts = {f"{numa.FOLDER}/node{n}/cpulist": f"{n}\n" for n in (10, 2)}
    rows = ("MemTotal: 64", "MemFree: 8", "Active(file): 4", "Inactive(file): 2", "SReclaimable: 1")
    texts[f"{numa.FOLDER}/node2/meminfo"] = "".join(f"Node 2 {row} kB\n" for row in rows)
    seen = [(n.id, n.cpus, n.memory_total, n.memory_available) for n in numa.parse(texts)]
    assert seen == [(2, (2,), 64 << 10, 15 << 10), (10, (10,), None, None)]
