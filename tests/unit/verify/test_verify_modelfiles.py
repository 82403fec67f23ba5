"""A model's files and what the server said, judged."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild.verify import modelfiles, server


def safetensors(path: Path, tensors: dict[str, int], *, extra: int = 0) -> None:
    header, at = {}, 0
    for name, size in tensors.items():
        header[name] = {"dtype": "F32", "shape": [size // 4], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * (at + extra))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen2ForCausalLM"]}')
    (tmp_path / "tokenizer.json").write_text("{}")
    safetensors(tmp_path / "model.safetensors", {"a": 8, "b": 16})
    return tmp_path


def summary(folder: Path) -> str:
    check, _ = modelfiles.files_check(folder)
    assert check.status == "fail"
    return check.summary


def test_a_whole_model_passes(model: Path) -> None:
    check, size = modelfiles.files_check(model)
    assert (check.status, size) == ("pass", 24)
    assert "1 files, 2 tensors" in check.summary


@pytest.mark.parametrize(("cut", "word"), [(-4, "truncated"), (4, "too long")])
def test_a_file_of_another_length_is_named(model: Path, cut: int, word: str) -> None:
    safetensors(model / "model.safetensors", {"a": 8}, extra=cut)
    assert f"model.safetensors is {word}" in summary(model)


@pytest.mark.parametrize(
    "data", [b"", b"\1\2", struct.pack("<Q", 1 << 40), b"\2" + b"\0" * 7 + b"[]"]
)
def test_a_damaged_header_is_named(model: Path, data: bytes) -> None:
    (model / "model.safetensors").write_bytes(data)
    assert "model.safetensors" in summary(model)


def test_no_tokenizer_is_named(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    assert "no tokenizer" in summary(model)
    (model / "vocab.json").touch()
    (model / "merges.txt").touch()
    assert modelfiles.files_check(model)[0].status == "pass"


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_config_that_says_nothing_is_named(model: Path, text: str) -> None:
    (model / "config.json").write_text(text)
    assert "config.json" in summary(model)


def test_no_folder_no_config_no_weights(tmp_path: Path) -> None:
    assert "is no folder" in summary(tmp_path / "none")
    check, _ = modelfiles.files_check(tmp_path)
    assert len(check.evidence) == 3


def test_the_index_is_held_against_the_files(model: Path) -> None:
    index = model / modelfiles.INDEX
    index.write_text(
        json.dumps({"weight_map": {"a": "model.safetensors", "b": "gone.safetensors"}})
    )
    assert "gone.safetensors" in summary(model)
    index.write_text(json.dumps({"weight_map": {"c": "model.safetensors"}}))
    assert "such as c" in summary(model)
    index.write_text("{}")
    assert "weight_map" in summary(model)


@given(data=st.binary(max_size=64))
def test_no_bytes_lead_to_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("m") / "x.safetensors"
    path.write_bytes(data)
    try:
        said = modelfiles.read_weights(path).name
    except modelfiles.BadFileError as error:
        said = str(error)
    assert "x.safetensors" in said


def test_memory_is_said_before_it_is_tried() -> None:
    assert modelfiles.memory_check(1 << 30, 64 << 30).status == "pass"
    check = modelfiles.memory_check(70 << 30, 64 << 30)
    assert check.status == "fail"
    assert "needs 73.0 GiB, 64.0 GiB can be taken" in check.summary
    assert modelfiles.memory_check(1, None).status == "unknown"


def test_known_answers() -> None:
    table = {"least": 1, "questions": [{"ask": "q", "words": ["5"]}, {"ask": "r", "words": ["x"]}]}
    good = modelfiles.answers_check(table, {"answers": ["It is 5.", "no"], "seconds": 1})
    assert (good.status, good.summary) == ("pass", "1 of 2 questions answered as known")
    bad = modelfiles.answers_check(table, {"answers": ["no", "no"], "seconds": 1})
    assert bad.status == "fail"


def talked() -> dict[str, Any]:
    return {
        "models": {"error": None, "ids": [server.NAME]},
        "wrong_key": {"error": "AuthenticationError", "status": 401},
        "completion": {"error": None, "tokens": [1, 2], "expected": [1, 2]},
        "chat": {"error": None, "text": "abc", "count": 12},
        "stream": {"error": None, "text": "abc", "events": 3},
    }


KEYS = {"none": 401, "wrong": 401}
METRICS = 'vllm:requests{model="x"} 1\nvllm:tokens 2\npython_info 1\n'


def judged(document: dict[str, Any] | None, keys: Any = KEYS, metrics: str = METRICS) -> Any:
    checks = server.judge(document, keys, metrics, None)
    return {c.id.partition(".")[2]: c for c in checks}


def test_a_server_that_says_the_right_things_passes() -> None:
    checks = judged(talked())
    assert {c.status for c in checks.values()} == {"pass"}
    assert checks["metrics"].summary == "2 series of vllm"


@pytest.mark.parametrize(
    ("call", "changes", "failing"),
    [
        ("models", {"ids": ["other"]}, "models"),
        ("wrong_key", {"error": None, "status": None, "ids": []}, "key"),
        ("completion", {"tokens": [1, 3]}, "completion"),
        ("completion", {"error": "InternalServerError: 500"}, "completion"),
        ("chat", {"count": 3}, "chat"),
        ("stream", {"events": 1}, "stream"),
        ("stream", {"text": "abd"}, "stream"),
    ],
)
def test_each_wrong_answer_fails_its_check(
    call: str, changes: dict[str, Any], failing: str
) -> None:
    document = talked()
    document[call].update(changes)
    checks = judged(document)
    assert checks[failing].status == "fail"
    assert sum(c.status == "fail" for c in checks.values()) == 1


def test_an_open_door_and_empty_metrics_fail() -> None:
    assert judged(talked(), {"none": 200, "wrong": 401})["key"].status == "fail"
    assert judged(talked(), metrics="python_info 1\n")["metrics"].status == "fail"


def test_a_client_that_gave_nothing_fails() -> None:
    assert judged(None)["models"].status == "fail"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"vocab_size": 4, "hidden_size": 3}, "an embedding of 4 x 3 is asked for, 4 x 2 is there"),
        ({"num_hidden_layers": 3}, "3 layers are asked for, layer 1 is not there"),
    ],
)
def test_a_configuration_of_another_model_is_named(
    model: Path, config: dict[str, int], words: str
) -> None:
    (model / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForCausalLM"]} | config))
    shapes = {"model.embed_tokens.weight": [4, 2], "model.layers.0.a": [1], "model.layers.2.a": [1]}
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path = model / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))
    assert words in summary(model)


def test_a_tensor_of_another_size_than_its_shape_is_named(model: Path) -> None:
    header = {"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 16]}}
    text = json.dumps(header).encode()
    (model / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(16))
    assert "a has another size than its shape says" in summary(model)
