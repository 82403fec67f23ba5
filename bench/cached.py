"""A bootstrap into a new state root from the wheel cache and the package caches.

The new root is given the wheels (and what else --seed names) of an existing one by hard links; uv's
own cache stays as it is. Says how much of the time is the tool's own, and how much it waited for
uv, for vLLM's start in the verification, and for others.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lib
import picture

VLLM, UV, OTHERS = "vLLM and torch, asked in the target", "uv", "compilers, probes, other programs"


def group_of(words: str) -> str:
    """Whose time a call is."""
    if "ask_" in words:
        return VLLM
    return UV if "uv" in words.split(" ") else OTHERS


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds in which at least one of the spans was running."""
    total, reached = 0.0, 0.0
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def split(document: dict[str, Any]) -> dict[str, float]:
    """Seconds by whose they are; where calls overlap, the first group that runs has them."""
    parts: dict[str, float] = {}
    taken: list[tuple[float, float]] = []
    for name in (VLLM, UV, OTHERS):
        mine = [(a, b) for a, b, words in document["calls"] if group_of(words) == name]
        parts[name] = covered([*taken, *mine]) - covered(taken)
        taken += mine
    parts["the tool itself"] = document["seconds"] - covered(taken)
    return {name: round(seconds, 3) for name, seconds in parts.items()}


def seed(source: Path, target: Path, names: list[str]) -> None:
    """Give a new state root folders of another one, by hard links where that can be."""

    def link(a: str, b: str) -> None:
        try:
            os.link(a, b)
        except OSError:
            shutil.copy2(a, b)

    for name in names:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, symlinks=True, copy_function=link)


def bootstrap(source: Path, names: list[str], more: list[str], beside: Path | None) -> lib.Sample:
    """One bootstrap into a new root, which is removed afterwards."""
    with tempfile.TemporaryDirectory(dir=beside) as folder:
        state, out = Path(folder) / "state", Path(folder) / "calls.json"
        state.mkdir()
        seed(source, state, names)
        began = time.perf_counter()
        argv = [
            sys.executable,
            lib.HERE / "traced.py",
            out,
            "bootstrap",
            "--state",
            state,
            "--json",
        ]
        sample = lib.timed([*argv, *more], keep=steps_of)
        document = json.loads(out.read_text(encoding="utf-8"))
        parts = split(document) | {"starting Python": 0.0}
        parts["starting Python"] = round(time.perf_counter() - began - document["seconds"], 3)
        calls = [c for c in document["calls"] if c[1] - c[0] > 0.5]
        kept = {**sample.kept, "parts": parts, "calls_over_half_a_second": calls}
        return lib.Sample(wall=sample.wall, cpu=sample.cpu, kept=kept)


def steps_of(stdout: str) -> dict[str, Any]:
    """Hold that nothing was compiled, and keep what each step took."""
    document = json.loads(stdout)
    steps = {s["id"]: s["seconds"] for s in document["receipt"].get("steps", [])}
    if "compile" in steps:
        raise SystemExit(
            "this bootstrap compiled: the wheel cache does not hold the wheel it wants"
        )
    return {"steps": steps}


def main() -> None:
    """Run the bench."""
    options = lib.parser("cached", __doc__ or "", runs=3)
    options.add_argument("--state", type=Path, help="state root whose caches are used")
    options.add_argument(
        "--seed", default="wheels,downloads,sources", help="its folders that the new root is given"
    )
    options.add_argument("--beside", type=Path, help="folder for the new roots (temporary folder)")
    options.add_argument("more", nargs="*", help="more options of bootstrap, after --")
    given = options.parse_args()
    state, names = lib.state_of(given.state), given.seed.split(",")
    case = lib.Case(
        name="cached bootstrap", run=lambda: bootstrap(state, names, given.more, given.beside)
    )
    host = lib.host()
    (row,) = lib.rounds([case], runs=given.runs)
    parts = {
        name: statistics.median(kept["parts"][name] for kept in row.kept)
        for name in row.kept[0]["parts"]
    }
    ours = parts["the tool itself"] + parts["starting Python"]
    notes = [f"  {name:<36} {seconds:8.2f} s" for name, seconds in parts.items()]
    notes.append(f"target: 120 s in all; {'met' if row.median <= 120 else 'MISSED'}")
    notes.append(f"target: 5 s of the tool's own; {ours:.2f} s, {'met' if ours <= 5 else 'MISSED'}")
    result = lib.Result(
        bench="cached",
        claim=f"A verified vLLM in a new state root, from {given.seed} and the package caches",
        host=host,
        rows=(row,),
        notes=tuple(notes),
    )
    bar = picture.Bar(
        name="cached bootstrap",
        parts=tuple(picture.Part(name=n, value=s) for n, s in parts.items()),
        dots=row.seconds,
        note="start to verified",
    )
    lib.finish(result, given.out, bars=[bar])


if __name__ == "__main__":
    main()
