"""Judgements about memory, for compiling and for running."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cpubuild.assess.base import Context, fine, state
from cpubuild.choose.jobs import compile_shortfall, jobs_for, one_job_bytes, usable_cores
from cpubuild.choose.levels import among
from cpubuild.choose.needs import Needs
from cpubuild.choose.tables import gib, needs_table, words
from cpubuild.findings import Finding, Status

WSL_REMEDY = r"raise memory= under [wsl2] in %UserProfile%\.wslconfig, then wsl --shutdown"


def more_memory(ctx: Context) -> tuple[str, ...]:
    """Ways to more memory on this kind of machine."""
    if ctx.facts.container.kind == "wsl2":
        return (WSL_REMEDY,)
    if ctx.facts.memory.limit is not None:
        return ("raise the container's memory limit (docker run --memory, or resources.limits)",)
    make = ("fallocate -l 8G", "chmod 600", "mkswap", "swapon")
    sudo = "" if ctx.facts.container.root else "sudo "
    return (" && ".join(f"{sudo}{word} /swapfile" for word in make) + "  # slow, but it ends",)


def compiling(ctx: Context) -> Iterator[Finding]:
    """Whether compilers fit, and how many at once."""
    if not ctx.needs.source:
        return
    memory, needs = ctx.facts.memory, ctx.needs
    cores = usable_cores(ctx.facts.cpu)
    jobs, reason = jobs_for(memory, cores, needs, ctx.release)
    short = compile_shortfall(memory, needs)
    one = one_job_bytes(needs)
    heavy = needs_table()["compile"]["heaviest_file"]
    needed = f"{words(one)} for one job"
    evidence = (f"usable {words(memory.usable)}", f"swap free {words(memory.swap_free)}", reason)
    why = f"{heavy} alone takes most of it; the kernel kills compilers that find none."
    if short and (memory.swap_free < short or memory.usable < gib(1)):
        yield state(
            "memory.compile",
            Status.BLOCKER,
            f"{words(memory.usable)} usable",
            needed=needed,
            why=why,
            remedy=(*more_memory(ctx), "compile on a larger machine and copy the wheel"),
            evidence=evidence,
        )
    elif short:
        yield state(
            "memory.compile",
            Status.WARN,
            f"{words(memory.usable)} usable and {words(memory.swap_free)} of swap: 1 job",
            needed=needed,
            why=f"{why} With swap it ends, slowly.",
            remedy=more_memory(ctx),
            evidence=evidence,
        )
    elif too_many(ctx, cores):
        free, _ = jobs_for(memory, cores, without_jobs(ctx), ctx.release)
        yield state(
            "memory.compile",
            Status.WARN,
            f"{needs.jobs} jobs asked for",
            needed=f"at most {free} with {words(memory.usable)}",
            why=why,
            remedy=(f"--jobs {free}",),
            evidence=evidence,
        )
    else:
        yield fine("memory.compile", f"{jobs} jobs; {reason}", needed=needed, evidence=evidence)


def without_jobs(ctx: Context) -> Needs:
    """What is needed, with the number of jobs left open."""
    return replace(ctx.needs, jobs=None)


def too_many(ctx: Context, cores: int) -> bool:
    """Whether more jobs were asked for than memory bears."""
    asked = ctx.needs.jobs
    if asked is None:
        return False
    fitting, _ = jobs_for(ctx.facts.memory, max(cores, asked), without_jobs(ctx), ctx.release)
    return asked > fitting


def running(ctx: Context) -> Iterator[Finding]:
    """Whether weights and KV cache fit, in all and on one NUMA node."""
    row, memory, needs = needs_table()["run"], ctx.facts.memory, ctx.needs
    weights = needs.model_bytes or 0
    cache = needs.kv_cache_bytes or gib(row["smoke_kv_gib"])
    want = gib(row["base_gib"]) + weights + cache
    needed = (
        f"{words(want)} (base {row['base_gib']} GiB, weights {words(weights)}, KV {words(cache)})"
    )
    if memory.usable < want:
        yield state(
            "memory.run",
            Status.BLOCKER if weights == 0 and memory.usable < gib(1.5) else Status.WARN,
            f"{words(memory.usable)} usable",
            needed=needed,
            why="The kernel ends the engine when memory does (exit status 137, signal 9).",
            remedy=("a smaller model, or a smaller --kv-cache-memory-bytes", *more_memory(ctx)),
        )
    else:
        yield fine("memory.run", f"{words(memory.usable)} usable", needed=needed)


def per_node(ctx: Context) -> Iterator[Finding]:
    """Whether a NUMA node holds one worker's share."""
    nodes = [n.memory_total for n in ctx.facts.numa if n.memory_total is not None]
    if len(nodes) < 2:
        return
    share = (ctx.needs.model_bytes or 0) // max(1, ctx.needs.tensor_parallel)
    share += ctx.needs.kv_cache_bytes or gib(needs_table()["run"]["smoke_kv_gib"])
    smallest = min(nodes)
    if share > smallest:
        yield state(
            "memory.numa",
            Status.WARN,
            f"{words(smallest)} on the smallest of {len(nodes)} nodes",
            needed=f"{words(share)} for each worker",
            why="vLLM binds a worker to one node; what does not fit there is fetched from another.",
            remedy=(f"--tensor-parallel-size {len(nodes)}", "a smaller KV cache"),
        )
    else:
        yield fine("memory.numa", f"{words(smallest)} on the smallest of {len(nodes)} nodes")


def default_cache(ctx: Context) -> Iterator[Finding]:
    """What the release takes for its KV cache when nobody says how much."""
    row, memory = needs_table()["run"], ctx.facts.memory
    if not among(ctx.release.version, row["fraction_versions"]):
        return
    said = ctx.env("VLLM_CPU_KVCACHE_SPACE") or ctx.needs.kv_cache_bytes
    room = ctx.facts.room()
    node = ctx.facts.node()
    seen = min(memory.total, node.memory_total) if node and node.memory_total else memory.total
    if memory.limit is not None and among(ctx.release.version, row["cgroup_versions"]):
        seen = min(seen, memory.limit)
    want = int(row["memory_fraction"] * seen)
    if said or room >= want:
        yield fine("memory.kv_default", "the KV cache's size is given" if said else "fits")
        return
    yield state(
        "memory.kv_default",
        Status.WARN,
        f"{words(room)} usable of {words(seen)}",
        needed=f"{words(want)} ({row['memory_fraction']:.0%} of all), or a stated size",
        why=f"{ctx.release.version} takes this much unless told, and refuses to start without it; "
        "the smoke test states a small size itself.",
        remedy=stated_cache(room),
    )


def stated_cache(usable: int) -> tuple[str, ...]:
    """How to state a cache that fits beside weights in ``usable`` bytes, at most 4 GiB."""
    space = min(4, (usable >> 30) // 4)
    if space < 1:
        return ("vllm serve MODEL --kv-cache-memory-bytes 512M --max-model-len 2048",)
    return (
        f"vllm serve MODEL --kv-cache-memory-bytes {space}G",
        f"export VLLM_CPU_KVCACHE_SPACE={space}",
    )


JUDGES = (compiling, running, per_node, default_cache)
