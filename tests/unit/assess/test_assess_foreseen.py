"""Failures that people met: each described as a host, and the finding that foresees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from cpubuild.assess import Needs, Surroundings, assess, registry
from cpubuild.assess.surroundings import Distribution
from cpubuild.errors import ExitCode
from cpubuild.facts.model import HostFacts, Interpreter, Reach, Tool
from cpubuild.findings import Finding

GIB = 1 << 30
NOTHING: Mapping[str, Any] = MappingProxyType({})
AVX2 = frozenset({"avx", "avx2", "f16c", "fma"})
SSE = frozenset({"sse4_2", "hypervisor"})
ARM = frozenset({"asimd", "asimddp", "fphp", "asimdhp"})
SITE = "/venv/lib/python3.12/site-packages"


def arm(**more: Any) -> dict[str, Any]:
    return {"arch": "aarch64", "model": "Neoverse-N1", "flags": ARM, **more}


def dist(name: str, version: str) -> Distribution:
    return Distribution(name=name, version=version, location=SITE)


def tool(name: str, path: str | None, version: str | None = None) -> tuple[Tool, ...]:
    return (
        Tool(name="git", path="/usr/bin/git", version="2"),
        Tool(name=name, path=path, version=version),
    )


class Case(NamedTuple):
    """A failure's id, the release, what the host is changed to, and what must be said of it."""

    case: str
    version: str
    check: str
    status: str
    host: Mapping[str, Any] = NOTHING
    compiler: Mapping[str, Any] | None = None
    around: Mapping[str, Any] = NOTHING
    needs: Mapping[str, Any] = NOTHING
    says: str = ""


PYTORCH = "https://download.pytorch.org/whl"
OLD_PYTHON = Interpreter(
    path="/usr/bin/python3.12", version="3.12.3", implementation="CPython", headers=False, venv=True
)
CASES = (
    Case(
        "uv-first-index-cmake",
        "0.10.2",
        "environment.pip",
        "warn",
        {"environment": {"UV_INDEX_URL": f"{PYTORCH}/cpu"}},
        says="unsafe-best-match",
    ),
    Case(
        "uv-first-index-cmake",
        "0.9.2",
        "environment.pip",
        "warn",
        around={"pip_config": (f"/etc/pip.conf: index-url = {PYTORCH}/cpu",)},
        says="extra-index-url",
    ),
    Case(
        "cuda-wheel-on-cpu-node",
        "0.32.0",
        "environment.pip",
        "warn",
        {"environment": {"UV_TORCH_BACKEND": "cu128"}},
        says="UV_TORCH_BACKEND=cpu",
    ),
    Case(
        "cuda-wheel-on-cpu-node",
        "0.32.0",
        "environment.pip",
        "warn",
        {"environment": {"PIP_EXTRA_INDEX_URL": f"{PYTORCH}/cu121"}},
        says="CUDA",
    ),
    Case(
        "aarch64-no-pip-wheel",
        "0.12.0",
        "host.libc",
        "blocker",
        {"cpu": arm(), "libc": {"version": "2.26"}},
        says="manylinux",
    ),
    Case(
        "submodule-tls-curl56",
        "0.32.0",
        "network.github",
        "warn",
        {
            "reach": (
                Reach(
                    name="https://github.com/vllm-project/vllm.git",
                    ok=False,
                    seconds=3.0,
                    detail="gnutls_handshake() failed",
                ),
            )
        },
        says="gnutls",
    ),
    Case(
        "gcc-12-3-floor",
        "0.32.0",
        "toolchain.gxx",
        "warn",
        compiler={"version": "12.2.0"},
        says="12.3",
    ),
    Case(
        "gcc-12-3-floor",
        "0.17.1",
        "toolchain.gxx",
        "blocker",
        compiler={"version": "11.4.0", "options": (("-mamx-bf16", False),)},
        says="g++",
    ),
    Case(
        "gcc-12-3-floor",
        "0.14.1",
        "toolchain.gxx",
        "warn",
        compiler={"version": "11.4.0"},
        says="without BF16",
    ),
    Case(
        "avx512-required-old",
        "0.5.0",
        "release.avx512_required",
        "blocker",
        {"cpu": {"flags": AVX2}},
        says="0.5.1",
    ),
    Case(
        "no-avx2-cpu",
        "0.32.0",
        "isa.level",
        "blocker",
        {"cpu": {"flags": SSE, "model": "QEMU Virtual CPU", "hypervisor": "kvm"}},
        says="host",
    ),
    Case(
        "no-avx2-cpu",
        "0.32.0",
        "isa.hidden",
        "warn",
        {"cpu": {"flags": SSE, "model": "QEMU Virtual CPU", "hypervisor": "kvm"}},
        says="avx2",
    ),
    Case(
        "arm-march-feature-modifier",
        "0.8.5",
        "toolchain.options",
        "blocker",
        {"cpu": arm()},
        compiler={"version": "7.5.0", "options": (("-march=armv8.2-a+dotprod+fp16", False),)},
        says="dotprod",
    ),
    Case("aarch64-no-bf16", "0.9.2", "release.arm_bf16", "warn", {"cpu": arm()}, says="float32"),
    Case("aarch64-no-bf16", "0.32.0", "isa.bf16", "warn", {"cpu": arm()}, says="float32"),
    Case(
        "mla-decode-ppc64le",
        "0.14.1",
        "release.mla_decode",
        "warn",
        {"cpu": {"arch": "ppc64le", "model": "POWER9", "flags": frozenset({"POWER9"})}},
        says="mla_decode",
    ),
    Case(
        "mla-decode-ppc64le",
        "0.32.0",
        "host.arch",
        "warn",
        {"cpu": {"arch": "ppc64le", "model": "POWER9", "flags": frozenset({"POWER9"})}},
    ),
    Case(
        "python-headers-missing",
        "0.32.0",
        "python.headers",
        "blocker",
        {"interpreters": (OLD_PYTHON,)},
        says="python3.12-dev",
    ),
    Case(
        "python-headers-missing",
        "0.32.0",
        "toolchain.cmake",
        "ok",
        {"tools": tool("cmake", "/usr/bin/cmake", "3.25.1")},
        says="3.26.1",
    ),
    Case(
        "cmake-too-old",
        "0.32.0",
        "toolchain.cmake",
        "ok",
        {"tools": tool("cmake", "/usr/bin/cmake", "3.20.4")},
        says="3.20.4",
    ),
    Case(
        "cmake-3-26-0-sabi",
        "0.9.0",
        "toolchain.cmake",
        "ok",
        {"tools": tool("cmake", "/usr/bin/cmake", "3.26.0")},
        says="abi3",
    ),
    Case(
        "onednn-clone-failed",
        "0.32.0",
        "network.onednn",
        "warn",
        {
            "reach": (
                Reach(
                    name="https://github.com/uxlfoundation/oneDNN.git",
                    ok=False,
                    seconds=3.0,
                    detail="timed out",
                ),
            )
        },
        says="--onednn",
    ),
    Case("torch-build-vs-run-pin-mismatch", "0.9.2", "python.torch", "warn", says="2.7.0"),
    Case(
        "caffe2-uses-cuda-build-isolation",
        "0.9.2",
        "existing.torch",
        "warn",
        around={"distributions": (dist("torch", "2.6.0+cu124"),)},
        says="Caffe2",
    ),
    Case(
        "caffe2-uses-cuda-build-isolation",
        "0.9.2",
        "environment.accelerator",
        "warn",
        {"environment": {"CUDA_HOME": "/usr/local/cuda"}},
    ),
    Case(
        "numpy-missing-in-build-env", "0.9.2", "release.no_suffix", "ok", says="VLLM_TARGET_DEVICE"
    ),
    Case(
        "numpy-missing-in-build-env",
        "0.9.2",
        "environment.target_device",
        "warn",
        {"environment": {"VLLM_TARGET_DEVICE": "cuda"}},
        says="Unknown runtime",
    ),
    Case(
        "setuptools-scm-no-version",
        "0.16.0",
        "environment.version_override",
        "warn",
        {"environment": {"VLLM_VERSION_OVERRIDE": "0.16.0"}},
        says="0.16.0+cpu",
    ),
    Case("missing-setuptools-rust", "0.32.0", "release.rust_build", "ok", says="setuptools_rust"),
    Case(
        "oom-compile-host-freeze",
        "0.32.0",
        "memory.compile",
        "blocker",
        {"memory": {"total": 4 * GIB, "available": 2 * GIB}, "container": {"kind": "wsl2"}},
        says=".wslconfig",
    ),
    Case(
        "oom-compile-host-freeze",
        "0.32.0",
        "memory.compile",
        "warn",
        needs={"jobs": 64},
        says="--jobs",
    ),
    Case(
        "macos-homebrew-llvm-libcxxabi",
        "0.11.2",
        "environment.compilers",
        "warn",
        {"environment": {"CC": "gcc", "CXX": "clang++"}},
    ),
    Case(
        "sdist-inconsistent-version-cpu",
        "0.7.2",
        "release.sdist_version",
        "ok",
        says="inconsistent version",
    ),
    Case(
        "rust-needed-by-dependency-arm",
        "0.20.0",
        "release.wheels_from_source",
        "warn",
        {"cpu": {"arch": "s390x", "model": "IBM/S390", "flags": frozenset({"vx", "vxe"})}},
        says="Rust",
    ),
    Case(
        "tmp-disk-full",
        "0.32.0",
        "disk.tmp",
        "blocker",
        {"disks": ("tmp", {"free": GIB // 2, "filesystem": "tmpfs"})},
        says="TMPDIR",
    ),
    Case(
        "tmp-disk-full",
        "0.32.0",
        "disk.inodes",
        "blocker",
        {"disks": ("state", {"free_inodes": 1000})},
        says="inodes",
    ),
    Case(
        "no-executable-after-build",
        "0.5.1",
        "environment.accelerator",
        "warn",
        {"environment": {"ROCM_HOME": "/opt/rocm"}},
    ),
    Case(
        "glibc-2-34-not-found-at-import",
        "0.20.0",
        "host.libc",
        "blocker",
        {"libc": {"version": "2.17"}},
        says="GLIBC",
    ),
    Case(
        "undefined-symbol-c10-abi",
        "0.32.0",
        "existing.torch",
        "warn",
        around={"distributions": (dist("torch", "2.9.0+cpu"), dist("vllm", "0.32.0+cpu"))},
        says="undefined symbol",
    ),
    Case(
        "vllm-gpu-wheel-on-cpu",
        "0.8.5",
        "existing.vllm",
        "warn",
        around={"distributions": (dist("vllm", "0.8.5"),)},
        says="cpu",
    ),
    Case(
        "unspecified-platform",
        "0.9.2",
        "existing.vllm",
        "warn",
        around={"distributions": (dist("vllm", "0.9.2"), dist("vllm", "0.9.2+cpu"))},
        says="claim",
    ),
    Case(
        "two-platforms-cpu-cuda",
        "0.7.2",
        "release.two_platforms",
        "warn",
        around={"accelerators": ("/dev/nvidia0",)},
        says="0.8.0",
    ),
    Case(
        "sigill-prebuilt-avx512",
        "0.14.1",
        "release.wheel_isa",
        "warn",
        {"cpu": {"flags": AVX2}},
        says="132",
    ),
    Case(
        "sigill-prebuilt-avx512",
        "0.17.1",
        "isa.target",
        "warn",
        {"cpu": {"flags": AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}}},
        says="0.20.0",
    ),
    Case(
        "ucx-nixl-no-avx",
        "0.26.0",
        "isa.avx",
        "warn",
        {"cpu": {"flags": SSE}},
        around={"distributions": (dist("nixl", "0.7.1"),)},
        says="uninstall nixl",
    ),
    Case(
        "riscv-platform",
        "0.14.1",
        "release.riscv_inductor",
        "warn",
        {"cpu": {"arch": "riscv64", "model": "", "flags": frozenset({"v", "zvfhmin"})}},
        says="TORCH_COMPILE_DISABLE",
    ),
    Case(
        "c-ops-missing-silu",
        "0.8.3",
        "existing.source_tree",
        "warn",
        around={"source_tree": "/home/me/vllm"},
        says="no attribute",
    ),
    Case(
        "c-ops-missing-silu",
        "0.32.0",
        "libraries.numa_runtime",
        "blocker",
        {"libraries": {"numa_runtime": None}},
        says="libnuma1",
    ),
    Case(
        "stale-aot-compile-cache",
        "0.15.0",
        "existing.cache",
        "warn",
        around={"caches": ("/root/.cache/vllm/torch_aot_compile",)},
        says="rm -r",
    ),
    Case(
        "shm-too-small",
        "0.32.0",
        "container.shm",
        "warn",
        {"container": {"kind": "docker", "shm": 64 << 20}},
        says="--shm-size",
    ),
    Case(
        "shm-too-small",
        "0.32.0",
        "container.shm",
        "warn",
        {"container": {"kind": "kubernetes", "shm": 64 << 20}},
        says="emptyDir",
    ),
    Case(
        "get-mempolicy-eperm",
        "0.32.0",
        "container.seccomp",
        "warn",
        {"container": {"kind": "docker", "get_mempolicy": "EPERM", "mbind": "EPERM"}},
        says="SYS_NICE",
    ),
    Case(
        "numa-migrate-pages-eperm",
        "0.8.0",
        "release.migrate_pages",
        "warn",
        {"container": {"kind": "docker", "get_mempolicy": "EPERM", "mbind": "EPERM"}},
        says="numa_migrate_pages",
    ),
    Case(
        "cpuset-sched-setaffinity-einval",
        "0.32.0",
        "environment.omp_bind",
        "warn",
        {"cpu": {"allowed": (0, 1)}, "environment": {"VLLM_CPU_OMP_THREADS_BIND": "0-3"}},
        says="CPU 2, 3",
    ),
    Case(
        "reserved-cpu-assertion",
        "0.16.0",
        "host.cores",
        "warn",
        {"cpu": {"logical": 2, "physical": 1, "allowed": (0, 1)}},
        says="VLLM_CPU_NUM_OF_RESERVED_CPU=0",
    ),
    Case(
        "lscpu-node-key-missing-arm", "0.20.0", "host.numa", "unknown", {"numa": ()}, says="nobind"
    ),
    Case(
        "lscpu-node-key-missing-arm",
        "0.20.0",
        "container.lscpu",
        "warn",
        {"tools": tool("lscpu", None)},
        says="util-linux",
    ),
    Case(
        "omp-one-core-only",
        "0.9.2",
        "environment.openmp",
        "warn",
        {"environment": {"LD_PRELOAD": "/a/libgomp.so.1:/b/libiomp5.so"}},
        says="one OpenMP",
    ),
    Case(
        "omp-one-core-only",
        "0.9.2",
        "environment.threads",
        "warn",
        {"environment": {"OMP_NUM_THREADS": "1"}},
    ),
    Case(
        "tcmalloc-not-preloaded-crash",
        "0.17.1",
        "release.tcmalloc_mandatory",
        "warn",
        says="LD_PRELOAD",
    ),
    Case(
        "tcmalloc-not-preloaded-crash",
        "0.32.0",
        "libraries.tcmalloc",
        "warn",
        {"libraries": {"tcmalloc": None}},
        says="libtcmalloc-minimal4t64",
    ),
    Case(
        "kv-cache-space-too-small",
        "0.11.2",
        "release.kv_default_4g",
        "ok",
        says="VLLM_CPU_KVCACHE_SPACE",
    ),
    Case(
        "kv-cache-space-too-small",
        "0.32.0",
        "environment.kv_space",
        "warn",
        {"environment": {"VLLM_CPU_KVCACHE_SPACE": "0.5"}},
        says="whole number",
    ),
    Case(
        "ram-not-all-used",
        "0.26.0",
        "release.memory_fraction",
        "warn",
        {"memory": {"total": 8 * GIB, "available": 7 * GIB}},
        says="gpu-memory-utilization",
    ),
    Case(
        "ram-not-all-used",
        "0.32.0",
        "memory.kv_default",
        "warn",
        {"memory": {"available": 40 * GIB}},
        says="--kv-cache-memory-bytes",
    ),
    Case(
        "swap-space-too-large",
        "0.9.2",
        "release.swap_space",
        "warn",
        {"memory": {"total": 8 * GIB, "available": 7 * GIB}},
        says="--swap-space",
    ),
    Case(
        "reshape-and-cache-half",
        "0.8.5",
        "existing.ipex",
        "warn",
        around={
            "distributions": (dist("torch", "2.7.0"), dist("intel_extension_for_pytorch", "2.6.0"))
        },
        says="Half",
    ),
    Case(
        "inductor-no-cxx-at-runtime",
        "0.32.0",
        "toolchain.runtime",
        "warn",
        {"compilers": ()},
        says="InvalidCxxCompiler",
    ),
    Case(
        "inductor-scheduler-assert-torch-2-9",
        "0.11.1",
        "release.inductor_torch_2_9",
        "warn",
        around={"distributions": (dist("torch", "2.9.0"),)},
        says="2.8",
    ),
    Case("not-support-device-type-cpu", "0.10.0", "release.device_option", "ok", says="--device"),
    Case("accelerator-none-shutdown", "0.20.0", "release.shutdown_noise", "ok", says="cosmetic"),
)


@pytest.fixture
def judged(host, change, known, make_gxx) -> Callable[[Case], dict[str, Finding]]:
    """The findings about the host that a case describes, by id."""

    def judge(case: Case) -> dict[str, Finding]:
        parts = dict(case.host)
        if "disks" in parts:
            purpose, values = parts.pop("disks")
            parts["disks"] = tuple(
                type(d)(**{**{f: getattr(d, f) for f in d.__slots__}, **values})
                if d.purpose == purpose
                else d
                for d in host.disks
            )
        if case.compiler is not None:
            parts["compilers"] = (make_gxx(**case.compiler),)
        facts: HostFacts = change(host, **parts)
        found = assess(
            facts,
            known(case.version, facts.cpu.arch),
            needs=Needs(**case.needs),
            around=Surroundings(**case.around),
        )
        return {f.id: f for f in found}

    return judge


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.case}:{c.check}")
def test_a_failure_is_foreseen(case: Case, judged) -> None:
    finding = judged(case)[case.check]
    text = " ".join((finding.found, finding.needed, finding.why, *finding.remedy))
    assert finding.status.value == case.status, finding
    assert case.says in text
    assert case.case in registry()[case.check].cases
    assert finding.remedy or finding.status.value == "ok"


def test_most_of_the_reported_failures_are_in_the_table() -> None:
    assert len({case.case for case in CASES}) >= 45


@pytest.mark.parametrize("check", sorted({case.check for case in CASES if case.status != "ok"}))
def test_a_good_host_has_none_of_it(check: str, host, release) -> None:
    found = {f.id: f.status.value for f in assess(host, release)}
    assert found.get(check, "ok") == "ok"


def test_a_good_host_has_no_warning_at_all(host, release) -> None:
    odd = [f for f in assess(host, release) if f.status.value != "ok"]
    assert odd == []


def test_unsupported_is_told_from_missing(judged) -> None:
    cpu = judged(next(c for c in CASES if c.case == "no-avx2-cpu"))["isa.level"]
    numa = judged(next(c for c in CASES if c.check == "libraries.numa_runtime"))
    assert cpu.exit_code is ExitCode.UNSUPPORTED
    assert numa["libraries.numa_runtime"].exit_code is ExitCode.PREREQUISITE
