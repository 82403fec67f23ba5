"""The lock, the build environment and the target environment."""

from __future__ import annotations

import shutil
from pathlib import Path

from cpubuild import jsonio
from cpubuild.errors import ExitCode, fail
from cpubuild.plan import wheel_of
from cpubuild.state import now
from cpubuild.steps.context import Context


def scratch_python(ctx: Context) -> Path:
    """An empty environment of the chosen interpreter, to resolve for."""
    env = ctx.run / "resolve-for"
    python = env / "bin" / "python"
    return (
        python
        if python.exists()
        else ctx.installer.create(env, python=ctx.python, folder=ctx.run / "resolve-env")
    )


def lock(ctx: Context) -> None:
    """Resolve the run-time requirements once; the result is the plan's lock."""
    ctx.installer.lock(
        ctx.runtime_requirements,
        python=scratch_python(ctx),
        out=ctx.lock_file,
        folder=ctx.run / "lock",
    )


def buildenv(ctx: Context) -> None:
    """Make the environment that holds the pinned torch and the tree's build requirements."""
    folder = ctx.buildenv
    shutil.rmtree(folder, ignore_errors=True)
    python = ctx.installer.create(folder, python=ctx.python, folder=ctx.run / "buildenv")
    locked = folder / "build.lock"
    ctx.installer.lock(
        (ctx.torch, *ctx.build_requirements),
        python=python,
        out=locked,
        folder=ctx.run / "buildenv-lock",
    )
    ctx.installer.install_lock(locked, python=python, folder=ctx.run / "buildenv-install")
    jsonio.write(
        folder / "complete.json",
        {"created": now(), "packages": list(ctx.installer.freeze(python))},
    )


def refuse_damaged(wheel: Path) -> None:
    """Throw away a cached wheel whose content is not what its manifest says."""
    wanted = (jsonio.read(wheel.parent / "manifest.json") or {}).get("sha256")
    found = jsonio.sha256_of(wheel)
    if found == wanted:
        return
    shutil.rmtree(wheel.parent)
    raise fail(
        ExitCode.DOWNLOAD,
        f"the cached wheel {wheel.name} is damaged: sha256 {found}, {wanted} was recorded",
        why="it was thrown away",
        remedy=("run the same command again: the wheel is compiled again",),
    )


def dependencies(ctx: Context) -> None:
    """Make the target environment with the packages that the lock names."""
    shutil.rmtree(ctx.env, ignore_errors=True)
    python = ctx.installer.create(ctx.env, python=ctx.python, folder=ctx.run / "dependencies")
    folder = ctx.run / "dependencies-install"
    ctx.installer.install_lock(ctx.lock_file, python=python, folder=folder)
    jsonio.write(
        ctx.env / "dependencies.json",
        {"created": now(), "lock_sha256": jsonio.sha256_of(ctx.lock_file)},
    )


def environment(ctx: Context) -> None:
    """Install the wheel into the target environment, then ``pip check``."""
    wheel = wheel_of(ctx.wheel_folder)
    if wheel is None:
        raise fail(ExitCode.BUG, f"no finished wheel in {ctx.wheel_folder}")
    refuse_damaged(wheel)
    python = ctx.env / "bin" / "python"
    ctx.installer.install_wheel(wheel, python=python, folder=ctx.run / "environment-wheel")
    complaints = ctx.installer.check(python, folder=ctx.run / "environment-check")
    if complaints:
        raise fail(
            ExitCode.VERIFY,
            "the installed packages contradict each other",
            why="what the wheel requires and what the lock holds must agree",
            remedy=(f"rm {ctx.lock_file}   # the next bootstrap resolves again",),
            tail=complaints,
        )
    jsonio.write(
        ctx.env / "installed.json",
        {
            "created": now(),
            "wheel": wheel.name,
            "packages": list(ctx.installer.freeze(python)),
            "lock_sha256": jsonio.sha256_of(ctx.lock_file),
        },
    )
