"""A small whole Qwen2 as files, written down without any library of models."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

HIDDEN, LAYERS, INNER, HEADS, KV, VOCAB = 16, 2, 32, 4, 2, 320


def tensors() -> dict[str, tuple[int, ...]]:
    """The tensors of the small Qwen2, written down once more, from transformers' model."""
    kv = HIDDEN // HEADS * KV
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for n in range(LAYERS):
        at = f"model.layers.{n}."
        for name, rows in (("q", HIDDEN), ("k", kv), ("v", kv)):
            found[f"{at}self_attn.{name}_proj.weight"] = (rows, HIDDEN)
            found[f"{at}self_attn.{name}_proj.bias"] = (rows,)
        found[f"{at}self_attn.o_proj.weight"] = (HIDDEN, HIDDEN)
        found[f"{at}mlp.gate_proj.weight"] = found[f"{at}mlp.up_proj.weight"] = (INNER, HIDDEN)
        found[f"{at}mlp.down_proj.weight"] = (HIDDEN, INNER)
        found[f"{at}input_layernorm.weight"] = (HIDDEN,)
        found[f"{at}post_attention_layernorm.weight"] = (HIDDEN,)
    return found


def safetensors(shapes: dict[str, tuple[int, ...]], padding: int = 0) -> bytes:
    """A file of bfloat16 tensors; ``padding`` bytes more stand in one tensor that nobody needs."""
    header: dict[str, Any] = {}
    end = 0
    for name, shape in {**shapes, **({"pad": (padding,)} if padding else {})}.items():
        count = 2
        for dimension in shape:
            count *= dimension
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + count]}
        end += count
    text = json.dumps(header).encode()
    body = bytes(i * 7 % 251 for i in range(997))
    return struct.pack("<Q", len(text)) + text + (body * (end // 997 + 1))[:end]


def byte_alphabet() -> list[str]:
    """The 256 characters that stand for bytes in GPT-2's vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, spare = {}, 256
    for byte in range(256):
        if byte in plain:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(spare)
            spare += 1
    return [table[b] for b in range(256)]


def tokenizer() -> dict[str, Any]:
    """A tokenizer of bytes, as tokenizers reads it."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {**level, "use_regex": True},
        "post_processor": None,
        "decoder": {**level, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {c: i for i, c in enumerate(byte_alphabet())},
            "merges": [],
        },
    }


def config(**changes: Any) -> dict[str, Any]:
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV,
        "vocab_size": VOCAB,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "max_position_embeddings": 64,
        **changes,
    }


def model_files(padding: int = 0, **changes: Any) -> dict[str, bytes]:
    """The files of a whole small model; ``changes`` are those of its configuration."""
    return {
        "config.json": json.dumps(config(**changes)).encode(),
        "model.safetensors": safetensors(tensors(), padding),
        "tokenizer.json": json.dumps(tokenizer()).encode(),
        "tokenizer_config.json": json.dumps({"chat_template": "{{ messages }}"}).encode(),
    }


def write_model(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True)
    for name, content in model_files(**changes).items():
        (folder / name).write_bytes(content)
    return folder
