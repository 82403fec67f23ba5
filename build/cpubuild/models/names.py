"""How models are named: short names, ids of a hub with a revision, and what is known of them."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from cpubuild.errors import CpuBuildError, ExitCode, fail

PART = r"[A-Za-z0-9](?:[\w.-]*[\w-])?"
REFERENCE = re.compile(rf"(?P<id>{PART}/{PART})(?:@(?P<revision>[\w./-]+))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """A model of the table; ``parameters`` by its shape, ``size`` in bytes, computed, so about."""

    name: str
    id: str
    parameters: int
    bits: int
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """An id on a hub, ``owner/name``, and the revision that was asked for, if one was."""

    id: str
    revision: str | None = None


@cache
def table() -> Mapping[str, Any]:
    """``data/models.toml``."""
    text = files("cpubuild.data").joinpath("models.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def known() -> tuple[Known, ...]:
    """Every model of the table, the instruction models of a family and size first."""
    shapes = {row["size"]: row for row in table()["shape"]}
    return tuple(
        row(family["prefix"] + "-".join(filter(None, (size, variant))), shapes[size], variant)
        for family in table()["family"]
        for size in family["sizes"]
        for variant in family["variants"]
    )


def row(id_: str, shape: Mapping[str, Any], variant: str) -> Known:
    """One model: its parameters and the bytes of its weights follow from shape and variant."""
    kind = variant.removeprefix("Instruct").removeprefix("-")
    quantised = table()["quantised"]
    bits = int(quantised["bits"].get(kind, 16))
    linear, other = parameters(shape)
    size = 2 * (linear + other)
    if bits < 16:
        size = 2 * other + round(linear * (bits + (16 + bits) / quantised["group"]) / 8)
    name = id_.partition("/")[2].lower()
    return Known(name=name, id=id_, parameters=linear + other, bits=bits, size=size)


def parameters(shape: Mapping[str, Any]) -> tuple[int, int]:
    """Parameters of the layers' matrices, and of all the rest (embeddings, biases, norms)."""
    hidden, layers = shape["hidden"], shape["layers"]
    kv = hidden // shape["heads"] * shape["kv_heads"]
    linear = layers * (2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * shape["intermediate"])
    embeddings = shape["vocab"] * hidden * (1 if shape["tied"] else 2)
    return linear, embeddings + layers * (hidden + 2 * kv + 2 * hidden) + hidden


def reference(text: str) -> Reference:
    """What a name means on a hub; SETTINGS, with the nearest names, if it means nothing."""
    name, _, revision = text.partition("@")
    for model in known():
        if name.lower() in (model.name, model.id.lower()):
            return parsed(f"{model.id}@{revision}" if revision else model.id, text)
    return parsed(text, text)


def parsed(text: str, given: str) -> Reference:
    """``owner/name`` or ``owner/name@revision``."""
    match = REFERENCE.fullmatch(text)
    if match is None or ".." in text:
        raise unknown(given)
    return Reference(id=match["id"], revision=match["revision"])


def unknown(text: str) -> CpuBuildError:
    """The error for a text that names no model."""
    near = difflib.get_close_matches(text.lower(), [m.name for m in known()], n=3)
    return fail(
        ExitCode.SETTINGS,
        f"{text!r} is neither a folder or archive here, nor a short name, nor owner/name of a hub",
        remedy=(
            *((f"did you mean {' or '.join(near)}?",) if near else ()),
            "cpubuild model list   # shows the short names",
        ),
    )
