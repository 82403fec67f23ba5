"""What is found of a model's folder: whole, fitting, read by its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.tinymodel import config, safetensors, tensors, write_model

from cpubuild import jsonio
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.findings import Status
from cpubuild.models import judge
from cpubuild.models.hubs import HubFile


def answers(change: Mapping[str, Any] | None = None) -> judge.Ask:
    """A tokenizer probe that gives every text back, with changes."""

    def ask(options: Mapping[str, Any]) -> Mapping[str, Any]:
        rows = [{"text": t, "tokens": 3, "back": t} for t in options["texts"]]
        return {
            "client": "tokenizers 1",
            "size": 256,
            "highest": 200,
            "texts": rows,
            **(change or {}),
        }

    return ask


def statuses(judged: judge.Judgement) -> dict[str, str]:
    return {f.id: str(f.status) for f in judged.findings}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def rewrite(folder: Path, **changes: Any) -> None:
    (folder / "config.json").write_text(json.dumps(config(**changes)))


def test_a_good_model(folder: Path) -> None:
    judged = judge.judge(folder, ask=answers())
    assert set(statuses(judged).values()) == {"ok"}
    assert judged.good
    judged.refuse("never")
    assert (judged.architecture, judged.dtype, judged.context) == (
        "Qwen2ForCausalLM",
        "bfloat16",
        64,
    )
    assert judged.parameters * 2 == judged.size


def test_every_tensor_of_a_qwen2_is_asked_for() -> None:
    assert judge.qwen2(config()) == tensors()
    untied = judge.qwen2(config(tie_word_embeddings=False))
    assert set(untied) - set(tensors()) == {"lm_head.weight"}


@pytest.mark.parametrize("name", sorted(tensors()))
def test_a_tensor_that_is_missing_or_has_another_shape(folder: Path, name: str) -> None:
    left = {n: s for n, s in tensors().items() if n != name}
    (folder / "model.safetensors").write_bytes(safetensors(left))
    assert not judge.judge(folder, ask=answers()).good
    (folder / "model.safetensors").write_bytes(safetensors({**left, name: (3, 5)}))
    judged = judge.judge(folder, ask=answers())
    assert not judged.good
    with pytest.raises(CpuBuildError) as caught:
        judged.refuse("it is not stored")
    assert caught.value.exit_code is ExitCode.VERIFY


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"intermediate_size": 48}, "mlp"),
        ({"num_key_value_heads": 4}, "self_attn.k_proj"),
        ({"tie_word_embeddings": False}, "lm_head.weight is missing"),
        ({"num_attention_heads": None}, "lacks what a Qwen2 needs"),
        ({"num_attention_heads": 0}, "lacks what a Qwen2 needs"),
    ],
)
def test_a_configuration_of_another_model(folder: Path, changes: Any, told: str) -> None:
    rewrite(folder, **changes)
    (finding,) = [f for f in judge.judge(folder, ask=answers()).findings if f.id == "model.shapes"]
    assert (finding.status, told in finding.found) == (Status.BLOCKER, True)


def test_other_architectures_and_quantised_weights_are_held_by_embedding_and_layers(
    folder: Path,
) -> None:
    rewrite(folder, architectures=["OtherForCausalLM"], intermediate_size=1)
    assert statuses(judge.judge(folder, ask=answers()))["model.shapes"] == "ok"
    rewrite(folder, quantization_config={"quant_method": "gptq", "bits": 4}, intermediate_size=1)
    judged = judge.judge(folder, ask=answers())
    assert (judged.good, judged.dtype) == (True, "gptq 4 bit")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"texts": [{"text": "你好", "tokens": 2, "back": "??"}]}, "'你好' comes back as '??'"),
        ({"highest": 320}, "gives token 320, the weights know 320"),
        ({"error": {"kind": "other", "message": "no merges"}}, "cannot be loaded: no merges"),
    ],
)
def test_a_tokenizer_that_does_not_fit(folder: Path, change: Any, told: str) -> None:
    judged = judge.judge(folder, ask=answers(change))
    (finding,) = [f for f in judged.findings if f.status is Status.BLOCKER]
    assert (finding.id, told in finding.found) == ("model.tokenizer", True)


@pytest.mark.parametrize("ask", [None, answers({"error": {"kind": "client", "message": "no"}})])
def test_a_tokenizer_that_could_not_be_tried_is_unknown(folder: Path, ask: Any) -> None:
    judged = judge.judge(folder, ask=ask)
    assert (statuses(judged)["model.tokenizer"], judged.good) == ("unknown", True)


def test_a_base_model_is_a_warning(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("{}")
    assert statuses(judge.judge(folder, ask=answers()))["model.chat"] == "warn"
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert statuses(judge.judge(folder, ask=answers()))["model.chat"] == "ok"
    (folder / "tokenizer_config.json").write_text("{")
    assert statuses(judge.judge(folder, ask=answers()))["model.chat"] == "blocker"


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_file_that_is_not_there(folder: Path, name: str) -> None:
    (folder / name).unlink()
    judged = judge.judge(folder, ask=answers())
    assert statuses(judged) == {"model.files": "blocker"}
    assert not judge.judge(folder / "nowhere").good


def test_files_are_held_against_what_was_announced(folder: Path) -> None:
    path = folder / "config.json"
    size, sha256 = path.stat().st_size, jsonio.sha256_of(path)
    said = [
        judge.difference(path, HubFile(path="config.json", size=s, sha256=h, sha1=g))
        for s, h, g in (
            (size, sha256, None),
            (None, None, None),
            (size + 1, sha256, None),
            (size - 1, None, None),
            (size, "0" * 64, None),
            (size, None, "0" * 40),
        )
    ]
    assert said[:2] == ["", ""]
    assert [" ".join(s.split()[2:4]) for s in said[2:]] == [
        f"truncated: {size}",
        "too long:",
        "the wrong",
        "the wrong",
    ]
    assert "cannot be read" in judge.difference(folder / "no", HubFile(path="no", size=1))
    judged = judge.judge(folder, files=[HubFile(path="no", size=1)], ask=answers())
    assert statuses(judged)["model.hashes"] == "blocker"
