"""Environments and packages through uv, under the rules of pip's own configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cpubuild import run
from cpubuild.errors import ExitCode, fail

# triton is not on the list: xgrammar requires it on Linux, and a CPU build of vLLM disables it.
CUDA_ONLY = re.compile(r"^(nvidia-|cuda-|pytorch-triton)", re.MULTILINE)
# What uv is told elsewhere must not reach this resolution: a CUDA backend, another environment,
# constraints and overrides that are no part of pip's configuration.
KEPT_OUT = frozenset(
    {"UV_TORCH_BACKEND", "VIRTUAL_ENV", "UV_CONSTRAINT", "UV_BUILD_CONSTRAINT", "UV_OVERRIDE"}
)
TORCH_LINE = re.compile(r"^torch==(\S+)", re.MULTILINE)


def uv_program() -> str:
    """The path of the uv that came with this tool."""
    import uv

    return str(uv.find_uv_bin())


@dataclass(frozen=True, kw_only=True, slots=True)
class Installer:
    """uv with everything pip's configuration says: ``arguments`` and ``environment``.

    ``offline`` forbids the network; then only uv's cache and local folders are used.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    offline: bool = False

    def create(self, env: Path, *, python: str, folder: Path) -> Path:
        """Create a virtual environment for ``python``; return its interpreter."""
        argv = [uv_program(), "venv", "--no-project", "--no-config", "--python", python]
        done = run.logged([*argv, "--clear", str(env)], folder=folder, env=self._env(), timeout=300)
        run.must(done, ExitCode.PREREQUISITE, f"no environment could be made in {env}")
        return env / "bin" / "python"

    def lock(self, requirements: Sequence[str], *, python: Path, out: Path, folder: Path) -> None:
        """Resolve ``requirements`` for ``python`` into ``out``: exact versions with SHA-256 hashes.

        A result that holds CUDA packages, or a torch without ``+cpu`` where one was asked for, is
        refused before anything of it is downloaded (DOWNLOAD).
        """
        source = folder / "requirements.in"
        folder.mkdir(parents=True, exist_ok=True)
        source.write_text("\n".join(requirements) + "\n", encoding="utf-8")
        resolved = folder / "requirements.lock"
        argv = [uv_program(), "pip", "compile", "--no-config", str(source), "--python", str(python)]
        argv += ["--generate-hashes", "--no-annotate", "--no-header", "--quiet"]
        argv += [*self._common(), "--output-file", str(resolved)]
        self._online(argv, folder, "the requirements cannot be resolved")
        refuse_cuda(resolved.read_text(encoding="utf-8"), requirements)
        out.parent.mkdir(parents=True, exist_ok=True)
        resolved.replace(out)

    def install_lock(self, lock: Path, *, python: Path, folder: Path) -> None:
        """Install exactly what ``lock`` names, hashes checked."""
        argv = [uv_program(), "pip", "install", "--no-config", "--python", str(python)]
        argv += ["--require-hashes", "--no-deps", "--requirement", str(lock)]
        argv += without_option(self._common(), "--constraint")
        self._online(argv, folder, "the locked packages cannot be installed")

    def install_wheel(self, wheel: Path, *, python: Path, folder: Path) -> None:
        """Install one wheel file and nothing else."""
        argv = [uv_program(), "pip", "install", "--no-config", "--python", str(python)]
        argv += ["--no-deps", "--offline", "--reinstall-package", "vllm", str(wheel)]
        done = run.logged(argv, folder=folder, env=self._env(), timeout=900)
        run.must(done, ExitCode.VERIFY, f"{wheel.name} cannot be installed")

    def check(self, python: Path, *, folder: Path) -> tuple[str, ...]:
        """Return what ``pip check`` complains of in the environment (nothing: it is consistent)."""
        argv = [uv_program(), "pip", "check", "--no-config", "--python", str(python)]
        done = run.logged(argv, folder=folder, env=self._env(), timeout=300)
        return () if done.ok else tuple(done.stdout.splitlines())

    def freeze(self, python: Path) -> tuple[str, ...]:
        """Return what is installed, one ``name==version`` a line."""
        argv = [uv_program(), "pip", "freeze", "--no-config", "--python", str(python)]
        done = run.capture(argv, env=self._env(), timeout=120)
        run.must(done, ExitCode.BUG, "the installed packages cannot be listed")
        return tuple(done.stdout.splitlines())

    def _online(self, argv: list[str], folder: Path, what: str) -> None:
        """Run uv; where the network fails, uv's cache may still hold everything."""
        done = run.logged(argv, folder=folder, env=self._env(), timeout=3600)
        if not done.ok and not self.offline:
            again = run.logged([*argv, "--offline"], folder=folder, env=self._env(), timeout=3600)
            done = again if again.ok else done
        run.must(done, ExitCode.DOWNLOAD, what)

    def _common(self) -> list[str]:
        return [*self.arguments, *(["--offline"] if self.offline else [])]

    def _env(self) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if k not in KEPT_OUT}
        env.setdefault("UV_LINK_MODE", "hardlink")
        return env | dict(self.environment) | {"NO_COLOR": "1"}


def without_option(argv: Sequence[str], option: str) -> list[str]:
    """``argv`` without ``option`` and its value: beside hashes uv wants no open constraint."""
    pairs = zip(("", *argv), argv, strict=False)
    return [word for before, word in pairs if option not in (before, word)]


def refuse_cuda(lock: str, requirements: Sequence[str]) -> None:
    """Raise if a resolved lock would bring CUDA: NVIDIA packages, or another torch than asked."""
    wanted = next((r.split("==")[1] for r in requirements if r.startswith("torch==")), None)
    got = TORCH_LINE.search(lock)
    version = got[1].rstrip("\\").strip() if got else None
    bad = sorted({line.split("==")[0] for line in lock.splitlines() if CUDA_ONLY.match(line)})
    if bad or (wanted is not None and version != wanted):
        raise fail(
            ExitCode.DOWNLOAD,
            f"the resolution holds torch {version} and {', '.join(bad) or 'no CUDA packages'}; "
            f"torch {wanted} and none of them was asked for",
            why="a CUDA build of torch is gigabytes of what this host cannot use",
            remedy=(
                "point pip's configuration at an index that has the CPU build, for example "
                "https://download.pytorch.org/whl/cpu",
            ),
        )
