"""The kernels, as vLLM's own loader takes them: what is mapped, registered, and computes right."""

from __future__ import annotations

import ctypes
import importlib
import logging
import re
from importlib import metadata, util
from pathlib import Path
from typing import Any

NAMESPACES = ("_C", "_moe_C")
WATCHED = re.compile(r"lib(g|i)?omp|libtcmalloc|libnuma|libjemalloc|libtorch_cpu|libtorch_cuda")


class Warnings(logging.Handler):
    """Collects vLLM's warnings; a failed import of the extension is one."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text."""
        self.said.append(record.getMessage()[:1000])


def mapped() -> list[str]:
    """Files mapped into this process."""
    try:
        lines = Path("/proc/self/maps").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    paths = {line.split(None, 5)[5] for line in lines if len(line.split(None, 5)) == 6}
    return sorted(p for p in paths if p.startswith("/"))


def load(platforms: Any) -> dict[str, Any]:
    """Let vLLM load its kernels; say how, and what it complained of."""
    ear = Warnings()
    logger = logging.getLogger("vllm")
    logger.addHandler(ear)
    answer: dict[str, Any] = {"how": None, "error": None}
    try:
        loader = getattr(platforms.current_platform, "import_kernels", None)
        if callable(loader):
            answer["how"] = "current_platform.import_kernels()"
            loader()
        else:
            answer["how"] = "import vllm._custom_ops"
            importlib.import_module("vllm._custom_ops")
    except BaseException as error:
        answer["error"] = f"{type(error).__name__}: {error}"[:2000]
    finally:
        logger.removeHandler(ear)
    answer["warnings"] = ear.said
    return answer


def operators(torch: Any) -> list[str]:
    """Registered operators of vLLM's namespaces."""
    names = {n.split(".")[0] for n in torch._C._dispatch_get_all_op_names()}
    return sorted(n for n in names if n.startswith(NAMESPACES))


def cpu_flags(torch: Any) -> dict[str, Any]:
    """What torch says about this CPU: the questions vLLM's loader asks."""
    answer: dict[str, Any] = {}
    for name in (
        "_is_avx2_supported",
        "_is_avx512_supported",
        "_is_avx512_vnni_supported",
        "_is_avx512_bf16_supported",
        "_is_amx_tile_supported",
        "_is_amx_fp16_supported",
    ):
        function = getattr(torch.cpu, name, None)
        answer[name.removeprefix("_is_").removesuffix("_supported")] = (
            bool(function()) if callable(function) else None
        )
    return answer


def numa() -> dict[str, Any]:
    """Whether libnuma loads and says that NUMA calls work here."""
    try:
        library = ctypes.CDLL("libnuma.so.1")
    except OSError as error:
        return {"loads": False, "available": None, "error": str(error)}
    return {"loads": True, "available": library.numa_available() >= 0, "error": None}


def triton() -> dict[str, Any]:
    """Whether triton is installed, whether it has a CPU backend, whether vLLM uses it."""
    answer: dict[str, Any] = {"version": None, "cpu_backend": None, "used": None}
    spec = util.find_spec("triton")
    if spec is not None and spec.origin:
        answer["cpu_backend"] = (Path(spec.origin).parent / "backends" / "cpu").is_dir()
        try:
            answer["version"] = metadata.version("triton")
        except metadata.PackageNotFoundError:
            answer["version"] = "unknown"
    try:
        answer["used"] = bool(importlib.import_module("vllm.triton_utils").HAS_TRITON)
    except BaseException as error:
        answer["error"] = f"{type(error).__name__}: {error}"[:500]
    return answer


def cases(torch: Any) -> list[tuple[str, str, Any, Any]]:
    """(operator, type, call, expected): each call returns what the operator computed."""
    made = []
    functional = torch.nn.functional
    for dtype in (torch.float32, torch.bfloat16):
        generator = torch.Generator().manual_seed(20)
        x = torch.randn(7, 256, generator=generator).to(dtype)
        y = torch.randn(7, 256, generator=generator).to(dtype)
        w = (1 + 0.2 * torch.randn(256, generator=generator)).to(dtype)
        gate, up = x[:, :128].float(), x[:, 128:].float()
        name = str(dtype).removeprefix("torch.")

        def gated(op: str, x: Any = x, dtype: Any = dtype) -> Any:
            out = torch.empty(7, 128, dtype=dtype)
            getattr(torch.ops._C, op)(out, x)
            return out

        def norm(x: Any = x, w: Any = w) -> Any:
            out = torch.empty_like(x)
            torch.ops._C.rms_norm(out, x, w, 1e-6)
            return out

        def fused(x: Any = x, y: Any = y, w: Any = w) -> Any:
            first, second = x.clone(), y.clone()
            torch.ops._C.fused_add_rms_norm(first, second, w, 1e-6)
            return torch.cat([first, second])

        def normed(v: Any, w: Any = w) -> Any:
            return v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()

        added = x.float() + y.float()
        for op, act in (
            ("silu_and_mul", functional.silu(gate)),
            ("gelu_and_mul", functional.gelu(gate)),
            ("gelu_tanh_and_mul", functional.gelu(gate, approximate="tanh")),
        ):
            made.append((op, name, lambda op=op, gated=gated: gated(op), act * up))
        made.append(("rms_norm", name, norm, normed(x.float())))
        made.append(("fused_add_rms_norm", name, fused, torch.cat([normed(added), added])))
        made.append(("rotary_embedding", name, *rotary(torch, x)))
    return made


def rotary(torch: Any, x: Any) -> tuple[Any, Any]:
    """The rotary embedding of ``x`` seen as 7 tokens of 4 heads of 64, and the same by hand."""
    positions = torch.tensor([0, 1, 2, 5, 30, 31, 99])
    angles = torch.outer(torch.arange(128.0), 10000 ** (-torch.arange(0, 64, 2) / 64))
    table = torch.cat([angles.cos(), angles.sin()], -1).to(x.dtype)

    def call() -> Any:
        query, key = x.clone(), x.clone()
        torch.ops._C.rotary_embedding(positions, query, key, 64, table, True)
        return torch.cat([query, key])

    cos, sin = table[positions].float().unsqueeze(1).chunk(2, -1)
    a, b = x.float().view(7, 4, 64).chunk(2, -1)
    turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1).view(7, 256)
    return call, torch.cat([turned, turned])


def arithmetic(torch: Any, names: list[str]) -> list[dict[str, Any]]:
    """Each operator that is registered, on a small input, against the same in plain torch."""
    answers: list[dict[str, Any]] = []
    try:
        prepared = cases(torch)
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"[:500]
        return [{"operator": "torch", "type": "float32", "error": said, "difference": None}]
    for op, dtype, call, expected in prepared:
        if "_C::" + op not in names:
            continue
        answer: dict[str, Any] = {"operator": op, "type": dtype, "error": None, "difference": None}
        try:
            got = call().float()
            scale = expected.abs().clamp(min=1.0)
            difference = ((got - expected).abs() / scale).max().item()
            answer["difference"] = difference if difference == difference else "nan"
        except BaseException as error:
            answer["error"] = f"{type(error).__name__}: {error}"[:500]
        answers.append(answer)
    return answers


def run(_stage: str, _context: dict[str, Any]) -> dict[str, Any]:
    """Load the kernels as vLLM does and look."""
    torch: Any = importlib.import_module("torch")
    platforms: Any = importlib.import_module("vllm.platforms")
    loaded = load(platforms)
    root = Path(platforms.__file__ or "").absolute().parent.parent
    maps = mapped()
    roots = {root, root.resolve()}
    names = operators(torch)
    return {
        "stop": None if names else "no kernel library was loaded",
        "loader": loaded,
        "vllm_folder": str(root),
        "mapped": [p for p in maps if roots & set(Path(p).parents)],
        "watched": [p for p in maps if WATCHED.search(Path(p).name)],
        "operators": names,
        "cpu": cpu_flags(torch),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "numa": numa(),
        "triton": triton(),
        "arithmetic": arithmetic(torch, names),
        "bundled": sorted(p.name for p in (root / "libs").glob("*")),
    }
