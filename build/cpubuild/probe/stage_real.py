"""Ask a real model questions with known answers."""

from __future__ import annotations

import importlib
import inspect
import os
from typing import Any


def engine(vllm: Any, model: str) -> Any:
    """An engine with a stated KV cache, in the model's own type."""
    arguments: Any = importlib.import_module("vllm.engine.arg_utils")
    known = inspect.signature(arguments.EngineArgs).parameters
    options: dict[str, Any] = {"max_model_len": 1024, "max_num_seqs": 4, "seed": 0}
    if "kv_cache_memory_bytes" in known:
        options["kv_cache_memory_bytes"] = 1 << 30
    else:
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
    return vllm.LLM(model=model, enforce_eager=True, **options)


def run(_stage: str, context: dict[str, Any]) -> dict[str, Any]:
    """The greedy answers, in the order of the questions."""
    vllm: Any = importlib.import_module("vllm")
    options = context["options"]
    llm = engine(vllm, options["model"])
    parameters = vllm.SamplingParams(temperature=0.0, max_tokens=48)
    talks = [[{"role": "user", "content": q}] for q in options["questions"]]
    answers = llm.chat(talks, parameters, use_tqdm=False)
    return {"answers": [a.outputs[0].text for a in answers]}
