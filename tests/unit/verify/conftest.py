"""Documents as the probes leave them, from a healthy 0.32.0 target."""

from __future__ import annotations

import copy
from typing import Any

import pytest

SITE = "/env/lib/python3.11/site-packages"

IDENTITY: dict[str, Any] = {
    "python": {"version": "3.11.7", "executable": "/env/bin/python"},
    "machine": "x86_64",
    "libc": ["glibc", "2.36"],
    "version": {"value": "0.32.0+cpu", "error": None},
    "module": {
        "origin": f"{SITE}/vllm/__init__.py",
        "places": [f"{SITE}/vllm"],
        "libraries": ["_C.abi3.so", "spinloop.abi3.so"],
    },
    "torch": {
        "origin": f"{SITE}/torch/__init__.py",
        "version": "2.13.0+cpu",
        "distribution": "2.13.0+cpu",
        "cuda": None,
        "hip": None,
        "xpu": None,
    },
    "distributions": [
        {
            "name": "vllm",
            "version": "0.32.0+cpu",
            "folder": f"{SITE}/vllm-0.32.0+cpu.dist-info",
            "claims": ["name", "record", "top_level"],
            "tags": ["cp38-abi3-linux_x86_64"],
            "installer": "uv",
            "direct_url": None,
            "editable": False,
            "requires_torch": ['torch==2.13.0+cpu; platform_machine == "x86_64"'],
            "record": {"files": 9, "missing": 0, "libraries": ["vllm/_C.abi3.so"]},
            "scripts": ["vllm.entrypoints.cli.main:main"],
        }
    ],
    "packages": [["numpy", "2.2.0"], ["torch", "2.13.0+cpu"], ["vllm", "0.32.0+cpu"]],
}

PLATFORM: dict[str, Any] = {
    "python": "3.11.7",
    "executable": "/env/bin/python",
    "target_device": None,
    "version": {"value": "0.32.0+cpu", "error": None},
    "torch": {"error": None, "version": "2.13.0+cpu"},
    "import_error": None,
    "resolved": {
        "class": "CpuPlatform",
        "qualname": "vllm.platforms.cpu.CpuPlatform",
        "bases": ["CpuPlatform", "Platform", "object"],
        "is_cpu": True,
        "device_type": "cpu",
        "unspecified": False,
        "said": ["DEBUG Automatically detected platform cpu."],
    },
    "builtin": [
        {
            "name": "cuda",
            "verdict": None,
            "error": None,
            "said": ["DEBUG CUDA platform is not available because: NVML Shared Library Not Found"],
        },
        {
            "name": "cpu",
            "verdict": "vllm.platforms.cpu.CpuPlatform",
            "error": None,
            "said": ["DEBUG Confirmed CPU platform is available because vLLM is built with CPU."],
        },
    ],
    "external": [],
    "seconds": 3.0,
}

KERNELS: dict[str, Any] = {
    "loader": {"how": "current_platform.import_kernels()", "error": None, "warnings": []},
    "mapped": [f"{SITE}/vllm/_C.abi3.so"],
    "watched": [f"{SITE}/torch/lib/libgomp.so.1", "/usr/lib/libnuma.so.1.0.0"],
    "operators": [],
    "cpu": {"avx2": True, "avx512": True, "avx512_bf16": True, "amx_tile": True},
    "numa": {"loads": True, "available": True, "error": None},
    "triton": {"version": None, "cpu_backend": None, "used": False},
    "arithmetic": [
        {"operator": "rms_norm", "type": "float32", "error": None, "difference": 3e-7},
        {"operator": "rms_norm", "type": "bfloat16", "error": None, "difference": 0.004},
    ],
    "bundled": ["libtcmalloc_minimal.so.4"],
    "seconds": 0.3,
}


def _words() -> dict[str, Any]:
    prompts = [
        {"text": "Hello", "ids": [1, 2], "tokens": [5, 6, 7], "logprobs": [-1.0, -2.0, -0.5]},
        {"text": "你好", "ids": [3], "tokens": [8, 9], "logprobs": [-0.25, -0.75]},
    ]
    for prompt in prompts:
        prompt["margin"] = 0.05
    rows = [{"tokens": list(p["tokens"]), "cached": 0} for p in prompts]
    cached = [{**rows[0], "cached": 160}, rows[1]]
    scored = [{**r, "logprobs": list(p["logprobs"])} for r, p in zip(rows, prompts, strict=True)]
    reference = {
        "prompts": prompts,
        "round_trips": [{"text": "你好", "back": "你好"}],
        "versions": {"torch": "2.13.0+cpu", "transformers": "5.19.0"},
        "seconds": 2.0,
    }
    eager = {
        "batch": rows,
        "again": cached,
        "alone": rows,
        "scored": scored,
        "encoded": [p["ids"] for p in prompts],
        "generate_seconds": 0.5,
        "seconds": 20.0,
    }
    bfloat16 = {
        "batch": scored,
        "reference": [{"logprobs": p["logprobs"], "best": p["logprobs"]} for p in prompts],
        "seconds": 20.0,
    }
    return {
        "reference": reference,
        "eager": eager,
        "compiled": {"batch": rows, "seconds": 30.0},
        "second": {"batch": rows, "seconds": 20.0},
        "bfloat16": bfloat16,
    }


@pytest.fixture
def identity_doc() -> dict[str, Any]:
    return copy.deepcopy(IDENTITY)


@pytest.fixture
def platform_doc() -> dict[str, Any]:
    return copy.deepcopy(PLATFORM)


@pytest.fixture
def kernels_doc() -> dict[str, Any]:
    return copy.deepcopy(KERNELS)


@pytest.fixture
def words_docs() -> dict[str, Any]:
    return copy.deepcopy(_words())


@pytest.fixture
def receipt_doc() -> dict[str, Any]:
    """What a receipt keeps of the host, the packages and the verification."""
    return {
        "created": "2026-01-02T03:04:05Z",
        "host": {
            "arch": "x86_64",
            "vendor": "GenuineIntel",
            "model": "Xeon",
            "flags": ["amx_bf16", "avx2", "avx512f"],
            "logical": 2,
            "kernel": "6.1.0",
            "libc": "glibc 2.36",
            "libraries": {"numa_runtime": "/usr/lib/libnuma.so.1"},
        },
        "packages": [
            "numpy==2.2.0",
            "torch==2.13.0+cpu",
            "vllm @ file:///wheels/vllm-0.32.0%2Bcpu-cp38-abi3-linux_x86_64.whl",
        ],
        "verify": {
            "kernels": {"files": {"_C.abi3.so": "a" * 64}},
            "smoke": {
                "tokens": 5,
                "seconds": 0.5,
                "asked": "q" * 64,
                "digest": "d" * 64,
                "speed": {"tokens": 1000, "runs": [1.0, 1.02, 1.05], "cpus": 2, "others": 0.0},
            },
        },
    }
