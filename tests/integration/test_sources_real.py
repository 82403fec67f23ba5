"""The real sources of this host: its pip, its package index, its apt, git."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import distro as distribution
import pytest

from cpubuild import run
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.facts.model import Distro
from cpubuild.sources import apt, onednn, trees, vllm
from cpubuild.sources.git import describe, ls_remote
from cpubuild.sources.index import listing
from cpubuild.sources.pipconfig import PipConfig, read_pip_config, uv_arguments, uv_environment
from cpubuild.sources.torch import TorchChoice, find_torch, torch_sha256

pytestmark = pytest.mark.integration
HAS_APT = shutil.which("apt-get") is not None and distribution.id() in ("debian", "ubuntu")


@pytest.fixture(scope="module")
def config():
    return read_pip_config()


def here():
    return Distro(
        id=distribution.id(),
        version=distribution.version(),
        codename=distribution.codename(),
        pretty=distribution.name(pretty=True),
        family="apt",
    )


def git(folder, *args):
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@h",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@h",
    }
    done = subprocess.run(["git", *args], cwd=folder, env=env, check=True, capture_output=True)
    return done.stdout.decode().strip()


@pytest.fixture
def upstream(tmp_path):
    """A repository with the tag v0.32.0 (annotated), the branch next and one commit more."""
    folder = tmp_path / "upstream.git"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main", ".")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    (folder / "setup.py").write_text("print()\n")
    git(folder, "add", "setup.py")
    git(folder, "commit", "-q", "-m", "one")
    git(folder, "tag", "-a", "v0.32.0", "-m", "release")
    (folder / "more.py").write_text("print()\n")
    git(folder, "add", "more.py")
    git(folder, "commit", "-q", "-m", "two")
    git(folder, "branch", "next")
    return folder


def test_pips_own_words_decide(tmp_path, monkeypatch):
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://u:p@mirror.example/simple\n"
        f"extra-index-url =\n    file://{tmp_path}/one\n    file://{tmp_path}/two\n"
        f"find-links = {tmp_path} {tmp_path}/gone\n[install]\nno-index = true\n"
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_"))}
    env |= {"PIP_CONFIG_FILE": str(file), "PIP_TIMEOUT": "7"}
    found = read_pip_config(environ=env)
    assert found.index_url == "https://u:p@mirror.example/simple"
    assert found.extra_index_urls[-2:] == (f"file://{tmp_path}/one", f"file://{tmp_path}/two")
    assert found.find_links == (str(tmp_path),)
    assert found.timeout == 7
    assert found.no_index
    with pytest.raises(CpuBuildError) as caught:
        read_pip_config("/no/such/python")
    assert caught.value.exit_code is ExitCode.SETTINGS


def test_uv_takes_what_it_is_handed(tmp_path):
    """Folders as indexes, one of which lacks the project; links; a constraint; no network."""
    wheel = tmp_path / "links/cpubuildprobe-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    _tiny_wheel(wheel, "1.0")
    newer = tmp_path / "files/cpubuildprobe-2.0-py3-none-any.whl"
    newer.parent.mkdir()
    _tiny_wheel(newer, "2.0")
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
    page = tmp_path / "full/cpubuildprobe/index.html"
    page.parent.mkdir()
    page.write_text(f'<a href="{newer.as_uri()}">{newer.name}</a>')
    (tmp_path / "c.txt").write_text("cpubuildprobe<3\n")
    config = PipConfig(
        index_url=(tmp_path / "empty").as_uri(),
        extra_index_urls=((tmp_path / "empty").as_uri(), (tmp_path / "full").as_uri()),
        find_links=(str(wheel.parent),),
        constraints=(str(tmp_path / "c.txt"),),
        timeout=9,
    )
    assert _resolved(tmp_path, config) == "cpubuildprobe==2.0"
    (tmp_path / "c.txt").write_text("cpubuildprobe<2\n")
    assert _resolved(tmp_path, config) == "cpubuildprobe==1.0"


def _resolved(folder: Path, config: PipConfig) -> str:
    (folder / "in.txt").write_text("cpubuildprobe\n")
    uv = [sys.executable, "-m", "uv", "pip", "compile", "--offline", "--no-header", "--no-annotate"]
    done = run.capture(
        [*uv, "-p", sys.executable, *uv_arguments(config), str(folder / "in.txt")],
        env={k: v for k, v in os.environ.items() if not k.startswith("UV_")}
        | uv_environment(config)
        | {"UV_CACHE_DIR": str(folder / "cache")},
    )
    assert done.ok, done.stderr
    return done.stdout.strip()


def _tiny_wheel(path: Path, version: str) -> None:
    import zipfile

    info = f"cpubuildprobe-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: cpubuildprobe\nVersion: {version}\n"
        )
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", "")


def test_the_index_lists_vllm_with_hashes(config):
    found = listing("vllm", config)
    release = found.find("0.32.0")
    assert release is not None, found.failed
    assert release.sdist is not None
    assert release.sdist.sha256
    assert len(release.sdist.sha256) == 64


def test_a_version_comes_from_the_index_when_git_does_not_answer(config, tmp_path):
    gone = str(tmp_path / "no-such.git")
    choice = vllm.choose_vllm("0.32", config=config, folder=tmp_path, repository=gone)
    assert (choice.kind, choice.version) == ("sdist", "0.32.0")
    assert choice.key == choice.sha256
    assert choice.rejected[0].what == gone
    with pytest.raises(CpuBuildError, match=r"no vLLM 0\.32\.99") as caught:
        vllm.choose_vllm("0.32.99", config=config, folder=tmp_path, repository=gone)
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert "--vllm 0.32.0" in caught.value.problems[0].remedy


def test_a_git_tag_beats_the_sdist(upstream, tmp_path, config):
    cache = tmp_path / "cache"
    repository = str(upstream)
    choice = vllm.choose_vllm("0.32.0", config=config, folder=cache, repository=repository)
    assert (choice.kind, choice.ref) == ("git", "v0.32.0")
    assert choice.commit == git(upstream, "rev-parse", "v0.32.0^{commit}")
    tree = vllm.fetch_vllm(choice, cache, downloads=tmp_path / "d", config=config)
    assert (tree / "setup.py").is_file()
    assert not (tree / "more.py").exists()
    assert describe(tree) == "v0.32.0"
    shutil.rmtree(upstream)
    assert vllm.fetch_vllm(choice, cache, downloads=tmp_path / "d", config=config) == tree
    again = vllm.choose_vllm("0.32.0", config=config, folder=cache, offline=True)
    assert again.commit == choice.commit


def test_a_branch_and_a_commit_can_be_asked_for(upstream, tmp_path, config):
    head = git(upstream, "rev-parse", "HEAD")
    for spec in ("next", head, head[:9]):
        choice = vllm.choose_vllm(
            spec, config=config, folder=tmp_path / "cache", repository=str(upstream)
        )
        assert choice.commit == head
    tree = vllm.fetch_vllm(choice, tmp_path / "cache", downloads=tmp_path / "d", config=config)
    assert (tree / "more.py").is_file()
    with pytest.raises(CpuBuildError, match="nexxt") as caught:
        vllm.choose_vllm("nexxt", config=config, folder=tmp_path, repository=str(upstream))
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert "--vllm next" in caught.value.problems[0].remedy
    with pytest.raises(CpuBuildError, match="does not answer") as caught:
        vllm.choose_vllm("next", config=config, folder=tmp_path, repository=str(tmp_path / "gone"))
    assert caught.value.exit_code is ExitCode.DOWNLOAD


def test_a_tag_that_moves_between_choice_and_fetch_is_an_error(upstream, tmp_path, config):
    choice = vllm.choose_vllm("0.32.0", config=config, folder=tmp_path, repository=str(upstream))
    git(upstream, "tag", "-f", "v0.32.0", "HEAD")
    with pytest.raises(CpuBuildError, match=r"v0\.32\.0 could not be fetched"):
        vllm.fetch_vllm(choice, tmp_path / "c", downloads=tmp_path / "d", config=config)
    assert list((tmp_path / "c").iterdir()) == []


def test_a_repository_that_is_not_there_says_why(tmp_path):
    refs = ls_remote(str(tmp_path / "gone.git"))
    assert not refs.reached
    assert refs.detail


def test_pips_torch_is_found_as_a_cpu_build(config):
    wheels = [f for r in listing("torch", config, offline=True).releases for f in r.files]
    mine = f"cp{sys.version_info.major}{sys.version_info.minor}"
    name, glibc = platform.libc_ver()
    fit = [f for f in wheels if "+cpu" in f.version and f"-{mine}-" in f.filename]
    if not fit or name != "glibc":
        pytest.skip("pip's configuration has no local +cpu torch for this interpreter")
    choice = find_torch(
        fit[0].version,
        python_tag=mine,
        arch=platform.machine(),
        glibc=glibc,
        config=config,
        offline=True,
    )
    assert isinstance(choice, TorchChoice), choice
    assert choice.version == fit[0].version
    assert choice.path
    assert len(torch_sha256(choice) or "") == 64


@pytest.mark.skipif(not HAS_APT, reason="needs Debian's or Ubuntu's apt")
def test_onednn_comes_signed_from_the_distro(tmp_path):
    before = _state_of_apt()
    folder = tmp_path / "onednn"
    gone = str(tmp_path / "gone.git")
    choice = _offered(folder, gone)
    assert choice.kind == "distro"
    assert choice.package is not None
    assert choice.version is not None
    assert choice.rejected[0].what == gone
    if not choice.version.startswith("3.13"):
        assert choice.warning == f"oneDNN {choice.version} is used; this vLLM pins 3.13"
    tree = onednn.fetch_onednn(choice, folder)
    assert onednn.tree_version(tree) == choice.version
    first = trees.tree_sha256(tree)
    shutil.rmtree(tree.parent)
    assert trees.tree_sha256(onednn.fetch_onednn(choice, folder)) == first
    again = onednn.choose_onednn("v3.13", distro=here(), folder=folder, offline=True)
    assert (again.key, again.warning) == (choice.key, choice.warning)
    assert _state_of_apt() == before


@pytest.mark.skipif(not HAS_APT, reason="needs Debian's or Ubuntu's apt")
def test_a_mirror_that_another_key_signed_is_refused(tmp_path):
    entry = apt.main_entry(apt.read_entries(), distribution.codename())
    if entry is None:
        pytest.skip("this host names no mirror of its distribution")
    keyring = tmp_path / "other.gpg"
    keyring.touch()
    stanza = apt.source_stanza(entry, distribution.codename(), "main")
    lines = [k for k in stanza.splitlines() if not k.startswith(("Signed-By", " "))]
    private = apt.PrivateApt(tmp_path / "apt")
    private.open("\n".join([*lines, f"Signed-By: {keyring}"]) + "\n")
    assert private.update()
    assert private.source("onednn", "any") is None


def test_of_the_distros_patches_only_upstreams_are_applied(tmp_path):
    # Inside another repository, where `git apply` would pass over files it does not track.
    git(tmp_path, "init", "-q", ".")
    tree, patches = tmp_path / "tree", tmp_path / "packaging/patches"
    tree.mkdir()
    patches.mkdir(parents=True)
    (tree / "a.txt").write_text("one\n")
    for name, line in (("system-x.patch", "wrong"), ("upstream-3.7.3.patch", "two")):
        text = f"--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+{line}\n"
        (patches / name).write_text("Description: x\n\n" + text)
    (patches / "series").write_text("system-x.patch\nupstream-3.7.3.patch # later\n")
    assert onednn.apply_series(patches.parent, tree) == ("upstream-3.7.3.patch",)
    assert (tree / "a.txt").read_text() == "two\n"
    with pytest.raises(CpuBuildError, match="does not apply") as caught:
        onednn.apply_series(patches.parent, tree)
    assert caught.value.exit_code is ExitCode.PATCH
    shutil.rmtree(patches.parent)
    assert onednn.apply_series(patches.parent, tree) == ()


def _offered(folder: Path, repository: str) -> onednn.OnednnChoice:
    try:
        return onednn.choose_onednn("v3.13", distro=here(), folder=folder, repository=repository)
    except CpuBuildError as error:
        if error.exit_code is not ExitCode.DOWNLOAD:
            raise
        pytest.skip(f"this distribution offers none: {error}")


def _state_of_apt() -> tuple[list[tuple[str, int]], list[str]]:
    """The host's apt configuration, and which source indexes it holds."""
    etc = [(str(p), p.stat().st_mtime_ns) for p in sorted(Path("/etc/apt").rglob("*"))]
    return etc, sorted(p.name for p in Path("/var/lib/apt/lists").glob("*_Sources*"))
