"""The type a model is run in: by the processor's instruction sets, and by what fits in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cpubuild.choose.tables import table
from cpubuild.facts.isa import isa_of
from cpubuild.facts.model import Cpu
from cpubuild.tune.shape import Shape

HALF = ("bfloat16", "float16")


@dataclass(frozen=True, kw_only=True, slots=True)
class Dtype:
    """The type, why, and another one that `tune --measure` should try (None: no question)."""

    name: str
    reason: str
    other: str | None = None


def row_for(cpu: Cpu) -> dict[str, Any] | None:
    """The row of the table for this processor, None for an architecture it has none for."""
    have = isa_of(cpu)
    rows: list[dict[str, Any]] = table("tune.toml")["dtype"]
    return next((r for r in rows if r["arch"] == cpu.arch and have >= frozenset(r["isa"])), None)


def choose(cpu: Cpu, shape: Shape, *, room: int) -> Dtype:
    """The type for a model; ``room`` is the bytes that its weights may take."""
    row = row_for(cpu)
    if row is None:
        return Dtype(name=shape.dtype, reason=f"the model's own; nothing is known of {cpu.arch}")
    name, reason = row["dtype"], row["reason"]
    other = {"bfloat16": "float32", "float32": "bfloat16"}[name] if "in_question" in row else None
    if name == "float32" and shape.weights(name) > room >= shape.weights("bfloat16"):
        return Dtype(name="bfloat16", reason=f"{reason}, but in float32 the weights do not fit")
    if other == "float32" and shape.weights(other) > room:
        other = None
    return Dtype(name=name, reason=f"{reason}; {conversion(shape.dtype, name)}", other=other)


def conversion(own: str, run: str) -> str:
    """What becomes of the model's own type."""
    if own == run:
        return "it is the model's own type"
    if own == "float16":
        return f"the model's float16 becomes {run}" + (
            ": same size, three bits less of precision, no overflow" if run == "bfloat16" else ""
        )
    if own == "float32":
        return f"the model's float32 is rounded to {run}, half the bytes"
    return f"the model's {own} is widened, twice the bytes"
