"""Run the trials of `tune --measure`, each in a process of the target environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cpubuild.errors import ExitCode, fail
from cpubuild.findings import Status
from cpubuild.tune.model import Tuning, Variable
from cpubuild.tune.threads import RESERVED
from cpubuild.tune.trials import Measured, Trial
from cpubuild.verify.target import RUNTIME_SECONDS, Target

TRIAL_SECONDS = 1800.0
CACHE = 1 << 30
LENGTH = 512
STREAMS = 8
TOKENS = 64
QUICK_TOKENS = 16
RUNS = 2


def sizes(tuning: Tuning, *, quick: bool) -> dict[str, Any]:
    """What every trial has alike, so that they differ in nothing but the setting."""
    given = {o.name: o.value for o in tuning.options}
    cache = int(given.get("--kv-cache-memory-bytes") or CACHE)
    length = int(given.get("--max-model-len") or LENGTH)
    found: dict[str, Any] = {
        "kv_cache_memory_bytes": min(CACHE, cache),
        "max_model_len": min(LENGTH, length),
        "max_num_seqs": STREAMS,
    }
    return found | ({"enforce_eager": True} if quick else {})


def refuse(tuning: Tuning) -> None:
    """Nothing is measured that would not start."""
    for finding in tuning.findings:
        if finding.status is Status.BLOCKER:
            raise fail(
                finding.exit_code,
                f"nothing is measured: {finding.title}",
                why=finding.why,
                remedy=finding.remedy,
            )


def surroundings(
    target: Target, tuning: Tuning, more: tuple[Variable, ...], trial: Trial
) -> dict[str, str]:
    """The environment of one trial; the default has nothing of the tuning."""
    base = {n: v for n, v in target.clean().items() if n != RESERVED}
    base["PATH"] = f"{tuning.env / 'bin'}:{base.get('PATH', '')}"
    base |= {v.name: v.value for v in more}
    if trial.plain:
        return base
    changed = dict(trial.variables)
    kept = {v.name: v.value for v in tuning.variables if v.name != "VLLM_CPU_KVCACHE_SPACE"}
    kept |= {name: value for name, value in changed.items() if value is not None}
    return base | {n: v for n, v in kept.items() if n not in changed or changed[n] is not None}


def attempt(
    target: Target,
    tuning: Tuning,
    more: tuple[Variable, ...],
    trial: Trial,
    options: Mapping[str, Any],
    number: int,
) -> Measured:
    """Run one trial; a failure is a result too."""
    given = {o.name: o.value for o in tuning.options}
    engine = dict(options["engine"])
    dtype = trial.dtype or (None if trial.plain else given.get("--dtype"))
    if dtype:
        engine["dtype"] = dtype
    answer = target.run(
        ("measure",),
        name=f"measure-{number}",
        env=surroundings(target, tuning, more, trial),
        timeout=TRIAL_SECONDS,
        options={**options, "engine": engine},
    )
    document = answer.good("measure")
    if document is None:
        told = answer.documents.get("measure", {}).get("error", {})
        said = told.get("message") or f"the process ended with {answer.completed.returncode}"
        return Measured(trial=trial, failure=" ".join(str(said).split())[:160])
    return Measured(
        trial=trial,
        single=max(document["single"]),
        batch=max(document["batch"]),
        start=float(document["start"]),
        others=document["others"],
    )


def tiny(target: Target) -> Path:
    """The tiny Qwen2 that verification makes, for where no model was named."""
    answer = target.run(("reference",), name="tiny", timeout=RUNTIME_SECONDS)
    document = answer.good("reference")
    if document is None:
        raise fail(
            ExitCode.VERIFY,
            "the tiny model cannot be made in this environment",
            remedy=("cpubuild verify", "name a model: cpubuild tune MODEL --measure"),
            log=target.folder / "logs",
        )
    return Path(document["model"])


def measure(
    target: Target,
    tuning: Tuning,
    more: tuple[Variable, ...],
    wanted: tuple[Trial, ...],
    *,
    quick: bool,
    say: Callable[[str], None],
) -> tuple[Measured, ...]:
    """Run all trials in turn; VERIFY if not one of them ended well."""
    model = tuning.model or tiny(target)
    options = {
        "model": str(model),
        "engine": sizes(tuning, quick=quick),
        "tokens": QUICK_TOKENS if quick else TOKENS,
        "runs": RUNS,
    }
    seen: list[Measured] = []
    for number, trial in enumerate(wanted, 1):
        found = attempt(target, tuning, more, trial, options, number)
        seen.append(found)
        speed = f"{found.single:.2f} and {found.batch:.2f} tokens/s"
        say(f"{number} of {len(wanted)}, {trial.name}: {found.failure or speed}")
    if all(m.failure for m in seen):
        raise fail(
            ExitCode.VERIFY,
            f"no setting could be measured: {seen[0].failure}",
            remedy=("cpubuild verify", f"read the logs in {target.folder / 'logs'}"),
            log=target.folder / "logs",
        )
    return tuple(seen)
