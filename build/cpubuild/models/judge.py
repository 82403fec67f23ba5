"""Judge a model's files: whole, as announced, fitting their configuration, read by a tokenizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpubuild.errors import CpuBuildError, ExitCode, Problem
from cpubuild.findings import Finding, Status
from cpubuild.models import names
from cpubuild.models.hubs import HubFile
from cpubuild.verify import modelfiles

Ask = Callable[[Mapping[str, Any]], Mapping[str, Any]]
QWEN2 = "Qwen2ForCausalLM"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What was found of a folder, and what its configuration and weights say; sizes in bytes."""

    folder: Path
    findings: tuple[Finding, ...]
    architecture: str = ""
    dtype: str = ""
    parameters: int = 0
    size: int = 0
    context: int | None = None

    @property
    def good(self) -> bool:
        """Whether nothing stands against the use of the model."""
        return all(f.status is not Status.BLOCKER for f in self.findings)

    def refuse(self, said: str) -> None:
        """Raise VERIFY with every blocker; ``said`` tells what is not done for them."""
        problems = [
            Problem(what=f.found, why=f.why or said, remedy=f.remedy, exit_code=f.exit_code)
            for f in self.findings
            if f.status is Status.BLOCKER
        ]
        if problems:
            raise CpuBuildError(*problems)


def judge(folder: Path, *, files: Sequence[HubFile] = (), ask: Ask | None = None) -> Judgement:
    """Look at a model's folder; ``files`` are what its receipt or hub announced.

    ``ask`` runs the tokenizer probe; None: it was not to be had, and that is said as unknown.
    """
    findings = []
    if files:
        findings.append(as_announced(folder, files))
    found, weights = modelfiles.problems(folder)
    if found:
        why = "; ".join(found[1:])
        findings.append(blocker("model.files", "files are whole", found[0], why))
        return Judgement(folder=folder, findings=tuple(findings))
    config = modelfiles.read_json(folder / "config.json")
    shapes = {name: shape for w in weights for name, shape in w.tensors.items()}
    size = sum(w.size for w in weights)
    said = f"{len(weights)} files, {len(shapes)} tensors, {size / 2**30:.2f} GiB"
    findings.append(ok("model.files", "files are whole", said))
    findings.append(fitting(config, shapes))
    findings.append(read_back(folder, config, ask))
    findings.append(chat(folder))
    return Judgement(
        folder=folder,
        findings=tuple(findings),
        architecture=str(config["architectures"][0]),
        dtype=dtype(config),
        parameters=sum(math.prod(shape) for shape in shapes.values()),
        size=size,
        context=config.get("max_position_embeddings"),
    )


def dtype(config: Mapping[str, Any]) -> str:
    """The weights' type in words, a quantised one with its method and bits."""
    plain = str(config.get("dtype") or config.get("torch_dtype") or "unknown")
    quantised = config.get("quantization_config")
    if not isinstance(quantised, dict):
        return plain
    method = str(quantised.get("quant_method", "quantised"))
    bits = quantised.get("bits")
    return f"{method} {bits} bit" if bits else method


def ok(id_: str, title: str, found: str) -> Finding:
    """A finding that came out well."""
    return Finding(id=id_, status=Status.OK, title=title, found=found)


def blocker(
    id_: str, title: str, found: str, why: str = "", *, code: ExitCode = ExitCode.VERIFY
) -> Finding:
    """A finding that stands against the use of the model."""
    remedy = ("get the model again, or take another copy of it",)
    return Finding(
        id=id_,
        status=Status.BLOCKER,
        title=title,
        found=found,
        why=why,
        remedy=remedy,
        exit_code=code,
    )


def as_announced(folder: Path, files: Sequence[HubFile]) -> Finding:
    """model.hashes: every announced file is there with its size and content."""
    wrong = differing(folder, files)
    title = "files are what was announced"
    if wrong:
        rest = "; ".join(wrong[1:])
        return blocker("model.hashes", title, wrong[0], rest, code=ExitCode.DOWNLOAD)
    hashed = sum(1 for f in files if f.sha256 or f.sha1)
    return ok("model.hashes", title, f"{len(files)} files, {hashed} of them by their hashes")


def differing(folder: Path, files: Sequence[HubFile]) -> list[str]:
    """A sentence for each file that is not what was announced."""
    return [said for file in files if (said := difference(folder / file.path, file))]


def difference(path: Path, file: HubFile) -> str:
    """How a file differs from what was announced; empty if it does not."""
    try:
        size = path.stat().st_size
        if file.size is not None and size != file.size:
            state = "truncated" if size < file.size else "too long"
            return f"{file.path} is {state}: {size} bytes, {file.size} were announced"
        for kind, hash_ in (("sha256", file.sha256), ("sha1", file.sha1)):
            if hash_ and (got := modelfiles.content_hash(path, kind)) != hash_:
                return f"{file.path} has the wrong content: {kind} {got}, expected {hash_}"
    except OSError as error:
        return f"{file.path} cannot be read: {error.strerror}"
    return ""


def fitting(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Finding:
    """model.shapes: the weights are those that the configuration asks for."""
    title = "weights fit config.json"
    plain = not isinstance(config.get("quantization_config"), dict)
    if config["architectures"][0] != QWEN2 or not plain:
        kind = "quantised weights" if not plain else str(config["architectures"][0])
        return ok("model.shapes", title, f"embedding and number of layers fit ({kind})")
    try:
        expected = qwen2(config)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        return blocker("model.shapes", title, f"config.json lacks what a Qwen2 needs: {error!r}")
    wrong = [
        f"{name} is {spelled(shapes.get(name))}, config.json asks for {spelled(shape)}"
        for name, shape in expected.items()
        if shapes.get(name) != shape
    ]
    if wrong:
        more = f"; and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        return blocker("model.shapes", title, wrong[0] + more)
    return ok("model.shapes", title, f"all {len(expected)} tensors have the shapes it asks for")


def spelled(shape: tuple[int, ...] | None) -> str:
    """A shape in words."""
    return "missing" if shape is None else " x ".join(map(str, shape))


def qwen2(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors of a Qwen2 by its configuration (transformers' modeling_qwen2.py)."""
    hidden, inner = int(config["hidden_size"]), int(config["intermediate_size"])
    heads = int(config["num_attention_heads"])
    width = int(config.get("head_dim") or hidden // heads)
    kv = int(config.get("num_key_value_heads") or heads) * width
    out = heads * width
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (out, hidden),
        "self_attn.q_proj.bias": (out,),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.k_proj.bias": (kv,),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.v_proj.bias": (kv,),
        "self_attn.o_proj.weight": (hidden, out),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    vocab = (int(config["vocab_size"]), hidden)
    tensors = {"model.embed_tokens.weight": vocab, "model.norm.weight": (hidden,)}
    for number in range(int(config["num_hidden_layers"])):
        tensors |= {f"model.layers.{number}.{name}": shape for name, shape in layer.items()}
    return tensors if config.get("tie_word_embeddings") else tensors | {"lm_head.weight": vocab}


def read_back(folder: Path, config: Mapping[str, Any], ask: Ask | None) -> Finding:
    """model.tokenizer: Chinese and English come back unchanged, in tokens that the weights have."""
    id_, title = "model.tokenizer", "the tokenizer reads Chinese and English"
    texts = names.table()["tokenizer"]["texts"]
    nobody: Mapping[str, Any] = {"error": {"kind": "none"}}
    document = ask({"folder": str(folder), "texts": texts}) if ask else nobody
    if "error" in document:
        error = document["error"]
        if error.get("kind") in ("none", "client"):
            said = "not tried: no environment here has the tokenizers library"
            return Finding(id=id_, status=Status.UNKNOWN, title=title, found=said)
        said = f"the tokenizer cannot be loaded: {error.get('message')}"
        return blocker(id_, title, said)
    changed = [row for row in document["texts"] if row["back"] != row["text"]]
    if changed:
        row = changed[0]
        return blocker(id_, title, f"{row['text']!r} comes back as {row['back']!r}")
    vocab = config.get("vocab_size")
    if isinstance(vocab, int) and document["highest"] >= vocab:
        said = f"the tokenizer gives token {document['highest']}, the weights know {vocab}"
        return blocker(id_, title, said)
    counts = ", ".join(str(row["tokens"]) for row in document["texts"])
    said = f"{len(texts)} texts come back unchanged, in {counts} tokens ({document['client']})"
    return ok(id_, title, said)


def chat(folder: Path) -> Finding:
    """model.chat: there is a template for conversations."""
    id_, title = "model.chat", "there is a chat template"
    kept = folder / "tokenizer_config.json"
    try:
        inside = kept.is_file() and bool(modelfiles.read_json(kept).get("chat_template"))
    except modelfiles.BadFileError as error:
        return blocker(id_, title, str(error))
    if inside or (folder / "chat_template.jinja").is_file():
        return ok(id_, title, "in tokenizer_config.json" if inside else "chat_template.jinja")
    return Finding(
        id=id_,
        status=Status.WARN,
        title=title,
        found="no chat template",
        why="a base model completes texts; chat and serve need an instruction model",
        remedy=("take the variant whose name ends in -Instruct",),
    )
