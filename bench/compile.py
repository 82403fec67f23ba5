"""Compiler seconds by target: the documented recipe's against ours.

From two logs of ninja (the whole builds):
  bench/compile.py --recipe RECIPE/.ninja_log --ours RUN/compile/ninja_log
From two configured build folders (a part: some objects of each target, scaled to all of them):
  bench/compile.py --run --recipe RECIPE_BUILD --ours OUR_BUILD --sample 2

A part is compiled again here, in turn from either folder, one compiler at a time and without a
compiler cache; the objects that were taken are named. docs/bench.md tells how to get the folders.
"""

from __future__ import annotations

import random
import shlex
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import lib
import picture

from cpubuild.report import ninja

SIDES = ("documented recipe", "ours")
TARGET = 0.27
LAUNCHERS = ("ccache", "sccache")
ONEDNN = ("dnnl_common", "dnnl_cpu", "dnnl_gpu", "dnnl_graph")


@dataclass(frozen=True, kw_only=True)
class Command:
    """One compiler command of a build folder."""

    argv: tuple[str, ...]
    output: str
    group: str


def group_of(target: str) -> str:
    """What a target belongs to, in the terms of the table."""
    return "oneDNN" if target.startswith(ONEDNN) else target


def read(path: Path) -> ninja.BuildLog:
    """A log of ninja."""
    return ninja.parse(path.read_text(encoding="utf-8"), name=str(path))


def from_log(log: ninja.BuildLog) -> dict[str, float]:
    """Seconds by group of one build: of an output made several times the last one counts."""
    jobs = {job.output: job for session in log.sessions for job in session.jobs}
    sums: dict[str, float] = {}
    for target, (_, seconds) in ninja.seconds_by_target(tuple(jobs.values())).items():
        sums[group_of(target)] = sums.get(group_of(target), 0.0) + seconds
    return sums


def lacks(log: ninja.BuildLog) -> str:
    """Why a log is not that of a whole build; empty when it is."""
    linked = [job.name for job in log.jobs if job.kind == "link" and job.name.startswith("_C")]
    return "" if linked else "it has no linked _C: the build did not get to its end"


def commands(folder: Path, targets: Sequence[str]) -> list[Command]:
    """Every compiler command that a full build of ``targets`` would run."""
    argv = ["ninja", "-C", str(folder), "-t", "commands", *targets]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{shlex.join(argv)}\n{done.stdout}{done.stderr}")
    found = []
    for line in done.stdout.splitlines():
        if " -c " not in line or " -o " not in line or " && " in line:
            continue
        words = shlex.split(line)
        if Path(words[0]).name in LAUNCHERS:
            words = words[1:]
        output = words[words.index("-o") + 1]
        group = group_of(ninja.target_of(output))
        found.append(Command(argv=tuple(words), output=output, group=group))
    if not found:
        raise SystemExit(f"{folder}: ninja names no compiler command for {' '.join(targets)}")
    return found


def choose(every: Sequence[Command], sample: int, seed: int) -> list[Command]:
    """``sample`` objects of each group, by a fixed seed, and all precompiled headers."""
    taken = [c for c in every if ninja.kind_of(c.output) == "headers"]
    for group in sorted({c.group for c in every}):
        objects = [c for c in every if c.group == group and c not in taken]
        taken += random.Random(seed).sample(objects, min(sample, len(objects)))
    return taken


def compiled(command: Command, folder: Path, scratch: Path) -> float:
    """Seconds of one command, its outputs in ``scratch``."""
    words = list(command.argv)
    ending = Path(command.output).suffix
    for option, name in (("-o", f"out{ending}"), ("-MF", "out.d"), ("-MT", "out")):
        if option in words:
            words[words.index(option) + 1] = str(scratch / name)
    return lib.timed(words, cwd=folder).wall


def whole_headers(folder: Path, every: Sequence[Command]) -> None:
    """Stop when a precompiled header is not there: every object would parse it again."""
    for command in every:
        if ninja.kind_of(command.output) == "headers" and not (folder / command.output).exists():
            raise SystemExit(f"missing; do: ninja -C {folder} {command.output}")


def whole(paths: Sequence[Path]) -> tuple[list[dict[str, float]], list[str], bool]:
    """Seconds by group of both logs, what is to be said of them, whether both are whole builds."""
    logs = [read(path) for path in paths]
    walls = [sum(session.seconds for session in log.sessions) for log in logs]
    notes = [f"  start to end: {walls[0]:.0f} s and {walls[1]:.0f} s"]
    lacking = [
        f"  NOT A WHOLE BUILD: {path}: {lacks(log)}"
        for path, log in zip(paths, logs, strict=True)
        if lacks(log)
    ]
    return [from_log(log) for log in logs], notes + lacking, not lacking


def part(
    folders: Sequence[Path], targets: Sequence[str], sample: int, seed: int
) -> tuple[list[dict[str, float]], list[str]]:
    """Estimated seconds by group of both folders, and which part was taken."""
    every = [commands(folder, targets) for folder in folders]
    for folder, listed in zip(folders, every, strict=True):
        whole_headers(folder, listed)
    chosen = [choose(listed, sample, seed) for listed in every]
    seconds: list[dict[str, float]] = [{}, {}]
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(max(map(len, chosen))):
            for side, listed in enumerate(chosen):
                if number < len(listed):
                    command = listed[number]
                    took = compiled(command, folders[side], Path(scratch))
                    seconds[side][command.output] = took
                    lib.say(f"{SIDES[side]}: {command.output}: {took:.1f} s")
    notes = [
        f"  {name}: {len(took)} of {len(listed)} commands, {sum(took.values()):.0f} s: "
        + ", ".join(took)
        for name, took, listed in zip(SIDES, seconds, every, strict=True)
    ]
    return [scaled(a, b, s) for a, b, s in zip(every, chosen, seconds, strict=True)], notes


def scaled(
    every: Sequence[Command], chosen: Sequence[Command], seconds: Mapping[str, float]
) -> dict[str, float]:
    """The mean of a group's chosen objects times their number; headers count once each."""
    sums: dict[str, float] = {}
    for group in sorted({c.group for c in every}):
        headers = [c for c in chosen if c.group == group and ninja.kind_of(c.output) == "headers"]
        objects = [c for c in chosen if c.group == group and c not in headers]
        count = sum(c.group == group for c in every) - len(headers)
        mean = statistics.mean(seconds[c.output] for c in objects) if objects else 0.0
        sums[group] = sum(seconds[c.output] for c in headers) + mean * count
    return sums


def lines_of(sides: Sequence[Mapping[str, float]]) -> list[str]:
    """The groups of both sides as text."""
    groups = sorted({g for side in sides for g in side}, key=lambda g: -sides[0].get(g, 0.0))
    rows = [f"  {'seconds by target':<22} {SIDES[0]:>18} {SIDES[1]:>10}"]
    for group in groups:
        cells = [f"{side[group]:.0f}" if group in side else "-" for side in sides]
        rows.append(f"  {group:<22} {cells[0]:>18} {cells[1]:>10}")
    return rows


def rows_of(sides: Sequence[Mapping[str, float]], *, judged: bool) -> tuple[lib.Row, ...]:
    """The totals, ours with its ratio; only whole builds are held against the target."""
    totals = [round(sum(side.values()), 1) for side in sides]
    ratio = round(totals[1] / totals[0], 4) if totals[0] else None
    return tuple(
        lib.Row(
            name=name,
            seconds=(total,),
            median=total,
            cpu_median=total,
            ratio=ratio if number else None,
            ratios=(ratio,) if number and ratio is not None else (),
            target=TARGET if number and judged else None,
            kept=({group: round(s, 1) for group, s in side.items()},),
        )
        for number, (name, total, side) in enumerate(zip(SIDES, totals, sides, strict=True))
    )


def picture_of(sides: Sequence[Mapping[str, float]]) -> list[picture.Bar]:
    """Two bars of coloured parts."""
    order = sorted({g for side in sides for g in side}, key=lambda g: -sides[0].get(g, 0.0))
    ratio = sum(sides[1].values()) / (sum(sides[0].values()) or 1.0)
    return [
        picture.Bar(
            name=name,
            parts=tuple(picture.Part(name=g, value=side[g]) for g in order if g in side),
            note=f"{ratio:.2f} of it" if number else "baseline",
        )
        for number, (name, side) in enumerate(zip(SIDES, sides, strict=True))
    ]


def main() -> None:
    """Run the bench."""
    options = lib.parser("compile", __doc__ or "", runs=1)
    options.add_argument("--recipe", type=Path, required=True, help="log, or build folder")
    options.add_argument("--ours", type=Path, required=True, help="log, or build folder")
    options.add_argument("--run", action="store_true", help="compile a part of both folders here")
    options.add_argument("--sample", type=int, default=2, help="objects of each target (2)")
    options.add_argument("--seed", type=int, default=1, help="which objects (1)")
    options.add_argument("--targets", default="all", help="targets of ninja, with commas (all)")
    given = options.parse_args()
    host = lib.host()
    paths = (given.recipe.absolute(), given.ours.absolute())
    if given.run:
        claim = "Compiler seconds, estimated from a part of each build"
        sides, notes = part(paths, given.targets.split(","), given.sample, given.seed)
        judged = False
    else:
        sides, notes, judged = whole(paths)
        claim = "Compiler seconds by target" if judged else "Compiler seconds, not of whole builds"
    result = lib.Result(
        bench="compile",
        claim=claim,
        host=host,
        rows=rows_of(sides, judged=judged),
        notes=(*lines_of(sides), *notes),
    )
    lib.finish(result, given.out, bars=picture_of(sides))


if __name__ == "__main__":
    main()
