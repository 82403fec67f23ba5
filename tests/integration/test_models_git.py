"""Getting a model by the real git and git-lfs, from a repository on this disk."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.tinymodel import model_files

from cpubuild import models
from cpubuild.calls import Call, Outcome
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.models import gitlfs, verb
from cpubuild.state import State

WITHOUT_LFS = shutil.which("git-lfs") is None
NEEDS_LFS = pytest.mark.skipif(WITHOUT_LFS, reason="git-lfs is not installed here")


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    home.mkdir()
    names = {
        f"GIT_{who}_{what}": f"{who}@x"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "HF_"))}
    return kept | names | {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}


@pytest.fixture
def origin(tmp_path: Path, surroundings: dict[str, str]) -> Path:
    """A repository whose weights lie in git-lfs, with a tag on its first commit."""
    made = tmp_path / "team" / "tiny.git"
    work = tmp_path / "work"

    def git(*words: str, cwd: Path = work) -> str:
        done = subprocess.run(
            ["git", *words], cwd=cwd, env=surroundings, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q", "--bare", "-b", "main", str(made), cwd=tmp_path)
    git("init", "-q", "-b", "main", str(work), cwd=tmp_path)
    git("lfs", "install", "--local")
    git("lfs", "track", "*.safetensors")
    for name, content in model_files().items():
        (work / name).write_bytes(content)
    git("add", "-A")
    git("commit", "-q", "-m", "one")
    git("tag", "-a", "v1", "-m", "first")
    (work / "README.md").write_text("more")
    git("add", "-A")
    git("commit", "-q", "-m", "two")
    git("remote", "add", "origin", f"file://{made}")
    git("push", "-q", "origin", "main", "v1")
    return made


class Tool:
    def __init__(
        self, root: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.state, self.environ = State(root=root), environ
        monkeypatch.setattr(verb, "probe", lambda call, state: None)

    def get(self, name: str, **more: Any) -> Outcome:
        flags = {"state": str(self.state.root), "offline": more.pop("offline", False)}
        options = {"action": "get", "name": name, "from_": None, "revision": None, **more}
        call = Call(flags=flags, options=options, verbose=False, environ=self.environ)
        return verb.model(call)

    def refused(self, name: str, **more: Any) -> CpuBuildError:
        with pytest.raises(CpuBuildError) as caught:
            self.get(name, **more)
        return caught.value


@pytest.fixture
def tool(tmp_path: Path, surroundings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    return Tool(tmp_path / "state", surroundings, monkeypatch)


@NEEDS_LFS
def test_a_repository_becomes_a_stored_model(tool: Tool, origin: Path) -> None:
    done = tool.get(f"file://{origin}")
    shown = done.document["model"]
    assert (shown["id"], shown["hub"], shown["kind"]) == ("team/tiny", "git", "fetched")
    assert {p.name: p.read_bytes() for p in shown["path"].iterdir()} == model_files()
    assert models.find("team/tiny", tool.state, {}) == shown["path"]
    assert not tool.get(f"file://{origin}").document["changed"]


@NEEDS_LFS
def test_a_tag_is_pinned_as_its_commit(tool: Tool, origin: Path) -> None:
    first = tool.get(f"file://{origin}", revision="v1").document["model"]
    newest = tool.get(f"file://{origin}").document["model"]
    assert first["revision"] != newest["revision"]
    pinned = tool.get(f"file://{origin}", revision=first["revision"])
    assert not pinned.document["changed"]


@NEEDS_LFS
def test_large_files_that_did_not_come_come_the_next_time(tool: Tool, origin: Path) -> None:
    objects = origin / "lfs" / "objects"
    away = objects.with_name("away")
    objects.rename(away)
    error = tool.refused(f"file://{origin}")
    assert error.exit_code is ExitCode.DOWNLOAD
    assert models.stored(tool.state) == ()
    shutil.rmtree(objects, ignore_errors=True)
    away.rename(objects)
    assert tool.get(f"file://{origin}").document["changed"]


@NEEDS_LFS
def test_a_revision_that_there_is_not(tool: Tool, origin: Path) -> None:
    error = tool.refused(f"file://{origin}", revision="v9")
    assert "has no revision v9 of team/tiny" in str(error)


def test_a_repository_that_does_not_answer(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gitlfs, "need_programs", lambda environ: None)
    error = tool.refused("http://127.0.0.1:9/team/tiny.git")
    assert error.exit_code is ExitCode.DOWNLOAD
    assert "team/tiny cannot be fetched: http://127.0.0.1:9/team/tiny.git does not" in str(error)
    error = tool.refused("file:///nowhere/team/tiny")
    assert "file:///nowhere/team/tiny has no team/tiny" in str(error)


@pytest.mark.parametrize("there", [(), ("git",)])
def test_what_is_missing_is_named(tool: Tool, tmp_path: Path, there: tuple[str, ...]) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in there:
        (programs / name).symlink_to(str(shutil.which(name)))
    tool.environ |= {"PATH": str(programs)}
    tool.environ["GIT_EXEC_PATH"] = str(programs)
    error = tool.refused("team/tiny", from_="git")
    assert error.exit_code is ExitCode.PREREQUISITE
    assert f"--from git needs {'git-lfs' if there else 'git'}," in str(error)
    assert any("git-lfs" in line for line in error.problems[0].remedy)


def test_offline_no_repository_is_asked(tool: Tool) -> None:
    error = tool.refused("team/tiny", from_="git", offline=True)
    assert (error.exit_code, "is offline" in str(error)) == (ExitCode.DOWNLOAD, True)
