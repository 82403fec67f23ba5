"""The verb ``tune``: which environment and model, the user's own options, the files, the table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cpubuild import activate, deploy, receipt, ui
from cpubuild.calls import Call, Outcome
from cpubuild.errors import ExitCode, fail
from cpubuild.facts.model import HostFacts
from cpubuild.findings import Status
from cpubuild.models import store
from cpubuild.origin import origin
from cpubuild.state import State
from cpubuild.survey import observe
from cpubuild.tune import Tuning, Variable, compute, kept, measure, shown, trials, useroptions
from cpubuild.tune.tree import read_tree
from cpubuild.verify.target import Target


def tune(call: Call) -> Outcome:
    """Compute the settings for this host and a model; with ``measure`` try what matters."""
    settings = call.resolved().settings
    state = State(root=settings.state)
    env = environment(call.options["target"], state)
    release = receipt.release_of(env)
    model = (
        store.find(call.options["model"], state, call.environ) if call.options["model"] else None
    )
    facts = observe(settings, state)
    given = useroptions.read(path_of(call.options["options"])) if call.options["options"] else ()
    translated = useroptions.translate(given, read_tree(env), release)
    more = compiler(facts, env)
    around = Around(env=env, facts=facts, release=release, model=model, environ=call.environ)
    seen = measured(around, state, more, quick=call.options["quick"]) if asked(call) else None
    tuning = around.compute(remembered=True)
    rows = list(seen.lines) if seen else []
    if given:
        tuning = useroptions.merged(tuning, translated.options, call.options["options"])
        rows += change_lines(translated.changes)
    out = call.options["out"]
    written = deploy.Written(files=())
    if out:
        job = deploy.Job(
            tuning=tuning,
            facts=facts,
            more=more,
            state=state.root,
            name=served_name(call.options["model"], model),
            origin=origin(call.environ),
            own=translated.options,
        )
        written = write(out, job)
    document = shown.document(tuning) | {
        "changes": translated.changes,
        "measured": seen.document if seen else None,
        "files": written.files,
        "left_out": [{"name": name, "reason": why} for name, why in written.left_out],
        "notes": written.notes,
    }
    lines = [*shown.lines(tuning), *rows, *file_lines(written)]
    return Outcome(document=document, lines=lines, exit_code=exit_code(tuning))


@dataclass(frozen=True, kw_only=True, slots=True)
class Around:
    """What a tuning is computed from."""

    env: Path
    facts: HostFacts
    release: str
    model: Path | None
    environ: Mapping[str, str]

    def compute(self, *, remembered: bool) -> Tuning:
        """The tuning, with what was measured earlier or without it."""
        return compute(
            self.env,
            self.facts,
            release=self.release,
            model=self.model,
            environ=self.environ,
            remembered=remembered,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What a measurement gave, for people and for programs."""

    lines: tuple[str, ...]
    document: dict[str, Any]


def asked(call: Call) -> bool:
    """Whether to measure; SETTINGS for a --quick that has nothing to shorten."""
    if call.options["quick"] and not call.options["measure"]:
        raise fail(
            ExitCode.SETTINGS,
            "--quick without --measure",
            why="it shortens a measurement; computing takes a second",
            remedy=("cpubuild tune --measure --quick",),
        )
    return bool(call.options["measure"])


def measured(around: Around, state: State, more: tuple[Variable, ...], *, quick: bool) -> Seen:
    """Try the settings that matter, keep the best for this model and host."""
    computed = around.compute(remembered=False)
    measure.refuse(computed)
    target = Target(
        python=around.env / "bin" / "python",
        folder=state.new_run("tune"),
        environ=around.environ,
    )
    target.prepare(fresh_caches=False)
    wanted = trials.trials(
        computed, cpus=len(around.facts.cpu.allowed), other_dtype=computed.other_dtype
    )
    with ui.Progress("measure"):
        seen = measure.measure(target, computed, more, wanted, quick=quick, say=ui.note)
    chosen = trials.best(seen)
    rows = trials.document(seen, chosen)
    found = trials.kept_of(chosen, seen[0], computed, time.strftime("%Y-%m-%d"))
    why = "a first look is not kept" if quick else "the tiny model says nothing about a real one"
    path = None
    if around.model is not None and not quick:
        path = kept.save(
            around.env, around.facts, around.model, replace(found, measured={"trials": rows})
        )
    said = f"kept in {path}" if path else f"not kept: {why}"
    document = {"trials": rows, "chosen": chosen.trial.name, "kept": path, "logs": target.folder}
    return Seen(lines=("", *trials.rows(seen, chosen), said), document=document)


def path_of(text: str) -> Path:
    """A path as it was typed, absolute."""
    return Path(text).expanduser().absolute()


def environment(target: str | None, state: State) -> Path:
    """The environment to tune for: ``current`` unless named; SETTINGS if it holds no vLLM."""
    if target is None:
        return state.installed(otherwise="cpubuild tune --target ENVIRONMENT")
    path = path_of(target)
    env = path.parent.parent if path.is_file() else path.resolve()
    if not any(env.glob("lib*/python3*/site-packages/vllm")):
        raise fail(
            ExitCode.SETTINGS,
            f"--target {target}: no vllm is installed in {env}",
            remedy=("give the folder of an environment with vllm, or its bin/python",),
        )
    return env


def compiler(facts: HostFacts, env: Path) -> tuple[Variable, ...]:
    """CXX as the environment's own files have it, where the host has no plain g++."""
    kept = (receipt.load(env) or {}).get("environment_variables", {}).get("CXX")
    return activate.compiler_variables(facts, kept) if kept else ()


def served_name(asked: str | None, model: Path | None) -> str:
    """The model's name in requests, as ``serve`` gives it: a folder's own, else what was asked."""
    if asked is None or model is None:
        return ""
    return model.name if Path(asked).expanduser().is_dir() else asked


def write(out: str, job: deploy.Job) -> deploy.Written:
    """All files of a tuning, into the folder ``out``; SETTINGS if they cannot be written."""
    folder = path_of(out)
    try:
        return deploy.write(folder, job)
    except OSError as error:
        raise fail(
            ExitCode.SETTINGS,
            f"--out {out}: cannot write there: {error.strerror}",
            remedy=("give --out a folder that can be written",),
        ) from error


def file_lines(written: deploy.Written) -> list[str]:
    """What was written, what was not, and what is left to do for it."""
    return [
        *(f"written: {path}" for path in written.files),
        *(f"not written: {name}: {why}" for name, why in written.left_out),
        *(f"note: {text}" for text in written.notes),
    ]


def change_lines(changes: Sequence[useroptions.Change]) -> list[str]:
    """What became of options that the release does not know."""
    rows = ["", "options of the file that this release does not know:"] if changes else []
    for change in changes:
        rows += [f"     {change.given} -> {change.now or 'left out'}", f"       {change.reason}"]
    return rows


def exit_code(tuning: Tuning) -> ExitCode:
    """0, or that of the first blocker."""
    return next((f.exit_code for f in tuning.findings if f.status is Status.BLOCKER), ExitCode.OK)
