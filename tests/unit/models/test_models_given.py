"""Folders and archives that are here already: linked, unpacked safely, found, removed."""

from __future__ import annotations

import dataclasses
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.tinymodel import model_files, write_model

from cpubuild import jsonio, verbs
from cpubuild.calls import Call, Outcome
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.models import find, given, hubs, keeping, store, verb
from cpubuild.state import State

SCHEMA = json.loads(
    resources.files("cpubuild").joinpath("data", "schemas", "model.json").read_text("utf-8")
)


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(root=tmp_path / "state")


@pytest.fixture
def model(state: State, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """The verb, without a tokenizer probe: that one is a process."""
    monkeypatch.setattr(verb, "probe", lambda call, state: None)

    def run(action: str | None, name: str | None = None, **more: Any) -> Outcome:
        options = {"action": action, "name": name, "from_": None, "revision": None, **more}
        call = Call(flags={"state": str(state.root)}, options=options, verbose=False, environ={})
        outcome = verb.model(call)
        jsonschema.validate(json.loads(jsonio.dumps(outcome.document)), SCHEMA)
        return outcome

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "here" / "my model")


def test_a_folder_is_linked_and_not_touched(model: Any, state: State, folder: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in folder.iterdir()}
    done = model("get", str(folder))
    shown = done.document["model"]
    assert (shown["id"], shown["kind"], done.document["changed"]) == (
        "local/my_model",
        "linked",
        True,
    )
    assert shown["path"].is_symlink()
    assert find("my_model", state, {}) == shown["path"]
    assert find(str(folder), state, {}) == folder
    assert not model("get", str(folder)).document["changed"]
    assert model("check", "my_model").document["verdict"] == "pass"
    model("rm", str(folder))
    assert store.stored(state) == ()
    assert {p: p.stat().st_mtime_ns for p in folder.iterdir()} == before


def test_a_folder_that_changed_is_registered_anew(model: Any, state: State, folder: Path) -> None:
    first = model("get", str(folder)).document["model"]
    (folder / "LICENSE").write_text("free")
    second = model("get", str(folder)).document["model"]
    assert first["revision"] != second["revision"]
    assert [s.revision for s in store.stored(state)] == [second["revision"]]


def test_a_bad_folder_is_not_registered(model: Any, state: State, folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CpuBuildError, match="truncated") as caught:
        model("get", str(folder))
    assert caught.value.exit_code is ExitCode.VERIFY
    assert store.stored(state) == ()


def packed(folder: Path, archive: Path, top: str) -> Path:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as packed:
            for path in folder.iterdir():
                packed.write(path, f"{top}{path.name}")
        return archive
    mode: Any = {".gz": "w:gz", ".xz": "w:xz", ".bz2": "w:bz2"}.get(archive.suffix, "w")
    with tarfile.open(archive, mode) as sink:
        for path in folder.iterdir():
            sink.add(path, f"{top}{path.name}")
    return archive


@pytest.mark.parametrize("top", ["", "qwen/", "a/b/qwen/"])
@pytest.mark.parametrize("name", ["m.tar", "m.tar.gz", "m.tar.xz", "m.tar.bz2", "m.zip"])
def test_an_archive_is_unpacked(
    model: Any, state: State, folder: Path, tmp_path: Path, name: str, top: str
) -> None:
    archive = packed(folder, tmp_path / name, top)
    done = model("get", str(archive))
    shown = done.document["model"]
    assert (shown["id"], shown["kind"]) == ("local/qwen" if top else "local/m", "unpacked")
    assert {p.name: p.read_bytes() for p in shown["path"].iterdir()} == model_files()
    assert not model("get", str(archive)).document["changed"]
    assert [p.name for p in (state.models / keeping.PARTIAL).iterdir() if p.is_dir()] == []


def test_a_hubs_cache_is_packed_as_links_to_blobs(model: Any, folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "cache.tar"
    with tarfile.open(archive, "w") as sink:
        for path in folder.iterdir():
            sink.add(path, f"models--a--b/blobs/{path.name}")
            link = tarfile.TarInfo(f"models--a--b/snapshots/abc/{path.name}")
            link.type, link.linkname = tarfile.SYMTYPE, f"../../blobs/{path.name}"
            sink.addfile(link)
    path = model("get", str(archive)).document["model"]["path"]
    assert not any(p.is_symlink() for p in path.iterdir())
    assert {p.name: p.read_bytes() for p in path.iterdir()} == model_files()


def evil_tar(archive: Path, member: tarfile.TarInfo) -> None:
    with tarfile.open(archive, "w") as sink:
        member.size = 0
        sink.addfile(member, io.BytesIO(b""))


@pytest.mark.parametrize(
    ("name", "kind", "target"),
    [
        ("../out", tarfile.REGTYPE, ""),
        ("/out", tarfile.REGTYPE, ""),
        ("a/../../out", tarfile.REGTYPE, ""),
        ("link", tarfile.SYMTYPE, "../../out"),
        ("link", tarfile.SYMTYPE, "/etc/passwd"),
        ("device", tarfile.CHRTYPE, ""),
    ],
)
def test_a_tar_that_leaves_its_folder_is_refused(
    model: Any, state: State, tmp_path: Path, name: str, kind: bytes, target: str
) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    evil_tar(tmp_path / "evil.tar", member)
    with pytest.raises(CpuBuildError, match="cannot be unpacked") as caught:
        model("get", str(tmp_path / "evil.tar"))
    assert caught.value.exit_code is ExitCode.DOWNLOAD
    assert not list(tmp_path.rglob("out"))
    assert not any(p.is_dir() for p in (state.models / keeping.PARTIAL).iterdir())


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "..\\out", "C:/out"])
def test_a_zip_that_leaves_its_folder_is_refused(model: Any, tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as sink:
        sink.writestr(zipfile.ZipInfo(name), b"x")
    with pytest.raises(CpuBuildError, match="cannot be unpacked"):
        model("get", str(tmp_path / "evil.zip"))
    assert not list(tmp_path.rglob("out"))


@pytest.mark.parametrize("name", ["m.tar", "m.tar.gz", "m.tar.xz", "m.zip"])
def test_a_truncated_archive(model: Any, folder: Path, tmp_path: Path, name: str) -> None:
    archive = packed(folder, tmp_path / name, "")
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(CpuBuildError, match="cannot be unpacked") as caught:
        model("get", str(archive))
    assert caught.value.exit_code is ExitCode.DOWNLOAD


def test_an_archive_without_a_model(model: Any, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as sink:
        sink.writestr("readme", b"x")
    with pytest.raises(CpuBuildError, match="holds no model"):
        model("get", str(tmp_path / "a.zip"))


def test_a_disk_without_room(
    model: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = packed(folder, tmp_path / "m.tar", "")
    usage = keeping.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(keeping.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(CpuBuildError, match=r"m.tar needs 0.27 GB on the disk, 0.00 GB") as caught:
        model("get", str(archive))
    assert caught.value.exit_code is ExitCode.PREREQUISITE


@pytest.mark.parametrize("name", ["./nothing", "/nowhere/m", "nothing.tar.gz", "~/nothing"])
def test_a_path_that_is_not_there(model: Any, name: str) -> None:
    with pytest.raises(CpuBuildError, match="there is no /") as caught:
        model("get", name)
    assert caught.value.exit_code is ExitCode.SETTINGS


def test_a_file_that_is_no_archive(model: Any, folder: Path) -> None:
    with pytest.raises(CpuBuildError, match="is no folder and no archive"):
        model("get", str(folder / "config.json"))


# find, list, rm


def test_find_names_what_there_is_and_how_to_get_more(
    model: Any, state: State, folder: Path
) -> None:
    with pytest.raises(CpuBuildError) as caught:
        find("qwen2.5-0.5b-instruct", state, {})
    (problem,) = caught.value.problems
    assert (problem.exit_code, "no model is stored" in problem.why) == (ExitCode.SETTINGS, True)
    assert "model get Qwen/Qwen2.5-0.5B-Instruct" in problem.remedy[0]
    model("get", str(folder))
    with pytest.raises(CpuBuildError) as caught:
        find("nonsense", state, {})
    assert caught.value.problems[0].why == "stored are: local/my_model"


def test_verify_takes_stored_names(model: Any, state: State, folder: Path) -> None:
    stored = model("get", str(folder)).document["model"]["path"]
    options = {"model": "my_model", "server": False, "only": None, "skip": None}
    call = Call(flags={"state": str(state.root)}, options=options, verbose=False, environ={})
    assert verbs.extras(call) == {"model": stored}
    for other in ("a/b", str(folder)):
        other_call = dataclasses.replace(call, options=options | {"model": other})
        assert verbs.extras(other_call) == {"model": other}


def test_find_takes_a_whole_model_from_a_hubs_cache(state: State, tmp_path: Path) -> None:
    root = tmp_path / "hub"
    snapshot = write_model(root / "models--Qwen--Qwen2.5-0.5B-Instruct/snapshots/abc")
    environ = {"HF_HUB_CACHE": str(root)}
    assert find("qwen2.5-0.5b-instruct", state, environ) == snapshot
    (snapshot / "model.safetensors").unlink()
    with pytest.raises(CpuBuildError, match="no stored model"):
        find("qwen2.5-0.5b-instruct", state, environ)


def test_find_refuses_a_folder_that_is_no_model(state: State, tmp_path: Path) -> None:
    with pytest.raises(CpuBuildError, match="holds no config"):
        find(str(tmp_path), state, {})


def test_of_two_revisions_the_newest_is_found_and_rm_asks_which(
    model: Any, state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, day in (("a", "2026-01-01"), ("b", "2026-01-02")):
        monkeypatch.setattr(keeping, "now", lambda day=day: f"{day}T00:00:00Z")
        model("get", str(write_model(tmp_path / number / "same")))
    first, second = store.stored(state)
    assert find("same", state, {}) == second.path
    assert find(f"same@{first.revision[:6]}", state, {}) == first.path
    with pytest.raises(CpuBuildError, match="means 2 stored models") as caught:
        model("rm", "same")
    assert f"cpubuild model rm local/same@{first.revision[:12]}" in caught.value.problems[0].remedy
    model("rm", f"same@{first.revision[:6]}")
    assert store.stored(state) == (second,)


def test_a_damaged_receipt_is_listed_and_no_model(model: Any, state: State, folder: Path) -> None:
    entry = model("get", str(folder)).document["model"]["path"].parent
    for text in ("{", "[]", '{"schema": 2}', '{"schema": 1, "files": 3}'):
        (entry / "model.json").write_text(text)
        document = model("list").document
        assert (document["models"], document["damaged"]) == ([], (entry,))
    assert model("get", str(folder)).document["changed"]


def test_a_linked_folder_that_has_gone(model: Any, state: State, folder: Path) -> None:
    model("get", str(folder))
    folder.rename(folder.with_name("away"))
    assert model("list").document["models"][0]["whole"] is False
    assert any("NOT WHOLE" in line for line in model("list").lines)
    with pytest.raises(CpuBuildError, match="not whole any more"):
        find("my_model", state, {})
    model("rm", "my_model")
    assert store.stored(state) == ()


def test_nothing_to_remove(model: Any) -> None:
    with pytest.raises(CpuBuildError, match="no stored model"):
        model("rm", "a/b")


@pytest.mark.parametrize(
    ("action", "name", "told"),
    [
        ("fetch", "x", "there is no such action"),
        ("get", None, "needs a name"),
        ("check", None, "needs a name"),
        ("rm", "", "needs a name"),
    ],
)
def test_words_that_are_wrong(model: Any, action: str, name: str | None, told: str) -> None:
    with pytest.raises(CpuBuildError, match=told) as caught:
        model(action, name)
    assert caught.value.exit_code is ExitCode.SETTINGS


def test_a_hub_that_there_is_not(model: Any) -> None:
    with pytest.raises(CpuBuildError, match="--from github is no hub"):
        model("get", "a/b", from_="github")
    assert hubs.preferred(None, {}) == "hf"
    assert hubs.preferred(None, {"VLLM_USE_MODELSCOPE": "True"}) == "modelscope"


def test_without_an_action_it_lists(model: Any) -> None:
    assert model(None).document == model("list").document


def test_a_state_root_that_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    options = {"action": "get", "name": str(folder), "from_": None, "revision": None}
    flags = {"state": str(tmp_path / "file" / "state")}
    with pytest.raises(CpuBuildError, match="the state root cannot be used"):
        verb.model(Call(flags=flags, options=options, verbose=False, environ={}))


def test_what_counts_as_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert given.is_given("my model")
    assert given.is_given("./x")
    assert not given.is_given("Qwen/Qwen2-7B")
