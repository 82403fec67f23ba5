"""Tokens per second of one stream and of a batch, with one setting of a process."""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import time
from typing import Any

BATCH = 8
PROMPT = 32
GIB = 1 << 30


def engine(vllm: Any, options: dict[str, Any]) -> Any:
    """An engine with the sizes that every trial has, and this trial's own options."""
    arguments: Any = importlib.import_module("vllm.engine.arg_utils")
    known = inspect.signature(arguments.EngineArgs).parameters
    sizes = dict(options["engine"])
    if "kv_cache_memory_bytes" not in known:
        space = sizes.pop("kv_cache_memory_bytes")
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(max(1, space // GIB))
    return vllm.LLM(model=options["model"], seed=0, **sizes)


def prompts(count: int, run: int) -> list[dict[str, Any]]:
    """Prompts of token ids that every vocabulary has, no two of them alike."""
    return [
        {"prompt_token_ids": [3 + (11 * (count * run + row) + 7 * i) % 200 for i in range(PROMPT)]}
        for row in range(count)
    ]


def timed(llm: Any, parameters: Any, count: int, runs: int, tokens: int) -> list[float]:
    """Tokens per second of each run of ``count`` streams, after a short one that does not count."""
    rates = []
    for run in range(runs):
        started = time.monotonic()
        results = llm.generate(prompts(count, run + 1), parameters, use_tqdm=False)
        took = time.monotonic() - started
        made = sum(len(r.outputs[0].token_ids) for r in results)
        if made != count * tokens:
            raise RuntimeError(f"{made} tokens were generated, {count * tokens} were asked for")
        rates.append(round(made / took, 3))
    return rates


def run(_stage: str, context: dict[str, Any]) -> dict[str, Any]:
    """Start an engine, let it generate a fixed number of tokens, for one stream and for eight."""
    vllm: Any = importlib.import_module("vllm")
    options = context["options"]
    timing = context["load"]("timing")
    started = time.monotonic()
    llm = engine(vllm, options)
    ready = round(time.monotonic() - started, 3)
    tokens, runs = int(options["tokens"]), int(options["runs"])
    try:
        short = vllm.SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
        llm.generate(prompts(BATCH, 0), short, use_tqdm=False)
        long = vllm.SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        before = timing.accounts()
        document = {
            "start": ready,
            "single": timed(llm, long, 1, runs, tokens),
            "batch": timed(llm, long, BATCH, runs, tokens),
            "others": others(before, timing.accounts()),
        }
    finally:
        core: Any = getattr(getattr(llm, "llm_engine", None), "engine_core", None)
        if callable(getattr(core, "shutdown", None)):
            core.shutdown()
        del llm
        gc.collect()
    return document


def others(before: Any, after: Any) -> float | None:
    """CPUs that other processes used meanwhile; None where that cannot be told."""
    if before is None or after is None:
        return None
    took, machine, ours = (b - a for a, b in zip(before, after, strict=True))
    return round(float(max(0.0, machine - ours) / took), 3)
