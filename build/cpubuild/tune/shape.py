"""What of a model decides its settings, read from config.json and the safetensors headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpubuild.errors import CpuBuildError, ExitCode, Problem, fail
from cpubuild.verify import modelfiles

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
PACKED = {"awq": "awq", "auto_awq": "awq", "gptq": "gptq", "auto_gptq": "gptq"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A model in numbers.

    ``elements`` counts the weights that take the type vLLM runs in, ``fixed`` is the bytes of
    all others (quantised ones). ``tied``: the embedding is the output layer too. ``scheme`` is the
    kind of quantisation (data/tune.toml), ``method`` the word in its configuration; None for a
    model that is not quantised.
    """

    architecture: str
    dtype: str
    elements: int
    fixed: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    widest: int
    vocabulary: int
    longest: int
    tied: bool = False
    method: str | None = None
    scheme: str | None = None

    def weights(self, dtype: str) -> int:
        """Bytes of the weights when run in ``dtype``.

        A tied output layer is packed for the processor besides the embedding it shares.
        """
        packed = self.vocabulary * self.hidden if self.tied else 0
        return (self.elements + packed) * WIDTHS[dtype] + self.fixed

    def token(self, dtype: str) -> int:
        """Bytes of keys and values for one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * WIDTHS[dtype]

    def divides(self, ranks: int) -> bool:
        """Whether tensor parallel with so many ranks can split heads and layers evenly."""
        return all(n % ranks == 0 for n in (self.heads, self.kv_heads, self.widest))


def read_shape(folder: Path) -> Shape:
    """Read a model's folder; one SETTINGS error names everything that is wrong with it."""
    if not folder.is_dir():
        raise fail(
            ExitCode.SETTINGS,
            f"--model {folder} is not a folder",
            why="the settings come from the model's config.json and its safetensors headers",
            remedy=("cpubuild model list", "give the folder of a model"),
        )
    wrong: list[str] = []
    weights: list[modelfiles.Weights] = []
    config: dict[str, Any] = {}
    try:
        config = modelfiles.read_json(folder / "config.json")
    except modelfiles.BadFileError as error:
        wrong.append(str(error))
    for path in sorted(folder.glob("*.safetensors")):
        try:
            weights.append(modelfiles.read_weights(path))
        except (modelfiles.BadFileError, OSError) as error:
            wrong.append(str(error))
    if not weights and not wrong:
        wrong.append("there is no *.safetensors file")
    if not wrong:
        try:
            return shape_of(config, weights)
        except (KeyError, TypeError, ValueError) as error:
            wrong.append(f"config.json does not tell the model's shape: {error}")
    remedy = (f"cpubuild model check {folder}", "take the model anew")
    raise CpuBuildError(
        *(
            Problem(what=f"{folder}: {line}", remedy=remedy, exit_code=ExitCode.SETTINGS)
            for line in wrong
        )
    )


def number(config: Mapping[str, Any], *names: str) -> int:
    """The first of the names that holds a whole number of at least 1; ValueError without one."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            if value < 1:
                raise ValueError(f"{name} is {value}")
            return value
    raise ValueError(f"{names[0]} is missing")


def shape_of(config: Mapping[str, Any], weights: list[modelfiles.Weights]) -> Shape:
    """The shape, from a configuration and the headers; ValueError names what is missing."""
    text = config.get("text_config")
    inner = {**config, **text} if isinstance(text, dict) else dict(config)
    hidden, heads = number(inner, "hidden_size"), number(inner, "num_attention_heads")
    method, scheme = quantisation(config)
    total = sum(w.size for w in weights)
    dtype = str(inner.get("dtype") or inner.get("torch_dtype") or "float32").removeprefix("torch.")
    if dtype not in WIDTHS:
        raise ValueError(f"its type is {dtype}, known are {', '.join(WIDTHS)}")
    return Shape(
        architecture=str((config.get("architectures") or ["unknown"])[0]),
        dtype=dtype,
        elements=sum(w.floats for w in weights),
        fixed=total - sum(w.float_bytes for w in weights),
        layers=number(inner, "num_hidden_layers"),
        heads=heads,
        kv_heads=number(inner, "num_key_value_heads", "num_attention_heads"),
        head_dim=number(inner, "head_dim") if inner.get("head_dim") else max(1, hidden // heads),
        hidden=hidden,
        widest=max(number(inner, "intermediate_size"), hidden),
        vocabulary=number(inner, "vocab_size"),
        longest=number(inner, "max_position_embeddings"),
        tied=inner.get("tie_word_embeddings") is True,
        method=method,
        scheme=scheme,
    )


def quantisation(config: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The method that a configuration names and the kind it comes to; None twice for neither."""
    given = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(given, dict):
        return None, None
    method = str(given.get("quant_method") or "unknown").lower()
    if method in PACKED:
        bits = given.get("bits", given.get("w_bit", 4))
        return method, f"int{bits}-{PACKED[method]}"
    if method == "fp8":
        return method, "fp8"
    if method == "compressed-tensors":
        return method, compressed(given)
    return method, method


def compressed(given: Mapping[str, Any]) -> str:
    """The kind of a compressed-tensors checkpoint, by its format and the bits of its groups."""
    groups = given.get("config_groups")
    rows = list(groups.values()) if isinstance(groups, dict) else []
    first = rows[0] if rows and isinstance(rows[0], dict) else {}
    weights, inputs = first.get("weights") or {}, first.get("input_activations")
    bits, kind = weights.get("num_bits"), weights.get("type")
    if kind == "float":
        return "fp8" if bits == 8 else f"float{bits}"
    if inputs and bits == 8:
        return "int8-w8a8"
    if kind == "int" and not inputs:
        return f"int{bits}-packed"
    return f"compressed-tensors {given.get('format', 'of an unknown format')}"
