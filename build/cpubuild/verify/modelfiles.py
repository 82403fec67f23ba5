"""Look at a model's files before an engine is started: whole, complete, and small enough."""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cpubuild.verify.model import Check

INDEX = "model.safetensors.index.json"
TOKENIZERS: tuple[tuple[str, ...], ...] = (
    ("tokenizer.json",),
    ("vocab.json", "merges.txt"),
    ("tokenizer.model",),
    ("vocab.txt",),
)
HEADER_LIMIT = 100 << 20
BYTES = {
    name: width
    for width, names in {
        8: ("F64", "I64", "U64"),
        4: ("F32", "I32", "U32"),
        2: ("F16", "BF16", "I16", "U16"),
        1: ("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"),
    }.items()
    for name in names
}
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
EMBEDDING = "model.embed_tokens.weight"
LAYER = re.compile(r"^model\.layers\.(\d+)\.")
BLOB = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
ENGINE_BYTES = 2 << 30
KV_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """One safetensors file: its tensors' shapes by name, and the bytes they take.

    ``floats`` counts the numbers in plain floating point (not in 8 bits), ``float_bytes`` theirs.
    """

    name: str
    tensors: Mapping[str, tuple[int, ...]]
    size: int
    floats: int = 0
    float_bytes: int = 0


class BadFileError(Exception):
    """A model file that is not what it must be; the text says what was found."""


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; raises BadFileError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadFileError(f"{path.name}: {error.strerror}") from error
    except ValueError as error:
        raise BadFileError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadFileError(f"{path.name} holds no JSON object")
    return document


def read_weights(path: Path) -> Weights:
    """A safetensors file by its header; raises BadFileError when the file does not fit its header.

    The format: eight bytes with the header's length, the header in JSON, the tensors' bytes.
    """
    size = path.stat().st_size
    with path.open("rb") as source:
        start = source.read(8)
        if len(start) < 8:
            raise BadFileError(f"{path.name} has only {size} bytes")
        (length,) = struct.unpack("<Q", start)
        if length > min(size - 8, HEADER_LIMIT):
            raise BadFileError(f"{path.name} is truncated: its header alone has {length} bytes")
        text = source.read(length)
    try:
        header = json.loads(text)
        rows = {n: row for n, row in header.items() if n != "__metadata__"}
        shapes = {n: tuple(int(d) for d in row["shape"]) for n, row in rows.items()}
        end = max((int(row["data_offsets"][1]) for row in rows.values()), default=0)
        wrong = [n for n, row in rows.items() if not fills(row, shapes[n])]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise BadFileError(f"{path.name} has a damaged header: {error}") from error
    wanted = 8 + length + end
    if size != wanted:
        state = "truncated" if size < wanted else "too long"
        raise BadFileError(f"{path.name} is {state}: {size} bytes, its header says {wanted}")
    if wrong:
        raise BadFileError(f"{path.name}: {wrong[0]} has another size than its shape says")
    plain = [n for n, row in rows.items() if row["dtype"] in FLOATS]
    return Weights(
        name=path.name,
        tensors=shapes,
        size=end,
        floats=sum(math.prod(shapes[n]) for n in plain),
        float_bytes=sum(math.prod(shapes[n]) * BYTES[rows[n]["dtype"]] for n in plain),
    )


def fills(row: Mapping[str, Any], shape: tuple[int, ...]) -> bool:
    """Whether a tensor's bytes are as many as its type and shape ask for."""
    width = BYTES.get(str(row["dtype"]))
    start, end = row["data_offsets"]
    return width is None or int(end) - int(start) == width * math.prod(shape)


def problems(folder: Path) -> tuple[list[str], list[Weights]]:
    """Everything that is wrong with the files of a model folder, and the weights that are well."""
    found: list[str] = []
    if not folder.is_dir():
        return [f"{folder} is no folder"], []
    attempt(found, lambda: config(folder))
    if not any(all((folder / n).is_file() for n in names) for names in TOKENIZERS):
        found.append(
            "no tokenizer: none of tokenizer.json, vocab.json with merges.txt, tokenizer.model"
        )
    elif (folder / "tokenizer.json").is_file():
        attempt(found, lambda: read_json(folder / "tokenizer.json"))
    weights: list[Weights] = []
    paths = sorted(folder.glob("*.safetensors"))
    for path in paths:
        attempt(found, partial(read_into, weights, path))
    if (folder / INDEX).is_file():
        attempt(found, lambda: index(folder, weights))
    elif not paths:
        found.append("no *.safetensors file")
    if not found:
        attempt(found, lambda: matches(folder, weights))
    return found, weights


def matches(folder: Path, weights: list[Weights]) -> None:
    """The tensors are those of the configuration: the embedding's shape, the number of layers."""
    settings = read_json(folder / "config.json")
    shapes = {name: shape for w in weights for name, shape in w.tensors.items()}
    asked = (settings.get("vocab_size"), settings.get("hidden_size"))
    shape = shapes.get(EMBEDDING)
    if shape is not None and None not in asked and shape != asked:
        raise BadFileError(
            f"config.json and weights do not fit: an embedding of {asked[0]} x {asked[1]} is asked "
            f"for, {' x '.join(map(str, shape))} is there"
        )
    layers = {int(m[1]) for name in shapes if (m := LAYER.match(name))}
    count = settings.get("num_hidden_layers")
    if layers and isinstance(count, int) and (lost := set(range(count)) - layers):
        raise BadFileError(
            f"config.json and weights do not fit: {count} layers are asked for, layer "
            f"{min(lost)} is not there"
        )


def damaged(folder: Path) -> tuple[list[str], int]:
    """Files whose content is not what the hub said it is, and how many were compared.

    A cache of Hugging Face keeps each file under the hash that the hub gave for it: the sha256 of
    a large file, git's sha1 of a small one. The snapshot holds links to them.
    """
    bad, count = [], 0
    for path in sorted(folder.iterdir()):
        name = path.readlink().name if path.is_symlink() else ""
        if BLOB.fullmatch(name) and path.is_file():
            count += 1
            if content_hash(path, "sha256" if len(name) == 64 else "sha1") != name:
                bad.append(f"{path.name} is not the file that the hub has (its hash differs)")
    return bad, count


def content_hash(path: Path, kind: str) -> str:
    """The sha256 of a file, or git's sha1 of it."""
    digest = hashlib.new(kind, usedforsecurity=False)
    if kind == "sha1":
        digest.update(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as source:
        while piece := source.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()


def read_into(weights: list[Weights], path: Path) -> None:
    """Read one file into the list; raises BadFileError."""
    weights.append(read_weights(path))


def attempt(found: list[str], step: Callable[[], object]) -> None:
    """Run a step; what it raises becomes a line."""
    try:
        step()
    except BadFileError as error:
        found.append(str(error))
    except OSError as error:
        found.append(f"{error.filename}: {error.strerror}")


def config(folder: Path) -> None:
    """config.json names an architecture."""
    if not read_json(folder / "config.json").get("architectures"):
        raise BadFileError("config.json names no architecture")


def index(folder: Path, weights: list[Weights]) -> None:
    """The index's files are there and hold the tensors it names."""
    names = read_json(folder / INDEX).get("weight_map")
    if not isinstance(names, dict):
        raise BadFileError(f"{INDEX} has no weight_map")
    missing = sorted({str(n) for n in names.values() if not (folder / str(n)).is_file()})
    if missing:
        raise BadFileError(f"files of the index are missing: {', '.join(missing)}")
    have = {w.name: w.tensors for w in weights}
    lost = [t for t, n in names.items() if n in have and t not in have[n]]
    if lost:
        raise BadFileError(f"{len(lost)} tensors of the index are in no file, such as {lost[0]}")


def files_check(folder: Path, said: str = "") -> tuple[Check, int]:
    """model.files, and the bytes of the weights; ``said`` is how the folder was found."""
    found, weights = problems(folder)
    size = sum(w.size for w in weights)
    compared = 0
    if not found:
        found, compared = damaged(folder)
    if found:
        return (
            Check(
                id="model.files",
                status="fail",
                summary=found[0],
                evidence=(*found, *((said,) if said else ())),
                remedy=("download the model again",),
            ),
            size,
        )
    tensors = sum(len(w.tensors) for w in weights)
    return (
        Check(
            id="model.files",
            status="pass",
            summary=f"{len(weights)} files, {tensors} tensors, {size / 2**30:.2f} GiB"
            + (f"; {compared} files have the hub's hash" if compared else ""),
            evidence=(said,) if said else (),
        ),
        size,
    )


def memory_check(size: int, usable: int | None) -> Check:
    """model.memory: weights, KV cache and engine against what can still be taken, in bytes."""
    id_ = "model.memory"
    needed = size + KV_BYTES + ENGINE_BYTES
    spelled = (
        f"weights {size / 2**30:.1f} GiB, KV cache {KV_BYTES / 2**30:.0f} GiB, "
        f"engine {ENGINE_BYTES / 2**30:.0f} GiB"
    )
    if usable is None:
        return Check(id=id_, status="unknown", summary="the memory that is free is not known")
    if needed > usable:
        return Check(
            id=id_,
            status="fail",
            summary=f"needs {needed / 2**30:.1f} GiB, {usable / 2**30:.1f} GiB can be taken",
            evidence=(spelled,),
            remedy=("take a smaller model, free memory, or raise the container's limit",),
        )
    return Check(
        id=id_,
        status="pass",
        summary=f"needs {needed / 2**30:.1f} GiB of {usable / 2**30:.1f} GiB",
        evidence=(spelled,),
    )


def answers_check(table: Mapping[str, Any], document: Mapping[str, Any]) -> Check:
    """model.answers."""
    pairs = list(zip(table["questions"], document["answers"], strict=True))
    right = sum(any(w in text for w in row["words"]) for row, text in pairs)
    evidence = tuple(f"{row['ask']} -> {text.strip()[:80]!r}" for row, text in pairs)
    good = right >= table["least"]
    return Check(
        id="model.answers",
        status="pass" if good else "fail",
        summary=f"{right} of {len(pairs)} questions answered as known",
        evidence=evidence,
        remedy=() if good else ("is it an instruction model? if so, verify without it first",),
        seconds=float(document["seconds"]),
    )
