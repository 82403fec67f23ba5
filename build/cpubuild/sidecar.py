"""Environments beside the tool's own, for libraries that only one verb needs: made on demand."""

from __future__ import annotations

import csv
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from cpubuild import jsonio, ui
from cpubuild.errors import CpuBuildError, ExitCode, Problem, fail
from cpubuild.installer import Installer
from cpubuild.sources.pipconfig import read_pip_config, uv_arguments, uv_environment
from cpubuild.state import State

RECORD = "sidecar.json"
WAIT_SECONDS = 900.0


def sidecar(
    state: State, name: str, requirements: Sequence[str], *, folder: Path, offline: bool
) -> Path:
    """Return the interpreter of an environment with ``requirements``; made if it is not there.

    It lies under ``state.tools`` by name and content key, is installed with pip's configuration
    from a lock with hashes, and counts only with the record that is written last. One that has
    lost files is made again. Logs go into ``folder``. DOWNLOAD: the packages cannot be had;
    BUSY: another run has been making it for a quarter of an hour.
    """
    from filelock import FileLock, Timeout

    env = place(state, name, requirements)
    if whole(env):
        return env / "bin" / "python"
    state.own()
    env.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(env.with_name(env.name + ".lock"), timeout=WAIT_SECONDS)
    try:
        with lock:
            if not whole(env):
                make(env, name, requirements, folder=folder, offline=offline)
    except Timeout as error:
        raise fail(
            ExitCode.BUSY,
            f"another run has been making {env} for {WAIT_SECONDS / 60:.0f} min",
            remedy=("wait for it to end and try again",),
        ) from error
    return env / "bin" / "python"


def place(state: State, name: str, requirements: Sequence[str]) -> Path:
    """The folder of an environment, by its name, the interpreter and what is asked for."""
    asked = {
        "requirements": sorted(requirements),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "base": sys.base_prefix,
    }
    return state.tools / f"{name}-{jsonio.fingerprint(asked)[:12]}"


def make(env: Path, name: str, requirements: Sequence[str], *, folder: Path, offline: bool) -> None:
    """Make the environment anew; on failure nothing of it is left."""
    ui.say(f"---- {name}: {', '.join(requirements)} into an environment of their own")
    shutil.rmtree(env, ignore_errors=True)
    config = read_pip_config()
    uv = Installer(
        arguments=uv_arguments(config), environment=uv_environment(config), offline=offline
    )
    try:
        python = uv.create(env, python=sys.executable, folder=folder / f"{name}-venv")
        names = env / "requirements.lock"
        uv.lock(requirements, python=python, out=names, folder=folder / f"{name}-lock")
        uv.install_lock(names, python=python, folder=folder / f"{name}-install")
        installed = uv.freeze(python)
        jsonio.write(env / RECORD, {"requirements": list(requirements), "installed": installed})
    except CpuBuildError as error:
        shutil.rmtree(env, ignore_errors=True)
        raise explained(error, name, requirements, offline=offline) from error
    except BaseException:
        shutil.rmtree(env, ignore_errors=True)
        raise


def explained(
    error: CpuBuildError, name: str, requirements: Sequence[str], *, offline: bool
) -> CpuBuildError:
    """The installer's error with what it was for and what mends it."""
    if error.exit_code is not ExitCode.DOWNLOAD:
        return error
    cause = "this run is offline" if offline else "the package index did not give them"
    problem = Problem(
        what=f"{', '.join(requirements)} cannot be installed: {cause}",
        why=f"{name} needs them in an environment of its own; {error.problems[0].what}",
        remedy=(
            "run it once where pip reaches its index (pip config list shows which)",
            *(("leave out --offline",) if offline else ()),
        ),
        exit_code=ExitCode.DOWNLOAD,
    )
    return CpuBuildError(problem, log=error.log, tail=error.tail)


def whole(env: Path) -> bool:
    """Whether the record is there, and every file of every package that it names, with its size."""
    try:
        kept = jsonio.read(env / RECORD)
    except CpuBuildError:
        return False
    if kept is None or not (env / "bin" / "python").exists():
        return False
    records = list(env.glob("lib/python3*/site-packages/*.dist-info/RECORD"))
    names = kept.get("installed")
    if not isinstance(names, list) or len(records) < len(names):
        return False
    return all(complete(record) for record in records)


def complete(record: Path) -> bool:
    """Whether the files that a package's RECORD lists have their sizes."""
    base = record.parent.parent
    try:
        with record.open(encoding="utf-8", newline="") as rows:
            sized = [(name, int(size)) for name, _, size in csv.reader(rows) if size]
        return all((base / name).stat().st_size == size for name, size in sized)
    except (OSError, ValueError, csv.Error):
        return False
