"""What is kept under the state root: listed, the last but one put back, the rest removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cpubuild.calls import Call, Outcome
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.state import LAYOUT, State, size_of

SIZED = ("downloads", "sources", "buildenvs", "builds", "wheels", "envs", "models", "tools")


def status(call: Call) -> Outcome:
    """List environments, the current one, the last run, and what the state root takes."""
    settings = call.resolved().settings
    state = State(root=settings.state)
    refuse_unusable(state)
    current = state.current_env()
    rows = [
        {
            "name": path.name,
            "path": path,
            "current": current is not None and path.resolve() == current,
            "vllm": (kept or {}).get("vllm", {}).get("version"),
            "created": (kept or {}).get("created"),
            "verdict": (kept or {}).get("verify", {}).get("verdict", "incomplete"),
        }
        for path, kept in state.environments()
    ]
    sizes = {name: size_of(state.root / name) for name in SIZED if (state.root / name).is_dir()}
    document = {
        "state": state.root,
        "current": current,
        "environments": rows,
        "bytes": sizes,
        "last_run": state.last_run(),
    }
    lines = [f"state root {state.root}"]
    lines += [environment_line(row) for row in rows]
    if not rows:
        lines.append("  nothing is installed yet; do: cpubuild bootstrap")
    lines += [f"  {name:<10} {size / 1e6:10.1f} MB" for name, size in sizes.items()]
    return Outcome(document=document, lines=lines)


def refuse_unusable(state: State) -> None:
    """Raise what is wrong with a state root that is there; none there yet is no problem."""
    problems = state.in_the_way() if state.root.is_dir() else ()
    if state.root.exists() and not state.root.is_dir():
        problems = state.problems()
    if problems:
        raise CpuBuildError(*problems)


def environment_line(row: Mapping[str, Any]) -> str:
    """One environment as a line; the current one is marked."""
    mark = "*" if row["current"] else " "
    return f"{mark} {row['name']:<28} {row['vllm']}  {row['verdict']}  {row['created']}"


def rollback(call: Call) -> Outcome:
    """Let ``current`` point to the newest other environment that was verified."""
    state = State(root=call.resolved().settings.state)
    with state.lock():
        current = state.current_env()
        others = [
            path
            for path, kept in state.environments()
            if kept
            and kept.get("verify", {}).get("verdict") == "pass"
            and path.resolve() != current
        ]
        if not others:
            raise fail(
                ExitCode.SETTINGS,
                "there is no other verified environment to go back to",
                remedy=("cpubuild status",),
            )
        state.activate(others[-1])
    return Outcome(
        document={"changed": True, "environment": others[-1], "previous": current},
        lines=[f"current is {others[-1].name}"],
    )


def clean(call: Call) -> Outcome:
    """Remove what is not in use; with --all all that is ours in the state root."""
    state = State(root=call.resolved().settings.state)
    refuse_unusable(state)
    # A folder that no run of this tool has locked is no state root: nothing in it is ours.
    if not (state.root / "lock").is_file():
        return Outcome(document={"removed": [], "bytes": 0}, lines=["nothing to remove"])
    with state.lock():
        doomed = to_remove(state, everything=bool(call.options["all"]))
        freed = sum(size_of(path) for path in doomed)
        if not call.options["dry"]:
            for path in doomed:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
    verb = "would remove" if call.options["dry"] else "removed"
    return Outcome(
        document={"removed": doomed, "bytes": freed, "dry": bool(call.options["dry"])},
        lines=[*(f"{verb} {path}" for path in doomed), f"{freed / 1e6:.1f} MB"],
    )


def to_remove(state: State, *, everything: bool) -> list[Path]:
    """Old environments, unfinished builds, downloads; with ``everything`` all but lock files."""
    if everything:
        own = (*LAYOUT, "repairs", "server", "current", "running")
        return [state.root / n for n in own if os.path.lexists(state.root / n)]
    current = state.current_env()
    keep = {current.name, current.name + ".txt"} if current else set()
    # The environment that current names stays, also without its receipt.
    if state.current.is_symlink():
        keep.add(state.current.readlink().name)
    folders = (state.envs, state.locks, state.builds, state.buildenvs, state.downloads)
    there = [folder for folder in folders if folder.is_dir()]
    return [p for folder in there for p in sorted(folder.iterdir()) if p.name not in keep]
