"""Judgements about environment variables, from pure readings of their values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from cpubuild.assess.base import Context, fine, state
from cpubuild.assess.indexes import pip
from cpubuild.assess.surroundings import split_preload
from cpubuild.choose.levels import among, version_of
from cpubuild.choose.tables import table
from cpubuild.findings import Finding, Status

OPENMP = re.compile(r"/?(?:[^/]*/)*(lib(?:iomp5|gomp|omp))(?:-[0-9a-f]+)?\.so")
RISKY_FLAGS = re.compile(r"(?:^|\s)(-march=\S+|-mcpu=\S+|-mno-\S+|-std=\S+|-O0|-Ofast|-ffast-math)")


def parse_cpus(text: str) -> tuple[frozenset[int], ...] | None:
    """The CPU numbers of each rank in 0-3,8|4-7; None when it is not such a list."""
    ranks: list[frozenset[int]] = []
    for rank in text.split("|"):
        cpus: set[int] = set()
        for part in rank.split(","):
            match = re.fullmatch(r"\s*(\d{1,5})(?:-(\d{1,5}))?\s*", part)
            if match is None:
                return None
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                return None
            cpus.update(range(first, last + 1))
        ranks.append(frozenset(cpus))
    return tuple(ranks)


def openmp_runtimes(preload: str) -> tuple[str, ...]:
    """The OpenMP runtimes that LD_PRELOAD names, each once: libgomp, libiomp5, libomp."""
    found = (OPENMP.fullmatch(entry.split(".so")[0] + ".so") for entry in split_preload(preload))
    return tuple(dict.fromkeys(match[1] for match in found if match))


def target_device(ctx: Context) -> Iterator[Finding]:
    """Which backend a build by hand would take, and what masks a wrong wheel at run time."""
    value = ctx.env("VLLM_TARGET_DEVICE")
    if value is None:
        return
    if value.lower() != "cpu":
        yield state(
            "environment.target_device",
            Status.WARN,
            f"VLLM_TARGET_DEVICE={value}",
            needed="cpu, or unset",
            why="A build by hand would make another backend (Unknown runtime environment, CUDA not "
            "found); the builds of this tool set cpu themselves.",
            remedy=("unset VLLM_TARGET_DEVICE", "export VLLM_TARGET_DEVICE=cpu"),
        )
    elif ctx.release.platform_detection == "env":
        yield state(
            "environment.target_device",
            Status.WARN,
            "VLLM_TARGET_DEVICE=cpu",
            needed="unset when vLLM runs",
            why="From 0.28 on it forces the CPU platform at run time, so a CUDA wheel looks right "
            "until it is used; verification unsets it.",
            remedy=("unset VLLM_TARGET_DEVICE  # after the build",),
        )
    else:
        yield fine("environment.target_device", "cpu")


def visible_devices(ctx: Context) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES hides a GPU from vLLM's probes."""
    value = dict(ctx.facts.environment).get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return
    yield state(
        "environment.visible_devices",
        Status.WARN,
        f"CUDA_VISIBLE_DEVICES={value}",
        needed="unset",
        why="It changes how vLLM's platform probes answer, so what works here need not work where "
        "it is unset; a CPU build needs none of it.",
        remedy=("unset CUDA_VISIBLE_DEVICES",),
    )


def ld_preload(ctx: Context) -> Iterator[Finding]:
    """What is preloaded into every process."""
    value = ctx.env("LD_PRELOAD")
    if value is None:
        return
    missing = ctx.around.preload_missing or ()
    runtimes = openmp_runtimes(value)
    evidence = (f"LD_PRELOAD={value}",)
    if missing:
        yield state(
            "environment.ld_preload",
            Status.WARN,
            f"LD_PRELOAD names {', '.join(missing)}, which is not there",
            why="Every program prints: object cannot be preloaded, and runs without it.",
            remedy=("unset LD_PRELOAD", "export LD_PRELOAD=PATHS  # of files that exist"),
            evidence=evidence,
        )
    if len(runtimes) > 1:
        yield state(
            "environment.openmp",
            Status.WARN,
            f"{' and '.join(runtimes)} are both preloaded",
            needed="one OpenMP runtime",
            why="vLLM refuses to start so (AssertionError), and two runtimes put all threads on "
            "one core.",
            remedy=("export LD_PRELOAD=PATHS  # tcmalloc and one of them",),
            evidence=evidence,
        )
    if not missing and len(runtimes) < 2:
        yield fine("environment.ld_preload", value)


def compilers(ctx: Context) -> Iterator[Finding]:
    """CC without CXX, or the other way round, and compilers of two kinds."""
    cc, cxx = ctx.env("CC"), ctx.env("CXX")
    if cc is None and cxx is None:
        return
    kinds = {"clang" if "clang" in value else "gnu" for value in (cc, cxx) if value}
    if cc is None or cxx is None or len(kinds) > 1:
        yield state(
            "environment.compilers",
            Status.WARN,
            f"CC={cc or '(unset)'} CXX={cxx or '(unset)'}",
            needed="both, of one compiler and one version",
            why="CMake takes what is unset from PATH, which can be another version.",
            remedy=("export CC=gcc-VERSION CXX=g++-VERSION", "unset CC CXX"),
        )
    else:
        yield fine("environment.compilers", f"CC={cc} CXX={cxx}")


def flags(ctx: Context) -> Iterator[Finding]:
    """Compiler flags that change what is compiled for."""
    found = {
        name: RISKY_FLAGS.findall(value)
        for name in ("CFLAGS", "CXXFLAGS", "CPPFLAGS")
        if (value := ctx.env(name))
    }
    if not found:
        return
    risky = [f"{name}: {' '.join(options)}" for name, options in found.items() if options]
    if risky:
        yield state(
            "environment.flags",
            Status.WARN,
            "; ".join(risky),
            why="These stand before vLLM's own options: the library can need instructions the CPU "
            "lacks, or fail to compile.",
            remedy=(f"unset {' '.join(found)}",),
        )
    else:
        yield fine("environment.flags", ", ".join(found))


def pythonpath(ctx: Context) -> Iterator[Finding]:
    """Folders that come before any environment's own packages."""
    found = {n: v for n in ("PYTHONPATH", "PYTHONHOME") if (v := ctx.env(n))}
    if found:
        yield state(
            "environment.pythonpath",
            Status.WARN,
            " ".join(f"{name}={value}" for name, value in found.items()),
            needed="unset",
            why="Packages there win over those of the environment: another torch (undefined "
            "symbol), or a source tree without the compiled library.",
            remedy=(f"unset {' '.join(found)}",),
        )


def suggestion(ctx: Context, name: str) -> str:
    """What to do about a variable that the release does not know."""
    for row in table("known.toml")["gone_variable"]:
        if row["name"] == name and among(ctx.release.version, row["versions"]):
            return f"unset {name}  # {row['note']}"
    close = difflib.get_close_matches(name, sorted(known_names(ctx)), n=1, cutoff=0.85)
    return f"unset {name}" + (f"  # did you mean {close[0]}?" if close else "")


def known_names(ctx: Context) -> frozenset[str]:
    """The variables that this release reads."""
    return ctx.release.env_names | ctx.release.env_names_elsewhere


def vllm_names(ctx: Context) -> Iterator[Finding]:
    """VLLM_ variables that this release does not know."""
    mine = [n for n, _ in ctx.facts.environment if n.startswith("VLLM_")]
    if not mine:
        return
    port = ctx.env("VLLM_PORT")
    if port is not None and not port.strip().isdigit():
        yield state(
            "environment.vllm_names",
            Status.WARN,
            f"VLLM_PORT={port}",
            needed="a number, or unset",
            why="vLLM reads the port of its workers there and stops. Kubernetes sets this variable "
            "in every pod beside a service that is called vllm.",
            remedy=("unset VLLM_PORT", "enableServiceLinks: false  # in the pod's spec"),
        )
        return
    if not ctx.release.env_names:
        yield state("environment.vllm_names", Status.UNKNOWN, "the release's names were not read")
        return
    strange = [name for name in mine if name not in known_names(ctx)]
    if strange:
        yield state(
            "environment.vllm_names",
            Status.WARN,
            f"{', '.join(strange)}",
            needed=f"a name that {ctx.release.version} reads",
            why="vLLM ignores what it does not know, at best with a warning.",
            remedy=tuple(suggestion(ctx, name) for name in strange),
        )
    else:
        yield fine("environment.vllm_names", ", ".join(mine))


def kv_space(ctx: Context) -> Iterator[Finding]:
    """VLLM_CPU_KVCACHE_SPACE is a whole number of GiB."""
    value = ctx.env("VLLM_CPU_KVCACHE_SPACE")
    if value is None:
        return
    if not re.fullmatch(r"\d{1,6}", value.strip()):
        yield state(
            "environment.kv_space",
            Status.WARN,
            f"VLLM_CPU_KVCACHE_SPACE={value}",
            needed="a whole number of GiB",
            why="vLLM reads it as an integer and stops at anything else (ValueError).",
            remedy=("export VLLM_CPU_KVCACHE_SPACE=4", "unset VLLM_CPU_KVCACHE_SPACE"),
        )
    elif int(value) << 30 > ctx.facts.room():
        usable = ctx.facts.room() >> 30
        yield state(
            "environment.kv_space",
            Status.WARN,
            f"VLLM_CPU_KVCACHE_SPACE={value}",
            needed=f"at most {usable} (GiB usable here), less the weights",
            why="The cache is allocated at start; the kernel ends the engine when memory does.",
            remedy=(f"export VLLM_CPU_KVCACHE_SPACE={max(1, usable // 2)}",),
        )
    else:
        yield fine("environment.kv_space", f"{value} GiB")


def omp_bind(ctx: Context) -> Iterator[Finding]:
    """CPUs that threads are bound to must be allowed here."""
    value = ctx.env("VLLM_CPU_OMP_THREADS_BIND")
    if value is None or value in ("auto", "nobind", "all"):
        return
    ranks = parse_cpus(value)
    allowed = frozenset(ctx.facts.cpu.allowed)
    if ranks is None:
        found, why = value, "vLLM stops at what is neither auto, nobind nor a list like 0-3|4-7."
    elif allowed and (outside := sorted(frozenset().union(*ranks) - allowed)):
        found = f"{value}: CPU {', '.join(map(str, outside[:8]))} is not allowed here"
        why = "Binding to it fails: sched_setaffinity, Errno 22, Invalid argument."
    elif len(ranks) != ctx.needs.tensor_parallel:
        found = f"{value}: {len(ranks)} lists for {ctx.needs.tensor_parallel} workers"
        why = "vLLM wants one list per worker (AssertionError)."
    else:
        yield fine("environment.omp_bind", value)
        return
    yield state(
        "environment.omp_bind",
        Status.WARN,
        found,
        needed="one list of allowed CPUs per worker",
        why=why,
        remedy=("export VLLM_CPU_OMP_THREADS_BIND=auto",),
    )


def one_thread(ctx: Context) -> Iterator[Finding]:
    """OMP_NUM_THREADS=1 makes vLLM slow without a word."""
    value = ctx.env("OMP_NUM_THREADS")
    if value is None:
        return
    if value == "1" and len(ctx.facts.cpu.allowed) > 1:
        yield state(
            "environment.threads",
            Status.WARN,
            f"OMP_NUM_THREADS=1 with {len(ctx.facts.cpu.allowed)} CPUs",
            why="Kernels run on one core.",
            remedy=("unset OMP_NUM_THREADS",),
        )
    else:
        yield fine("environment.threads", value)


def versions(ctx: Context) -> Iterator[Finding]:
    """Overrides of the version that would drop +cpu, by which a CPU build is recognised."""
    for name in ("VLLM_VERSION_OVERRIDE", "SETUPTOOLS_SCM_PRETEND_VERSION"):
        value = ctx.env(name)
        if value is None:
            continue
        version = version_of(value)
        if name == "VLLM_VERSION_OVERRIDE" and (version is None or "cpu" not in value):
            yield state(
                "environment.version_override",
                Status.WARN,
                f"{name}={value}",
                needed="X.Y.Z+cpu",
                why="It replaces the whole version, and without cpu in it vLLM does not recognise "
                "its platform (UnspecifiedPlatform).",
                remedy=(f"export {name}={value.split('+')[0]}+cpu", f"unset {name}"),
            )
        else:
            yield fine("environment.version_override", f"{name}={value}")


def accelerator(ctx: Context) -> Iterator[Finding]:
    """CUDA_HOME and its like make CMake look for a GPU toolkit."""
    found = {
        n: v for n in ("CUDA_HOME", "CUDA_PATH", "ROCM_HOME", "ROCM_PATH") if (v := ctx.env(n))
    }
    if found:
        yield state(
            "environment.accelerator",
            Status.WARN,
            " ".join(f"{name}={value}" for name, value in found.items()),
            needed="unset for a CPU build",
            why="setup.py and torch's CMake files look for that toolkit; the builds of this tool "
            "leave it out of their environment.",
            remedy=(f"unset {' '.join(found)}",),
        )


def proxy(ctx: Context) -> Iterator[Finding]:
    """Proxy settings that do not agree."""
    values = {n.lower(): v for n, v in ctx.facts.environment if n.lower().endswith("_proxy") and v}
    if not values:
        return
    odd = [n for n, v in values.items() if n != "no_proxy" and not re.match(r"^\w+://", v)]
    only_http = "http_proxy" in values and not {"https_proxy", "all_proxy"} & set(values)
    if odd or only_http:
        yield state(
            "environment.proxy",
            Status.WARN,
            f"{', '.join(odd)} has no scheme" if odd else "http_proxy without https_proxy",
            needed="https_proxy=http://HOST:PORT",
            why="All sources are https, and git, pip and uv read this variable each their way.",
            remedy=("export https_proxy=http://HOST:PORT",),
        )
    else:
        yield fine("environment.proxy", ", ".join(values))


JUDGES = (
    target_device,
    visible_devices,
    ld_preload,
    compilers,
    flags,
    pythonpath,
    pip,
    vllm_names,
    kv_space,
    omp_bind,
    one_thread,
    versions,
    accelerator,
    proxy,
)
