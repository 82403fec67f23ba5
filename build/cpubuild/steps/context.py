"""What every step gets: where to work, what was chosen, how packages are installed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cpubuild.facts.model import Compiler
from cpubuild.installer import Installer
from cpubuild.patching import Selected
from cpubuild.plan import Inputs
from cpubuild.state import State


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """The frozen surroundings of one run.

    ``run`` is this run's folder (a sub-folder for each step). ``python`` is the interpreter to
    build for, ``onednn`` a local source tree or None (then CMake clones the pinned tag),
    ``onednn_objects`` the text of the list of its sources that the linker keeps, or None.
    ``jobs`` is the number of compilers at once.
    """

    state: State
    run: Path
    inputs: Inputs
    installer: Installer
    compiler: Compiler
    patches: tuple[Selected, ...]
    python: str
    torch: str
    onednn: Path | None
    onednn_objects: str | None
    jobs: int
    runtime_requirements: tuple[str, ...]
    build_requirements: tuple[str, ...]

    @property
    def env(self) -> Path:
        """The target environment of this plan."""
        return self.state.envs / self.inputs.plan_id

    @property
    def lock_file(self) -> Path:
        """The lock of this plan's run-time requirements."""
        return self.state.locks / f"{self.inputs.plan_id}.txt"

    @property
    def buildenv(self) -> Path:
        """The build environment of this plan."""
        return self.state.buildenvs / self.inputs.buildenv_key

    @property
    def build(self) -> Path:
        """The folder of the patched tree and its objects."""
        return self.state.builds / self.inputs.wheel_key

    @property
    def wheel_folder(self) -> Path:
        """Where the finished wheel lies."""
        return self.state.wheels / self.inputs.wheel_key
