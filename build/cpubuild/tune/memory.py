"""What fits: cache, context, sequences and tokens of a step, from the memory that is free."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cpubuild.choose.tables import GIB, table, words
from cpubuild.errors import ExitCode
from cpubuild.facts.model import HostFacts
from cpubuild.findings import Finding, Status
from cpubuild.tune.shape import WIDTHS, Shape
from cpubuild.tune.threads import Threads

LEAST_STEP = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """A model in one type on one host: what is fixed and what is free, all in bytes.

    ``free`` is what this process can still take, ``granted`` what of it may be planned with.
    """

    free: int
    granted: int
    weights: int
    engine: int
    token: int
    width: int
    ranks: int

    @property
    def fixed(self) -> int:
        """What is needed before the first token is kept."""
        return self.weights + self.engine


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """What was decided; ``cache`` is in bytes for each rank, ``missing`` above 0: it does not fit.

    ``tokens`` is how many the cache keeps, ``length`` the longest context, ``sequences`` how many
    at once, ``step`` the tokens computed in one step; ``eager``: only without compiled code.
    """

    demand: Demand
    cache: int
    tokens: int
    length: int
    sequences: int
    step: int
    activations: int
    missing: int = 0
    eager: bool = False


def constants() -> dict[str, int | float]:
    """The table [memory] of data/tune.toml."""
    found: dict[str, int | float] = table("tune.toml")["memory"]
    return found


def demand(facts: HostFacts, shape: Shape, dtype: str, placed: Threads) -> Demand:
    """Add up what a model in ``dtype`` takes here."""
    c = constants()
    ranks = max(1, len(placed.ranks))
    return Demand(
        free=free(facts, placed),
        granted=int(free(facts, placed) * (1 - c["spare_share"])),
        weights=shape.weights(dtype),
        engine=int(c["engine_bytes"] + (ranks - 1) * c["rank_bytes"]),
        token=shape.token(dtype),
        width=WIDTHS[dtype],
        ranks=ranks,
    )


def free(facts: HostFacts, placed: Threads) -> int:
    """Bytes that can be taken: of the memory nodes on which the workers are kept."""
    usable, total, node = facts.memory.usable, facts.memory.total, placed.node
    if node is not None and node.memory_available is None and node.memory_total and total:
        return min(usable, int(usable * node.memory_total / total))  # its share, as far as is known
    each = min((facts.room(cpus) for cpus in placed.ranks), default=facts.room())
    return min(usable, each * max(1, len(placed.ranks)))


def activations(shape: Shape, asked: Demand, sequences: int, step: int) -> int:
    """Bytes that live during one step: two of the widest layer and four of the narrow, logits."""
    layer = step * (2 * shape.widest + 4 * shape.hidden) * asked.width
    return layer + sequences * shape.vocabulary * 8


def decide(shape: Shape, asked: Demand, *, whole: bool, chunked: bool) -> Fit:
    """Settle the sizes: the most that vLLM would take comes first, then less until it fits.

    ``whole``: the cache is told in whole GiB; not ``chunked``: a context is computed in one step.
    """
    c = constants()
    least = int(c["least_tokens"]) * asked.token
    unit = GIB * asked.ranks if whole else 1
    for sequences, step in trials(int(c["most_sequences"]), int(c["step_tokens"])):
        live = activations(shape, asked, sequences, step)
        room = asked.granted - asked.fixed - live
        if room >= max(least, unit):
            return settle(shape, asked, sequences, step, live, whole=whole, chunked=chunked)
    missing = max(least, unit) - room
    return Fit(
        demand=asked,
        cache=0,
        tokens=0,
        length=0,
        sequences=sequences,
        step=step,
        activations=live,
        missing=missing,
    )


def trials(sequences: int, step: int) -> list[tuple[int, int]]:
    """From vLLM's own sizes down to one sequence at a time, halving what is larger."""
    found = [(sequences, step)]
    while sequences > 1 or step > LEAST_STEP:
        sequences, step = max(1, sequences // 2), max(LEAST_STEP, step // 2)
        found.append((sequences, step))
    return found


def decide_or_eager(shape: Shape, asked: Demand, *, whole: bool, chunked: bool) -> Fit:
    """As ``decide``; where that does not fit, once more without compiled code."""
    fit = decide(shape, asked, whole=whole, chunked=chunked)
    if not fit.missing:
        return fit
    less = replace(asked, engine=asked.engine - int(constants()["eager_bytes"]))
    return replace(decide(shape, less, whole=whole, chunked=chunked), eager=True)


def settle(
    shape: Shape, asked: Demand, sequences: int, step: int, live: int, *, whole: bool, chunked: bool
) -> Fit:
    """The sizes where at least the smallest cache fits."""
    c = constants()
    block = int(c["block"])
    room = asked.granted - asked.fixed - live
    longest = shape.longest if chunked else min(shape.longest, step)
    one = (longest + block) * asked.token
    cache = min(room, max(int(asked.free * c["kv_share"]), one), sequences * one)
    if whole:
        unit = GIB * asked.ranks
        cache = max(1, cache // unit) * unit
    tokens = cache // (asked.token * block) * block
    length = min(longest, tokens - block)
    usual = min(length, 1024)
    return Fit(
        demand=asked,
        cache=cache // asked.ranks,
        tokens=tokens,
        length=length,
        sequences=max(1, min(sequences, tokens // usual)),
        step=step,
        activations=live,
    )


def findings(shape: Shape, dtype: str, fit: Fit) -> tuple[Finding, ...]:
    """The sum, and what does not fit by how much."""
    asked = fit.demand
    parts = (
        f"{words(asked.free)} free, {words(asked.free - asked.granted)} of it left alone",
        f"weights in {dtype}: {words(asked.weights)}",
        f"engine: {words(asked.engine)}",
        f"one step of {fit.step} tokens, {fit.sequences} sequences: {words(fit.activations)}",
        f"cache: {words(fit.cache * asked.ranks)}, {asked.token} bytes for each token",
    )
    if fit.missing:
        needed = asked.granted + fit.missing
        return (
            Finding(
                id="tune.memory",
                status=Status.BLOCKER,
                title=f"the model does not fit: {fit.missing} bytes are missing",
                found=f"{asked.free} bytes free, {asked.granted} of them to plan with",
                needed=f"{needed} bytes: weights {asked.weights}, engine {asked.engine}, one step "
                f"{fit.activations}, the smallest cache",
                why="the kernel or the control group would end the engine while it loads",
                remedy=(
                    f"free {words(fit.missing)}, or raise the control group's limit by it",
                    "take a smaller model, or a variant of it in 4 or 8 bits",
                ),
                evidence=parts[:-1],
                exit_code=ExitCode.UNSUPPORTED,
            ),
        )
    short = fit.length < shape.longest
    return (
        Finding(
            id="tune.memory",
            status=Status.OK,
            title=f"fits: {words(asked.fixed + fit.activations + fit.cache * asked.ranks)} "
            f"of {words(asked.free)}",
            found="; ".join(parts),
            evidence=parts,
        ),
        Finding(
            id="tune.context",
            status=Status.WARN if short else Status.OK,
            title=f"contexts of {fit.length} tokens"
            + (f", not the model's {shape.longest}" if short else ", all that the model knows"),
            found=f"the cache keeps {fit.tokens} tokens",
            needed=f"{shape.longest * asked.token} bytes for one context of {shape.longest}"
            if short
            else "",
            why="what is longer is refused by the server with an error" if short else "",
        ),
    )
