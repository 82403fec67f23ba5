"""The bare script: the LLM() calls of a verification, and nothing else.

Usage, with the interpreter of the target environment: ``python bare.py CALLS.json NAME...``.
CALLS.json holds the model's folder, the prompts as token ids with the tokens to generate, and the
options of each named call.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Start each engine, ask it once, end it."""
    vllm: Any = importlib.import_module("vllm")
    calls = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    prompts = [{"prompt_token_ids": ids} for ids, _ in calls["prompts"]]
    parameters = [
        vllm.SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
        for _, count in calls["prompts"]
    ]
    for name in sys.argv[2:]:
        llm = vllm.LLM(model=calls["model"], **calls["options"][name])
        answers = llm.generate(prompts, parameters, use_tqdm=False)
        print(name, [len(a.outputs[0].token_ids) for a in answers])
        core: Any = getattr(llm.llm_engine, "engine_core", None)
        if callable(getattr(core, "shutdown", None)):
            core.shutdown()
        del llm
        gc.collect()


if __name__ == "__main__":
    main()
