"""A model by its hub id: caches of both hubs, the hub's hashes, what is said when it is nowhere."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cpubuild.run import Completed
from cpubuild.verify import hub, modelfiles, realmodel
from cpubuild.verify.hub import Located
from cpubuild.verify.target import Target, online

NAME = "Qwen/Qwen2.5-0.5B-Instruct"


class Silent(Target):
    """A target whose hub client answers what it was told to."""

    __slots__ = ()
    said: ClassVar[dict[str, Any] | None] = None
    asked: ClassVar[list[Any]] = []

    def fetch(self, options: Any) -> tuple[Completed, dict[str, Any] | None]:
        Silent.asked.append(dict(options))
        done = Completed(argv=("python",), returncode=3, stdout="", stderr="", seconds=1.0)
        return done, Silent.said


@pytest.fixture
def target(tmp_path: Path) -> Silent:
    Silent.said = {
        "error": {
            "type": "LocalEntryNotFoundError",
            "message": "cannot find it",
            "traceback": "httpx.ConnectError: [Errno 111] Connection refused\nand so on",
        }
    }
    Silent.asked = []
    environ = {"HOME": str(tmp_path / "home")}
    return Silent(python=Path("/env/bin/python"), folder=tmp_path, environ=environ)


def content() -> dict[str, bytes]:
    header = {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    text = json.dumps(header).encode()
    return {
        "config.json": b'{"architectures": ["Qwen2ForCausalLM"]}',
        "tokenizer.json": b"{}",
        "model.safetensors": struct.pack("<Q", len(text)) + text + bytes(8),
    }


def snapshot(cache: Path, name: str = NAME, revision: str = "c0ffee") -> Path:
    """A model as huggingface_hub keeps it."""
    root = cache / ("models--" + name.replace("/", "--"))
    folder = root / "snapshots" / revision
    (root / "blobs").mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True)
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / "main").write_text(revision)
    for file, data in content().items():
        large = file.endswith(".safetensors")
        digest = (
            hashlib.sha256(data) if large else hashlib.sha1(b"blob %d\0" % len(data) + data)
        ).hexdigest()
        (root / "blobs" / digest).write_bytes(data)
        (folder / file).symlink_to(Path("../../blobs") / digest)
    return folder


def plain(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for file, data in content().items():
        (folder / file).write_bytes(data)
    return folder


def found(model: str | Path, target: Silent) -> Located:
    return hub.locate(model, target)


def test_a_folder_is_a_folder(tmp_path: Path, target: Silent) -> None:
    assert found(tmp_path, target).folder == tmp_path
    assert found(tmp_path / "nowhere", target).folder == tmp_path / "nowhere"
    assert Silent.asked == []


def test_a_folder_wins_over_an_id(
    tmp_path: Path, target: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(tmp_path / NAME)
    monkeypatch.chdir(tmp_path)
    assert found(Path(NAME), target).folder == tmp_path / NAME


@pytest.mark.parametrize(
    ("environ", "cache"),
    [
        ({}, "home/.cache/huggingface/hub"),
        ({"XDG_CACHE_HOME": "{}/xdg"}, "xdg/huggingface/hub"),
        ({"HF_HOME": "{}/hf"}, "hf/hub"),
        ({"HF_HOME": "{}/hf", "HF_HUB_CACHE": "{}/own"}, "own"),
    ],
)
def test_a_snapshot_of_hugging_face(
    tmp_path: Path, target: Silent, environ: dict[str, str], cache: str
) -> None:
    folder = snapshot(tmp_path / cache)
    asked = {n: v.format(tmp_path) for n, v in environ.items()}
    here = Silent(
        python=target.python, folder=tmp_path, environ={"HOME": str(tmp_path / "home")} | asked
    )
    located = found(Path(NAME), here)
    assert located.folder == folder
    assert Silent.asked == []


def test_the_snapshot_of_refs_main_is_taken(tmp_path: Path, target: Silent) -> None:
    cache = tmp_path / "home/.cache/huggingface/hub"
    snapshot(cache, revision="old")
    new = snapshot(cache, revision="new")
    assert found(NAME, target).folder == new


@pytest.mark.parametrize(
    "place",
    [
        "home/.cache/modelscope/hub/models/Qwen/Qwen2.5-0.5B-Instruct",
        "home/.cache/modelscope/hub/models/Qwen/Qwen2___5-0___5B-Instruct",
        "home/.cache/modelscope/hub/Qwen/Qwen2___5-0___5B-Instruct",
    ],
)
def test_a_folder_of_modelscope(tmp_path: Path, target: Silent, place: str) -> None:
    folder = plain(tmp_path / place)
    assert found(NAME, target).folder == folder


def test_vllms_own_variable_prefers_modelscope(tmp_path: Path, target: Silent) -> None:
    other = plain(tmp_path / "ms" / "models" / NAME)
    face = snapshot(tmp_path / "home/.cache/huggingface/hub")
    environ = {"HOME": str(tmp_path / "home"), "MODELSCOPE_CACHE": str(tmp_path / "ms")}
    here = Silent(python=target.python, folder=tmp_path, environ=environ)
    assert found(NAME, here).folder == face
    wants = environ | {"VLLM_USE_MODELSCOPE": "True"}
    here = Silent(python=target.python, folder=tmp_path, environ=wants)
    assert found(NAME, here).folder == other


def test_what_is_nowhere_is_asked_of_the_hub(tmp_path: Path, target: Silent) -> None:
    Silent.said = {"folder": str(tmp_path), "client": "huggingface_hub 1.0"}
    located = found(NAME, target)
    assert located.folder == tmp_path
    assert Silent.asked == [{"hub": "huggingface", "model": NAME}]


def test_a_snapshot_that_is_not_whole_is_asked_for_and_else_judged(
    tmp_path: Path, target: Silent
) -> None:
    folder = snapshot(tmp_path / "home/.cache/huggingface/hub")
    (folder / "tokenizer.json").unlink()
    located = found(NAME, target)
    assert len(Silent.asked) == 1
    assert located.folder == folder
    checks = realmodel.before(located, 1 << 40)
    assert checks[0].status == "fail"
    assert "no tokenizer" in checks[0].summary


def test_one_clear_error_names_what_can_be_done(target: Silent) -> None:
    (check,) = realmodel.before(found(NAME, target), 1 << 40)
    assert (check.id, check.status) == ("model.files", "fail")
    assert "Connection refused" in check.summary
    assert ".cache/huggingface/hub" in check.summary
    remedies = " ".join(check.remedy)
    for word in ("--model FOLDER", "HF_ENDPOINT", "VLLM_USE_MODELSCOPE"):
        assert word in remedies


def test_a_client_that_left_nothing_is_an_error_too(target: Silent) -> None:
    Silent.said = None
    assert "status 3" in found(NAME, target).said


def test_content_is_held_against_the_hubs_hashes(tmp_path: Path) -> None:
    folder = snapshot(tmp_path)
    check, _ = modelfiles.files_check(folder, "said")
    assert check.status == "pass"
    assert "3 files have the hub's hash" in check.summary
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    check, _ = modelfiles.files_check(folder)
    assert check.status == "fail"
    assert "model.safetensors is not the file that the hub has" in check.summary


def test_a_hubs_client_is_online_and_has_the_callers_settings() -> None:
    env = online({"HF_ENDPOINT": "http://mirror", "HF_TOKEN": "t", "VLLM_X": "1", "PATH": "/bin"})
    assert (env["HF_ENDPOINT"], env["HF_TOKEN"], env["PATH"]) == ("http://mirror", "t", "/bin")
    assert not {"VLLM_X", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} & env.keys()
    assert online({"HF_HUB_OFFLINE": "1"})["HF_HUB_OFFLINE"] == "1"
