"""Judge the words, from the documents of their stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cpubuild.jsonio import fingerprint
from cpubuild.verify.knowledge import bound
from cpubuild.verify.model import Check, Smoke, Speed

Document = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]
WRONG = (
    "do not use this build: it computes wrong words; rebuild vllm (make bootstrap) and report it",
)


def smoke(reference: Document | None, eager: Document | None) -> Smoke | None:
    """What the first batch gave and how fast, with fingerprints to compare by later."""
    if eager is None:
        return None
    rows = [list(row["tokens"]) for row in eager["batch"]]
    return Smoke(
        tokens=sum(len(row) for row in rows),
        seconds=float(eager["generate_seconds"]),
        asked=asked(reference),
        digest=fingerprint(rows),
        speed=speed(eager.get("speed")),
    )


def asked(reference: Document | None) -> str | None:
    """The fingerprint of the question: weights, prompts and how many tokens of each."""
    if reference is None or "weights" not in reference:
        return None
    prompts = [[list(p["ids"]), len(p["tokens"])] for p in reference["prompts"]]
    return fingerprint([reference["weights"], prompts])


def speed(document: Document | None) -> Speed | None:
    """A timed workload as a report or a receipt has it; None when there is none."""
    if not document or not document.get("runs"):
        return None
    others = document.get("others")
    return Speed(
        tokens=int(document["tokens"]),
        runs=tuple(float(s) for s in document["runs"]),
        cpus=int(document["cpus"]),
        others=None if others is None else float(others),
    )


def first_difference(expected: Rows, got: Rows) -> str | None:
    """Where two runs over the same prompts first differ, in words; None when they do not."""
    if len(expected) != len(got):
        return f"{len(got)} answers to {len(expected)} prompts"
    for number, (want, have) in enumerate(zip(expected, got, strict=True), 1):
        if list(want["tokens"]) == list(have["tokens"]):
            continue
        pairs = list(zip(want["tokens"], have["tokens"], strict=False))
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
        return (
            f"prompt {number} differs from token {at + 1}: expected "
            f"{list(want['tokens'])[at : at + 4]}, got {list(have['tokens'])[at : at + 4]}"
        )
    return None


def logprob_gap(expected: Rows, got: Rows) -> tuple[float, float]:
    """Largest and mean difference of the log-probabilities of the same tokens."""
    gaps = [
        abs(a - b) if a == a and b == b else float("inf")
        for want, have in zip(expected, got, strict=True)
        for a, b in zip(want["logprobs"], have["logprobs"], strict=False)
    ]
    return (max(gaps), sum(gaps) / len(gaps)) if gaps else (float("inf"), float("inf"))


def tokenizer(reference: Document, eager: Document) -> Check:
    """words.tokenizer."""
    id_ = "words.tokenizer"
    bad = [r["text"] for r in reference["round_trips"] if r["text"] != r["back"]]
    other = [
        p["text"]
        for p, ids in zip(reference["prompts"], eager["encoded"], strict=True)
        if list(p["ids"]) != list(ids)
    ]
    if bad or other:
        return Check(
            id=id_,
            status="fail",
            summary=f"{len(bad)} texts come back changed, {len(other)} prompts encoded otherwise",
            evidence=tuple(repr(t) for t in (*bad, *other)),
            remedy=("reinstall tokenizers and transformers as vllm's metadata asks",),
        )
    return Check(
        id=id_,
        status="pass",
        summary=f"{len(reference['round_trips'])} texts come back, English and Chinese",
    )


def same(id_: str, expected: Rows, got: Rows, what: str, remedy: tuple[str, ...] = WRONG) -> Check:
    """A check that two runs gave the same tokens."""
    difference = first_difference(expected, got)
    count = sum(len(r["tokens"]) for r in expected)
    if difference:
        return Check(id=id_, status="fail", summary=difference, evidence=(what,), remedy=remedy)
    return Check(id=id_, status="pass", summary=f"{count} tokens equal: {what}")


def greedy(reference: Document, eager: Document) -> Check:
    """words.greedy_float32."""
    id_ = "words.greedy_float32"
    prompts = reference["prompts"]
    if not prompts:
        return Check(id=id_, status="unknown", summary="no prompt has a clear enough reference")
    limit = bound("float32_logprob")
    tokens = first_difference(prompts, eager["batch"])
    largest, mean = logprob_gap(prompts, eager["scored"])
    lead = min(p["margin"] for p in prompts)
    evidence = (
        f"{len(prompts)} prompts of {', '.join(str(len(p['ids'])) for p in prompts)} tokens",
        f"log-probabilities differ by {largest:.2g} at most, {mean:.2g} on average "
        f"(bound {limit:g}); the reference's best token leads by {lead:.2g} or more",
        "; ".join(f"{n} {v}" for n, v in reference["versions"].items()),
    )
    if tokens or not largest <= limit:
        return Check(
            id=id_,
            status="fail",
            summary=tokens or f"log-probabilities differ by {largest:.2g}, bound {limit:g}",
            evidence=evidence,
            remedy=WRONG,
        )
    count = sum(len(p["tokens"]) for p in prompts)
    return Check(
        id=id_,
        status="pass",
        summary=f"{count} tokens equal transformers' (log-probabilities within {largest:.1g})",
        evidence=evidence,
    )


def bfloat16(document: Document) -> Check:
    """words.bfloat16_logprobs."""
    id_ = "words.bfloat16_logprobs"
    largest, mean = logprob_gap(document["reference"], document["batch"])
    lead = max(
        best - chosen
        for row in document["reference"]
        for best, chosen in zip(row["best"], row["logprobs"], strict=True)
    )
    limits = bound("bfloat16_logprob_max"), bound("bfloat16_logprob_mean")
    evidence = (
        f"largest difference {largest:.3f} (bound {limits[0]}), mean {mean:.4f} "
        f"(bound {limits[1]}); the chosen token is at most {lead:.3f} behind float32's best",
    )
    if largest <= limits[0] and mean <= limits[1] and lead <= 2 * limits[0]:
        return Check(
            id=id_,
            status="pass",
            summary=f"within {largest:.2g} of float32, {mean:.2g} on average",
            evidence=evidence,
        )
    return Check(
        id=id_,
        status="fail",
        summary=f"differs from float32 by {largest:.3g}, {mean:.3g} on average",
        evidence=evidence,
        remedy=WRONG,
    )


def batch(eager: Document) -> Check:
    """words.batch."""
    return same("words.batch", eager["alone"], eager["batch"], "alone and in a batch")


def prefix_cache(eager: Document) -> Check:
    """words.prefix_cache: the second run must have been served from the cache to count."""
    id_ = "words.prefix_cache"
    check = same(id_, eager["batch"], eager["again"], "with and without the prefix cache")
    cached = [row["cached"] for row in eager["again"]]
    hits = sum(c or 0 for c in cached)
    if check.status == "pass" and all(c is None for c in cached):
        return Check(id=id_, status="unknown", summary="this release does not say what was cached")
    if check.status == "pass" and not hits:
        return Check(
            id=id_,
            status="warn",
            summary="the same tokens, but nothing was served from the prefix cache",
        )
    return Check(
        id=id_,
        status=check.status,
        summary=check.summary,
        evidence=(*check.evidence, f"{hits} prompt tokens came from the cache"),
        remedy=check.remedy,
    )


def compiled(eager: Document, document: Document) -> Check:
    """words.compiled."""
    return same("words.compiled", eager["batch"], document["batch"], "eager and compiled")


def second(first: Document, document: Document) -> Check:
    """words.second_process."""
    return same(
        "words.second_process",
        first["batch"],
        document["batch"],
        "in the process that compiled and in a second one",
        ("remove the compile caches (~/.cache/vllm, TORCHINDUCTOR_CACHE_DIR) and try again",),
    )
