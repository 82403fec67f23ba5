"""What all benches share: timing side by side, medians and ratios, table, JSON and picture.

A bench compares cases in one run on one host. The first case is the baseline. Every round runs all
cases, in turn forwards and backwards, so that a drift of the host meets all alike; a ratio is taken
within a round, never between rounds. The table goes to stderr, the JSON document to stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import picture

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent
TOOL = Path(sys.executable).parent


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One run: wall and processor seconds, and what the case wants to keep of it."""

    wall: float
    cpu: float
    kept: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing to time; ``run`` does it once. ``target`` is the ratio to stay below, if any."""

    name: str
    run: Callable[[], Sample]
    target: float | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A case's result: seconds of every run, their median, and ratios within each round."""

    name: str
    seconds: tuple[float, ...]
    median: float
    cpu_median: float
    ratios: tuple[float, ...] = ()
    ratio: float | None = None
    target: float | None = None
    kept: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Result:
    """The document of a bench."""

    bench: str
    claim: str
    host: dict[str, Any]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    unit: str = "s"


def timed(
    argv: Sequence[object],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = CHECKOUT,
    accept: Sequence[int] = (0,),
    keep: Callable[[str], dict[str, Any]] | None = None,
) -> Sample:
    """Run a command once; ends the bench with its output if it ends with another status."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    process = subprocess.Popen(
        [str(word) for word in argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=None if env is None else dict(env),
        cwd=cwd,
    )
    try:
        stdout, stderr = process.communicate()
    except BaseException:
        process.terminate()  # the tool ends what it has started itself
        process.wait()
        raise
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode not in accept:
        tail = "\n".join((stdout + stderr).splitlines()[-30:])
        raise SystemExit(f"{' '.join(map(str, argv))}\nended with {process.returncode}\n{tail}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Sample(wall=wall, cpu=cpu, kept=keep(stdout) if keep else {})


def rounds(cases: Sequence[Case], *, runs: int, warm: bool = True) -> tuple[Row, ...]:
    """Run every case ``runs`` times, side by side, after one round that does not count."""
    samples: dict[str, list[Sample]] = {case.name: [] for case in cases}
    if warm:
        for case in cases:
            say(f"warming up: {case.name}")
            case.run()
    for number in range(runs):
        for case in cases if number % 2 == 0 else reversed(cases):
            sample = case.run()
            samples[case.name].append(sample)
            say(f"round {number + 1}/{runs}: {case.name}: {sample.wall:.3f} s")
    return tuple(row(case, samples[case.name], samples[cases[0].name]) for case in cases)


def row(case: Case, samples: Sequence[Sample], baseline: Sequence[Sample]) -> Row:
    """Sum up a case; the baseline itself has no ratios."""
    walls = tuple(round(s.wall, 4) for s in samples)
    ratios: tuple[float, ...] = ()
    if samples is not baseline:
        ratios = tuple(
            round(a.wall / b.wall, 4) for a, b in zip(samples, baseline, strict=True) if b.wall
        )
    return Row(
        name=case.name,
        seconds=walls,
        median=round(statistics.median(walls), 4),
        cpu_median=round(statistics.median(s.cpu for s in samples), 4),
        ratios=ratios,
        ratio=round(statistics.median(ratios), 4) if ratios else None,
        target=case.target,
        kept=tuple(s.kept for s in samples if s.kept),
    )


def host() -> dict[str, Any]:
    """The host of a run, so that a number is never quoted without it."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    model = next((x.split(":", 1)[1].strip() for x in info.splitlines() if "model name" in x), "")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "cpu": model or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9, 1),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def table(result: Result) -> str:
    """The result as text."""
    head = ("", f"median {result.unit}", "from .. to", "ratio", "from .. to", "target")
    lines = [head]
    for r in result.rows:
        target = "" if r.target is None else f"<= {r.target:g}"
        if r.target is not None and r.ratio is not None:
            target += " met" if r.ratio <= r.target else " MISSED"
        lines.append(
            (
                r.name,
                f"{r.median:.3f}",
                span(r.seconds),
                "1" if r.ratio is None else f"{r.ratio:.3f}",
                span(r.ratios),
                target,
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = "\n".join(
        "  ".join(
            c.ljust(w) if i == 0 else c.rjust(w)
            for i, (c, w) in enumerate(zip(x, widths, strict=True))
        )
        for x in lines
    )
    where = result.host
    about = (
        f"{where['cpu']}, {where['cores']} cores, {where['memory_gb']} GB, {where['system']}, "
        f"{where['date']}, load {where['load']} at the start"
    )
    return "\n".join([result.claim, "", text, "", *result.notes, about]) + "\n"


def span(values: Sequence[float]) -> str:
    """The smallest and the largest of several values."""
    return f"{min(values):.3f} .. {max(values):.3f}" if len(values) > 1 else ""


def parser(name: str, doc: str, *, runs: int) -> argparse.ArgumentParser:
    """The options that every bench has; from here on SIGTERM ends a bench as an interrupt does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    made = argparse.ArgumentParser(
        prog=f"bench/{name}.py", description=doc, formatter_class=argparse.RawTextHelpFormatter
    )
    made.add_argument("--runs", type=int, default=runs, help=f"rounds that count ({runs})")
    made.add_argument("--out", type=Path, help="folder for NAME.json and NAME.svg as well")
    return made


def finish(result: Result, out: Path | None, *, bars: Sequence[picture.Bar] | None = None) -> None:
    """Print table and document; write document and picture where ``out`` says."""
    sys.stderr.write("\n" + table(result))
    document = json.dumps(asdict(result), indent=2) + "\n"
    sys.stdout.write(document)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{result.bench}.json").write_text(document, encoding="utf-8")
        (out / f"{result.bench}.svg").write_text(drawn(result, bars), encoding="utf-8")
        say(f"written: {out / result.bench}.json and .svg")


def drawn(result: Result, bars: Sequence[picture.Bar] | None = None) -> str:
    """The picture of a result: a bar for each row, unless other ones are given."""
    if bars is None:
        bars = [
            picture.Bar(
                name=r.name,
                parts=(picture.Part(name="", value=r.median),),
                dots=r.seconds,
                note="baseline" if r.ratio is None else f"{r.ratio:.2f} of it",
            )
            for r in result.rows
        ]
    return picture.bars(bars, title=result.claim, unit=result.unit, foot=foot(result))


def foot(result: Result) -> str:
    """Host and date, for under a picture."""
    where = result.host
    return f"{where['cpu']}, {where['cores']} cores, {where['system']}, {where['date'][:10]}"


def state_of(given: Path | None) -> Path:
    """The state root: as given, else that of the settings."""
    if given is not None:
        return given.absolute()
    from cpubuild.settings import resolve

    return resolve({}, os.environ).settings.state


def current(state: Path) -> Path:
    """The environment in use below a state root."""
    env = state / "current"
    if not (env / "bin" / "python").exists():
        raise SystemExit(f"nothing is installed under {state}: run a bootstrap first")
    return env


def say(text: str) -> None:
    """A line for people."""
    print(text, file=sys.stderr, flush=True)
