"""A host, an installed vLLM and a model for the tests of tuning: files in a temporary folder."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cpubuild.facts.collect import replay
from cpubuild.facts.model import HostFacts

HOSTS = Path(__file__).parents[2] / "hosts"
SITE = "lib/python3.11/site-packages"
VARIABLES = ("VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_CPU_NUM_OF_RESERVED_CPU")
OPTIONS = (
    "--dtype",
    "--max-model-len",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--kv-cache-memory-bytes",
    "--tensor-parallel-size",
    "--enforce-eager",
    "--pooler-config",
    "--enable-prefix-caching",
)
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "vocab_size": 320,
    "torch_dtype": "bfloat16",
}
WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "I32": 4, "I8": 1}


@pytest.fixture
def make_host() -> Callable[..., HostFacts]:
    """A recorded host; ``cpu``, ``memory`` and others take changes of their parts.

    It has no tcmalloc unless told: a recorded path may exist on the machine of the test. Where its
    memory is told, its nodes say nothing of their own.
    """

    def make(name: str = "amx-bf16--sapphire-rapids-vm", **changes: Any) -> HostFacts:
        facts = replay(HOSTS / name)
        if "memory" in changes and "numa" not in changes:
            nodes = (dataclasses.replace(node, memory_available=None) for node in facts.numa)
            changes["numa"] = tuple(nodes)
        changes["libraries"] = {"tcmalloc": None, **changes.get("libraries", {})}
        parts = {
            key: dataclasses.replace(getattr(facts, key), **changes.pop(key))
            for key in ("cpu", "memory", "container", "libraries")
            if key in changes
        }
        return dataclasses.replace(facts, **parts, **changes)

    return make


@pytest.fixture
def make_site(tmp_path: Path) -> Callable[..., Path]:
    """An environment whose vLLM knows the variables and options given; ``files`` come beside."""

    def make(
        *,
        variables: tuple[str, ...] = VARIABLES,
        options: tuple[str, ...] = OPTIONS,
        files: Mapping[str, str] | None = None,
    ) -> Path:
        env = tmp_path / "env"
        site = env / SITE
        rows = "".join(f'    "{n}": lambda: os.getenv("{n}"),\n' for n in variables)
        adds = "".join(f'        group.add_argument("{n}")\n' for n in options)
        texts = {
            "vllm/envs.py": f"import os\nenvironment_variables = {{\n{rows}}}\n",
            "vllm/engine/arg_utils.py": f"class A:\n    def add(group):\n{adds}        0\n",
            "vllm/entrypoints/launchers/cli_args.py": (
                "class BaseFrontendArgs:\n    host: str = ''\n    api_key: str = ''\n"
            ),
            "vllm/utils/ompmultiprocessing.py": 'skip = mask == "nobind"\n',
            **(files or {}),
        }
        for name, text in texts.items():
            path = site / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return env

    return make


@pytest.fixture
def make_model(tmp_path: Path) -> Callable[..., Path]:
    """A model's folder: a configuration, and a safetensors file that is nothing but its header."""

    def make(
        name: str = "model",
        tensors: Mapping[str, tuple[str, tuple[int, ...]]] | None = None,
        **changes: Any,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        config = {k: v for k, v in {**CONFIG, **changes}.items() if v is not None}
        (folder / "config.json").write_text(json.dumps(config))
        rows, at = {}, 0
        for key, (kind, shape) in (tensors or {"w": ("BF16", (1000, 1000))}).items():
            size = WIDTHS[kind]
            for part in shape:
                size *= part
            rows[key] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + size]}
            at += size
        header = json.dumps(rows).encode()
        with (folder / "model.safetensors").open("wb") as sink:
            sink.write(struct.pack("<Q", len(header)) + header)
            sink.truncate(8 + len(header) + at)
        return folder

    return make
