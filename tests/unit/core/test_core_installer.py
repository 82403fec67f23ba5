"""What uv is asked to do, and which resolutions are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild import installer as module
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.installer import Installer, refuse_cuda, without_option
from cpubuild.run import Completed

HASH = " \\\n    --hash=sha256:" + "0" * 64
CPU = f"torch==2.13.0+cpu{HASH}\nnumpy==2.1.0{HASH}\ntriton==3.5.0{HASH}\n"
WANTED = ("torch==2.13.0+cpu", "numpy")


class Uv:
    """A uv that writes down what it was asked and answers as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[list[str], dict[str, str]]] = []
        self.answers: list[int] = []
        self.writes = CPU
        monkeypatch.setattr(module, "uv_program", lambda: "uv")
        monkeypatch.setattr(module.run, "logged", self.logged)
        monkeypatch.setattr(module.run, "capture", self.capture)

    @property
    def argv(self) -> list[str]:
        return self.calls[-1][0]

    def logged(self, argv, *, folder, env, timeout):
        self.calls.append((list(argv), dict(env)))
        if "--output-file" in argv:
            Path(argv[argv.index("--output-file") + 1]).write_text(self.writes)
        code = self.answers.pop(0) if self.answers else 0
        return Completed(
            argv=tuple(argv),
            returncode=code,
            stdout=f"answer {code}, call {len(self.calls)}",
            stderr="",
            seconds=1.0,
            log=folder / "log",
        )

    def capture(self, argv, *, env, timeout):
        return self.logged(argv, folder=Path("/x"), env=env, timeout=timeout)


@pytest.fixture
def uv(monkeypatch):
    return Uv(monkeypatch)


PIP = ("--index", "https://download.pytorch.org/whl/cpu", "--constraint", "/etc/c.txt")


def lock(tmp_path, installer, wanted=WANTED):
    out = tmp_path / "locks" / "plan.txt"
    installer.lock(wanted, python=Path("/e/bin/python"), out=out, folder=tmp_path / "step")
    return out


def test_a_lock_is_resolved_with_hashes_for_the_target(uv, tmp_path):
    out = lock(tmp_path, Installer(arguments=PIP))
    assert uv.argv[:3] == ["uv", "pip", "compile"]
    assert uv.argv[uv.argv.index("--python") + 1] == "/e/bin/python"
    assert {"--generate-hashes", "--no-config"} <= set(uv.argv)
    assert [*PIP] == uv.argv[uv.argv.index("--index") : uv.argv.index("--index") + 4]
    assert "--offline" not in uv.argv
    assert (tmp_path / "step" / "requirements.in").read_text() == "torch==2.13.0+cpu\nnumpy\n"
    assert out.read_text() == CPU


def test_a_refused_resolution_leaves_no_lock(uv, tmp_path):
    uv.writes = CPU.replace("+cpu", "")
    with pytest.raises(CpuBuildError):
        lock(tmp_path, Installer(arguments=()))
    assert not (tmp_path / "locks").exists()


def test_offline_is_handed_on(uv, tmp_path):
    installer = Installer(arguments=PIP, offline=True)
    lock(tmp_path, installer)
    assert "--offline" in uv.argv
    uv.answers = [1]
    with pytest.raises(CpuBuildError):
        lock(tmp_path, installer)
    assert len(uv.calls) == 2  # a second try would ask the same


def test_a_failure_is_tried_once_more_from_the_cache(uv, tmp_path):
    uv.answers = [2, 0]
    lock(tmp_path, Installer(arguments=PIP))
    (first, _), (second, _) = uv.calls
    assert second == [*first, "--offline"]


def test_when_both_fail_the_first_is_told(uv, tmp_path):
    uv.answers = [2, 3]
    with pytest.raises(CpuBuildError) as caught:
        lock(tmp_path, Installer(arguments=()))
    assert caught.value.exit_code is ExitCode.DOWNLOAD
    assert caught.value.tail == ("answer 2, call 1",)
    assert caught.value.log == tmp_path / "step" / "log"


def test_what_is_installed_is_what_the_lock_names(uv):
    Installer(arguments=PIP).install_lock(Path("/l"), python=Path("/p"), folder=Path("/f"))
    assert {"--require-hashes", "--no-deps", "--no-config"} <= set(uv.argv)
    assert uv.argv[uv.argv.index("--requirement") + 1] == "/l"
    assert "--constraint" not in uv.argv
    assert "/etc/c.txt" not in uv.argv
    assert PIP[1] in uv.argv


def test_a_wheel_is_installed_from_its_file_alone(uv):
    Installer(arguments=PIP).install_wheel(Path("/w.whl"), python=Path("/p"), folder=Path("/f"))
    assert {"--no-deps", "--offline"} <= set(uv.argv)
    assert uv.argv[-1] == "/w.whl"
    uv.answers = [1]
    with pytest.raises(CpuBuildError) as caught:
        Installer(arguments=()).install_wheel(Path("/w"), python=Path("/p"), folder=Path("/f"))
    assert caught.value.exit_code is ExitCode.VERIFY


def test_an_environment_that_cannot_be_made_is_a_prerequisite(uv, tmp_path):
    made = Installer(arguments=()).create(tmp_path / "e", python="python3.11", folder=tmp_path)
    assert made == tmp_path / "e" / "bin" / "python"
    uv.answers = [1]
    with pytest.raises(CpuBuildError) as caught:
        Installer(arguments=()).create(tmp_path / "e", python="python3.11", folder=tmp_path)
    assert caught.value.exit_code is ExitCode.PREREQUISITE


def test_complaints_of_the_environment_are_returned(uv, tmp_path):
    assert Installer(arguments=()).check(Path("/p"), folder=tmp_path) == ()
    uv.answers = [1]
    assert Installer(arguments=()).check(Path("/p"), folder=tmp_path) == ("answer 1, call 2",)
    assert Installer(arguments=()).freeze(Path("/p")) == ("answer 0, call 3",)


def test_the_environment_of_uv(uv, tmp_path, monkeypatch):
    monkeypatch.setenv("UV_TORCH_BACKEND", "cu130")
    monkeypatch.setenv("VIRTUAL_ENV", "/other")
    monkeypatch.setenv("UV_LINK_MODE", "copy")
    lock(tmp_path, Installer(arguments=(), environment={"UV_INDEX": "https://u:p@h/"}))
    env = uv.calls[-1][1]
    assert "UV_TORCH_BACKEND" not in env
    assert "VIRTUAL_ENV" not in env
    assert (env["UV_LINK_MODE"], env["NO_COLOR"]) == ("copy", "1")
    assert env["UV_INDEX"] == "https://u:p@h/"
    assert not any("u:p@" in word for word in uv.argv)


@given(st.lists(st.sampled_from(["--index", "--constraint", "/c", "https://x", "--offline"])))
def test_an_option_goes_with_its_value_and_nothing_else(words):
    argv = ["--index", "https://a", "--constraint", "/c1", *words, "--constraint", "/c2", "--last"]
    left = without_option(argv, "--constraint")
    assert "--constraint" not in left
    assert left[:2] == ["--index", "https://a"]
    assert "--last" in left
    assert without_option(left, "--constraint") == left


# resolutions


@pytest.mark.parametrize(
    "lock",
    [CPU, CPU.replace(HASH, ""), f"numpy==1{HASH}\n" + CPU, CPU.replace("\n    ", "\r\n    ")],
)
def test_a_cpu_resolution_passes(lock):
    refuse_cuda(lock, WANTED)


@pytest.mark.parametrize(
    ("lock", "named"),
    [
        (CPU + f"nvidia-cublas-cu12==12.8{HASH}\n", "nvidia-cublas-cu12"),
        (CPU + f"nvidia-nccl-cu13==2.2{HASH}\ncuda-bindings==13{HASH}\n", "cuda-bindings, nvidia-"),
        (CPU + f"pytorch-triton==3{HASH}\n", "pytorch-triton"),
        (CPU.replace("+cpu", ""), "torch 2.13.0 "),
        (CPU.replace("+cpu", "+cu130"), "torch 2.13.0+cu130 "),
        (CPU.replace("2.13.0", "2.12.0"), "torch 2.12.0+cpu "),
        (f"numpy==2{HASH}\n", "torch None "),
        ("torch @ https://example.org/torch-2.13.0.whl\n", "torch None "),
    ],
)
def test_a_cuda_resolution_is_refused_before_a_download(lock, named):
    with pytest.raises(CpuBuildError) as caught:
        refuse_cuda(lock, WANTED)
    (problem,) = caught.value.problems
    assert problem.exit_code is ExitCode.DOWNLOAD
    assert named in problem.what
    assert any("whl/cpu" in r for r in problem.remedy)


def test_packages_that_only_sound_like_it_pass():
    refuse_cuda(CPU + f"torchaudio==2.13.0+cpu{HASH}\nxnvidia-x==1{HASH}\ncudatext==1\n", WANTED)


def test_where_no_torch_was_asked_for_any_will_do():
    refuse_cuda(f"numpy==2{HASH}\n", ("numpy",))
