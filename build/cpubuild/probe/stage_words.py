"""The words: a tiny Qwen2 with random weights, asked through transformers and through vLLM.

The reference is greedy decoding by transformers in float32 on the CPU. Prompts whose reference
has a step where the best token leads the second by less than MARGIN are left out, so that a
correct engine cannot differ by rounding. Weights are exact in bfloat16, so that a run in bfloat16
differs from the reference by its arithmetic only.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import inspect
import os
import shutil
import time
import zlib
from pathlib import Path
from typing import Any

SEED = 20
MARGIN = 0.02
LAYERS = 3
KV_BYTES = 64 << 20
MAX_LEN = 512
BLOCK = 32
# (prompt, tokens to generate): short and long, both languages, across block borders.
CANDIDATES: tuple[tuple[str, int], ...] = (
    ("Hello, CPU.", 24),
    ("x", 8),
    ("人", 8),
    ("The quick brown fox jumps over the lazy dog. " * 4, 16),
    ("一二三四五六七八九十" * 6, 16),
    ("春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。" * 3, 16),
    ("中央处理器上的推理。", 24),
    ("Words on a processor without a GPU", 16),
    ("今天天气怎么样?", 16),
    ("Pack my box with five dozen liquor jugs. " * 5, 16),
    ("Both languages: 中文 and English, 混在一起, with digits 0123456789.", 32),
    ("A line\nanother line\n\ttabs, émigré, naïve, Ω ≈ 3.14", 32),
)
WANTED = 6
ROUND_TRIPS = (
    "Hello, world!",
    "你好，世界！中央处理器 CPU。",
    "混合 mixed 文本 text\n\twith whitespace  and 123",
    "emoji 🙂 and accents: café, Straße",
)
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def make_tokenizer(folder: str) -> Any:
    """A byte-level tokenizer: 256 bytes and three special tokens; saved into ``folder``."""
    tokenizers: Any = importlib.import_module("tokenizers")
    transformers: Any = importlib.import_module("transformers")
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    alphabet = sorted(byte_level.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = byte_level(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIALS))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT
    fast.save_pretrained(folder)
    return tokenizer


def fill(model: Any, torch: Any) -> None:
    """Random weights, each tensor from its own seed, rounded to values that bfloat16 has."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            generator = torch.Generator().manual_seed(SEED + zlib.crc32(name.encode()))
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                value = 1 + 0.1 * noise
            elif "bias" in name:
                value = 0.1 * noise
            elif "embed" in name:
                value = noise
            else:
                value = noise * (1.5 / parameter.shape[1] ** 0.5)
            parameter.copy_(value.to(torch.bfloat16).to(torch.float32))


def make_model(folder: str, torch: Any) -> Any:
    """The tiny Qwen2 (about 1.6 million weights in float32), saved into ``folder``."""
    transformers: Any = importlib.import_module("transformers")
    config = transformers.Qwen2Config(
        vocab_size=320,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        bos_token_id=256,
        eos_token_id=258,
        pad_token_id=256,
    )
    torch.manual_seed(SEED)
    model = transformers.Qwen2ForCausalLM(config).eval().to(torch.float32)
    fill(model, torch)
    model.save_pretrained(folder, safe_serialization=True)
    model.generation_config.eos_token_id = None
    return model


def greedy(model: Any, torch: Any, ids: list[int], count: int) -> dict[str, Any]:
    """The greedy continuation: tokens, their log-probabilities, the smallest lead."""
    given = torch.tensor([ids])
    with torch.no_grad():
        out = model.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=count,
            do_sample=False,
            pad_token_id=256,
            output_logits=True,
            return_dict_in_generate=True,
        )
    logits = torch.stack([step[0] for step in out.logits]).float()
    top = logits.topk(2).values
    return {
        "tokens": out.sequences[0, len(ids) :].tolist(),
        "logprobs": logits.log_softmax(-1).max(-1).values.tolist(),
        "margin": (top[:, 0] - top[:, 1]).min().item(),
    }


def teacher(model: Any, torch: Any, ids: list[int], tokens: list[int]) -> dict[str, Any]:
    """The reference's log-probability of each of ``tokens`` after ``ids``, and of its own best."""
    with torch.no_grad():
        logits = model(torch.tensor([ids + tokens])).logits[0, len(ids) - 1 : -1].float()
    every = logits.log_softmax(-1)
    chosen = every.gather(1, torch.tensor(tokens).unsqueeze(1)).squeeze(1)
    return {"logprobs": chosen.tolist(), "best": every.max(-1).values.tolist()}


def reference(context: dict[str, Any]) -> dict[str, Any]:
    """Make model and tokenizer, choose prompts, decode them with transformers."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)  # the model is so small that threads only wait for each other
    path = Path(context["folder"], "model")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    folder = str(path)
    tokenizer = make_tokenizer(folder)
    model = make_model(folder, torch)
    prompts: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    for text, count in CANDIDATES:
        if len(prompts) == WANTED:
            break
        ids = tokenizer.encode(text).ids
        answer = greedy(model, torch, ids, count)
        answer.update(text=text, ids=ids)
        (prompts if answer["margin"] >= MARGIN else refused).append(answer)
    return {
        "model": folder,
        "weights": hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest(),
        "prompts": prompts,
        "refused": len(refused),
        "margin": MARGIN,
        "round_trips": [
            {"text": t, "back": tokenizer.decode(tokenizer.encode(t).ids)} for t in ROUND_TRIPS
        ],
        "versions": {
            n: str(importlib.import_module(n).__version__) for n in ("torch", "transformers")
        },
    }


def engine_options() -> dict[str, Any]:
    """What every engine is given, under the names this release knows."""
    arguments: Any = importlib.import_module("vllm.engine.arg_utils")
    known = inspect.signature(arguments.EngineArgs).parameters
    options: dict[str, Any] = {
        "max_model_len": MAX_LEN,
        "max_num_seqs": 8,
        "block_size": BLOCK,
        "seed": 0,
        "enable_prefix_caching": True,
        "kv_cache_memory_bytes": KV_BYTES,
    }
    if "kv_cache_memory_bytes" not in known:
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
    if "device" in known and "kv_cache_memory_bytes" not in known:
        options["device"] = "cpu"
    return {name: value for name, value in options.items() if name in known}


def outputs(results: Any) -> list[dict[str, Any]]:
    """Generated tokens, and where asked the log-probability of each."""
    answers = []
    for result in results:
        best = result.outputs[0]
        tokens = list(best.token_ids)
        answer: dict[str, Any] = {
            "tokens": tokens,
            "cached": getattr(result, "num_cached_tokens", None),
        }
        if best.logprobs:
            answer["logprobs"] = [
                step[token].logprob for step, token in zip(best.logprobs, tokens, strict=True)
            ]
        answers.append(answer)
    return answers


class Engine:
    """One vLLM engine on the tiny model, with the time it took to start."""

    def __init__(self, model: str, **extra: Any) -> None:
        vllm: Any = importlib.import_module("vllm")
        started = time.monotonic()
        self.options = {**engine_options(), **extra}
        before = os.environ.get("TORCH_COMPILE_DISABLE")
        if extra.get("enforce_eager"):
            # Else the first answer with log-probabilities compiles their ranks, which none reads.
            os.environ["TORCH_COMPILE_DISABLE"] = "1"
        try:
            self.llm = vllm.LLM(model=model, **self.options)
        finally:
            os.environ.pop("TORCH_COMPILE_DISABLE", None)
            if before is not None:
                os.environ["TORCH_COMPILE_DISABLE"] = before
        self.parameters = vllm.SamplingParams
        self.start = round(time.monotonic() - started, 3)

    def ask(self, prompts: list[dict[str, Any]], logprobs: int | None = None) -> list[Any]:
        """All prompts in one call, each to its own length."""
        parameters = [
            self.parameters(
                temperature=0.0,
                max_tokens=len(p["tokens"]),
                ignore_eos=True,
                **({"logprobs": logprobs} if logprobs else {}),
            )
            for p in prompts
        ]
        given = [{"prompt_token_ids": p["ids"]} for p in prompts]
        return outputs(self.llm.generate(given, parameters, use_tqdm=False))

    def forget(self) -> bool | None:
        """Empty the prefix cache; None when this release cannot."""
        reset = getattr(self.llm, "reset_prefix_cache", None)
        if not callable(reset):
            return None
        return reset() is not False

    def stop(self) -> None:
        """End the engine and its processes."""
        engine = getattr(self.llm, "llm_engine", None)
        core: Any = getattr(engine, "engine_core", None)
        if callable(getattr(core, "shutdown", None)):
            core.shutdown()
        del self.llm
        gc.collect()


def by_text(engine: Engine, prompts: list[dict[str, Any]]) -> list[list[int]]:
    """The token ids vLLM makes of each prompt's text by itself."""
    tokenizer = engine.llm.get_tokenizer()
    return [list(tokenizer.encode(p["text"])) for p in prompts]


def eager(context: dict[str, Any], ref: dict[str, Any]) -> dict[str, Any]:
    """Float32 without compilation: the batch, again from the cache, each alone, scored, timed."""
    prompts = ref["prompts"]
    engine = Engine(ref["model"], dtype="float32", enforce_eager=True)
    document: dict[str, Any] = {"start": engine.start, "options": engine.options}
    try:
        started = time.monotonic()
        document["batch"] = engine.ask(prompts)
        document["generate_seconds"] = round(time.monotonic() - started, 3)
        document["again"] = engine.ask(prompts)
        document["forgot"] = engine.forget()
        document["alone"] = [engine.ask([p])[0] for p in prompts]
        document["scored"] = engine.ask(prompts, logprobs=1)
        document["encoded"] = by_text(engine, prompts)
        if context["options"].get("speed"):
            document["speed"] = context["load"]("timing").speed(engine.ask)
    finally:
        engine.stop()
    return document


def compiled(_context: dict[str, Any], ref: dict[str, Any]) -> dict[str, Any]:
    """Float32 with vLLM's own default compilation."""
    engine = Engine(ref["model"], dtype="float32")
    try:
        return {"start": engine.start, "batch": engine.ask(ref["prompts"])}
    finally:
        engine.stop()


def bfloat16(_context: dict[str, Any], ref: dict[str, Any]) -> dict[str, Any]:
    """Bfloat16, scored by vLLM and by the float32 reference for the tokens vLLM chose."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    transformers: Any = importlib.import_module("transformers")
    engine = Engine(ref["model"], dtype="bfloat16", enforce_eager=True)
    try:
        batch = engine.ask(ref["prompts"], logprobs=1)
    finally:
        engine.stop()
    model = transformers.AutoModelForCausalLM.from_pretrained(ref["model"]).eval()
    model = model.to(torch.float32)
    scored = [
        teacher(model, torch, p["ids"], b["tokens"])
        for p, b in zip(ref["prompts"], batch, strict=True)
    ]
    return {"start": engine.start, "batch": batch, "reference": scored}


def run(stage: str, context: dict[str, Any]) -> dict[str, Any]:
    """One stage of the words."""
    if stage == "reference":
        return reference(context)
    ref = context["read"]("reference")
    if ref is None:
        raise RuntimeError("the reference stage has not run")
    stages = {"eager": eager, "compiled": compiled, "second": compiled, "bfloat16": bfloat16}
    return stages[stage](context, ref)
