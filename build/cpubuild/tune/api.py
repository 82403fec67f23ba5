"""Compute a tuning: host, installed release and model in; settings, reasons and findings out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cpubuild.choose.tables import GIB, words
from cpubuild.facts.model import HostFacts
from cpubuild.findings import Finding, Status
from cpubuild.tune import dtypes, kept, memory, preload, quantised, surroundings, threads
from cpubuild.tune.model import Option, Tuning, Variable
from cpubuild.tune.shape import WIDTHS, Shape, read_shape
from cpubuild.tune.tree import ARGUMENTS, Tree, read_tree

KV_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"
KV_OPTION = "--kv-cache-memory-bytes"
EAGER = "--enforce-eager"
HOME = "VIRTUAL_ENV"
CPU_WORDS = {
    "x86_64": "X86",
    "aarch64": "ARM",
    "ppc64le": "POWERPC",
    "s390x": "S390X",
    "riscv64": "RISCV",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What was decided for a model: its shape, the type to run it in, the sizes, the threads."""

    shape: Shape
    dtype: dtypes.Dtype
    fit: memory.Fit
    placed: threads.Threads


def compute(
    env: Path,
    facts: HostFacts,
    *,
    release: str,
    model: Path | None,
    environ: Mapping[str, str],
    root: Path = Path("/"),
    remembered: bool = True,
) -> Tuning:
    """The settings for the vLLM in ``env`` on this host, for the model in a folder or for any.

    Nothing is started and nothing changed: files of ``env``, of the model and of the kernel
    (below ``root``) are read. A model that cannot be read is a SETTINGS error; one that does not
    fit or cannot run is a blocker among the findings. What `tune --measure` found for this model on
    this host counts, unless ``remembered`` is False.
    """
    tree = read_tree(env)
    measured = kept.load(env, facts, model) if remembered else None
    plan, options = None, tuple[Option, ...]()
    if model is None:
        placed = threads.decide(facts, tree, ranks=1, reason=one_worker(facts), environ=environ)
        cache = cache_variable(facts, tree)
    else:
        plan = for_model(facts, tree, read_shape(model), environ, measured)
        placed = plan.placed
        cache = whole_cache(plan, tree)
        options = () if plan.fit.missing else options_of(plan, tree)
    home = Variable(name=HOME, value=str(env), reason="the target environment")
    variables = (home, *preload.variables(env, facts), *cache, *placed.variables)
    by_option = frozenset(KV_VARIABLE for o in options if o.name == KV_OPTION)
    tuning = Tuning(
        env=env,
        release=release,
        model=model,
        variables=variables,
        options=options,
        removed=surroundings.removed(environ, variables, legacy=by_option),
        launcher=placed.launcher,
        other_dtype=plan.dtype.other if plan else None,
        cache_tokens=plan.fit.tokens if plan and not plan.fit.missing else None,
        memory=used(plan.fit) + plan.fit.cache * plan.fit.demand.ranks if plan else None,
        findings=(
            *names(tree),
            *placed.findings,
            *(for_shape(plan, tree, facts, release) if plan else ()),
            *surroundings.kernel(facts, root),
            *surroundings.replaced(environ, variables),
            *surroundings.reported(environ, facts, tree, release),
        ),
    )
    return kept.apply(tuning, measured) if measured and tuning.fits else tuning


def for_model(
    facts: HostFacts,
    tree: Tree,
    shape: Shape,
    environ: Mapping[str, str],
    measured: kept.Kept | None = None,
) -> Plan:
    """Decide workers, type and sizes for a model."""
    ranks, reason = workers(facts, shape)
    placed = threads.decide(facts, tree, ranks=ranks, reason=reason, environ=environ)
    c = memory.constants()
    room = int(memory.free(facts, placed) * (1 - c["spare_share"]) - c["engine_bytes"])
    dtype = dtypes.choose(facts.cpu, shape, room=room)
    chosen = dict(measured.options).get("--dtype") if measured else None
    if measured and chosen in WIDTHS and shape.weights(chosen) <= room:
        dtype = dtypes.Dtype(name=chosen, reason=measured.said)
    asked = memory.demand(facts, shape, dtype.name, placed)
    whole = not tree.takes(KV_OPTION)
    chunked = chunks(tree, facts.cpu.arch)
    fit = memory.decide_or_eager(shape, asked, whole=whole, chunked=chunked)
    return Plan(shape=shape, dtype=dtype, fit=fit, placed=placed)


def one_worker(facts: HostFacts) -> str:
    """Why there is one worker where nothing asks for more."""
    count = len(threads.nodes(facts))
    return "one worker, on one of the memory nodes" if count > 1 else "one worker"


def workers(facts: HostFacts, shape: Shape) -> tuple[int, str]:
    """How many workers, one for each memory node where that pays, and why."""
    nodes = threads.nodes(facts)
    if len(nodes) < 2:
        return 1, one_worker(facts)
    weights = shape.weights(shape.dtype)
    least = int(memory.constants()["parallel_bytes"])
    size = f"{words(weights)} of weights"
    if weights < least:
        return 1, (
            f"one worker: {size} are read from one node sooner than {len(nodes)} workers agree "
            f"on each layer (rule of thumb: {words(least)} and more pay)"
        )
    sizes = {len(set(n.cpus) & set(facts.cpu.allowed)) for n in nodes}
    if not shape.divides(len(nodes)) or len(sizes) > 1:
        why = "nodes of different size" if len(sizes) > 1 else "heads that do not split evenly"
        return 1, f"one worker: {len(nodes)} nodes, but {why}"
    return len(nodes), f"one worker for each of {len(nodes)} memory nodes: {size} are split"


def chunks(tree: Tree, arch: str) -> bool:
    """Whether this release computes long prompts in pieces on this architecture."""
    word = CPU_WORDS.get(arch, arch)
    pattern = r"is_cpu\(\)\s+and\s+current_platform\.get_cpu_architecture\(\)\s+in\s+\([^)]*\.{}\b"
    return not tree.matches(ARGUMENTS, pattern.format(re.escape(word)))


def options_of(plan: Plan, tree: Tree) -> tuple[Option, ...]:
    """The options of ``vllm serve``, of those that the release takes."""
    fit, shape = plan.fit, plan.shape
    ranks = fit.demand.ranks
    context = (
        f"all that the model knows fits {fit.tokens} tokens of cache"
        if fit.length == shape.longest
        else f"the cache keeps {fit.tokens} tokens, the model would know {shape.longest}"
    )
    step = f"one step takes {words(fit.activations)}; vLLM's own number when it serves on a CPU"
    if fit.step != memory.constants()["step_tokens"]:
        step = f"one step takes {words(fit.activations)}; vLLM's own 2048 would not fit"
    rows = [
        ("--dtype", plan.dtype.name, plan.dtype.reason),
        (
            KV_OPTION,
            str(fit.cache),
            f"{words(fit.cache)}: {fit.demand.token // ranks} bytes for each of {fit.tokens} "
            f"tokens; weights, engine and a step take {words(used(fit))} of "
            f"{words(fit.demand.free)} free",
        ),
        ("--max-model-len", str(fit.length), context),
        ("--max-num-seqs", str(fit.sequences), f"{fit.tokens} tokens of cache, at most vLLM's 128"),
        ("--max-num-batched-tokens", str(fit.step), step),
    ]
    if ranks > 1:
        rows.append(("--tensor-parallel-size", str(ranks), "one worker for each memory node"))
    found = [Option(name=n, value=v, reason=r) for n, v, r in rows if tree.takes(n)]
    if fit.eager and tree.takes(EAGER):
        saved = words(int(memory.constants()["eager_bytes"]))
        reason = f"nothing is compiled, which saves {saved}: with it, it would not fit; slower"
        found.append(Option(name=EAGER, value=None, reason=reason))
    return tuple(found)


def used(fit: memory.Fit) -> int:
    """Bytes taken besides the cache."""
    return fit.demand.fixed + fit.activations


def cache_variable(facts: HostFacts, tree: Tree) -> tuple[Variable, ...]:
    """The KV cache where no model is known: a share of what is free, whole GiB, at least one."""
    if not tree.has(KV_VARIABLE):
        return ()
    space = cache_space(facts)
    share, free = memory.constants()["kv_share"], facts.room() / GIB
    reason = (
        f"GiB for the KV cache: {share:.0%} of the {free:.1f} GiB free when this was written; "
        "without it vLLM asks for nearly all memory"
    )
    return (Variable(name=KV_VARIABLE, value=str(space), reason=reason),)


def cache_space(facts: HostFacts) -> int:
    """GiB for the KV cache where no model is known."""
    return max(1, int(facts.room() * memory.constants()["kv_share"] / GIB))


def whole_cache(plan: Plan, tree: Tree) -> tuple[Variable, ...]:
    """The cache as a variable, for a release that has no option for it."""
    if plan.fit.missing or tree.takes(KV_OPTION) or not tree.has(KV_VARIABLE):
        return ()
    space = plan.fit.cache // GIB
    reason = f"GiB: {plan.fit.tokens} tokens; this release has no {KV_OPTION}"
    return (Variable(name=KV_VARIABLE, value=str(space), reason=reason),)


def for_shape(plan: Plan, tree: Tree, facts: HostFacts, release: str) -> tuple[Finding, ...]:
    """What is to be said of a model: its quantisation, its type, what fits."""
    dtype = Finding(
        id="tune.dtype",
        status=Status.OK,
        title=f"runs in {plan.dtype.name}",
        found=f"{plan.shape.architecture}, {plan.shape.dtype}",
        why=plan.dtype.reason,
    )
    return (
        *quantised.judge(plan.shape, tree, facts.cpu, release),
        dtype,
        *memory.findings(plan.shape, plan.dtype.name, plan.fit),
    )


def names(tree: Tree) -> tuple[Finding, ...]:
    """Names that the release does not have, or that could not be read."""
    if tree.variables is None or tree.options is None:
        return (
            Finding(
                id="tune.names",
                status=Status.UNKNOWN,
                title="the names of variables and options could not be read",
                found=str(tree.site or "no vllm package"),
                why="so no option is given, and variables are set that this release may not know",
            ),
        )
    wanted = (threads.BIND, threads.RESERVED, KV_VARIABLE)
    lacking = [n for n in wanted if not tree.has(n)]
    lacking += [n for n in (KV_OPTION, "--max-num-batched-tokens") if not tree.takes(n)]
    if not lacking:
        return ()
    return (
        Finding(
            id="tune.names",
            status=Status.OK,
            title=f"not set, this release does not know them: {', '.join(lacking)}",
        ),
    )
