"""The whole bootstrap on one screen: look, choose, read, judge, plan, act, record."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpubuild import jsonio, receipt, render, shown, ui
from cpubuild.settings import EXACT, Resolved, Settings
from cpubuild.state import State, whole

if TYPE_CHECKING:
    from cpubuild.findings import Finding
    from cpubuild.plan import Plan, Step
    from cpubuild.steps.context import Context
    from cpubuild.survey import Survey

CPUINFO = Path("/proc/cpuinfo")


def tool_content() -> str:
    """Hash of the tool's own files: in a checkout they change without a new version."""
    package = Path(__file__).parent
    roots = (package, *(render.shipped(name) for name in ("patches", "templates")))
    files = (p for root in roots for p in Path(str(root)).rglob("*") if p.is_file())
    kept = sorted({p for p in files if p.suffix != ".pyc"})
    digest = hashlib.sha256()
    for path in kept:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def request_fingerprint(settings: Settings) -> str:
    """What was asked for, of which tool, on which processor: equal means nothing has changed."""
    wanted = {
        name: value
        for name, value in dataclasses.asdict(settings).items()
        if name in {"vllm", "python", "cxx", "profile", "targets", "onednn"}
    }
    lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    flags = next((x for x in lines if x.startswith(("flags", "Features", "cpu "))), "")
    if settings.cxx is None:
        wanted["cxx"] = os.environ.get("CXX")
    return jsonio.fingerprint([wanted, tool_content(), flags.split(":")[-1].split()])


def unchanged(settings: Settings, state: State) -> dict[str, Any] | None:
    """The receipt of ``current`` if it is exactly what is asked for and still whole."""
    env = state.current_env()
    if env is None or not EXACT.fullmatch(settings.vllm):
        return None
    kept = receipt.load(env)
    if kept is None or request_fingerprint(settings) not in kept.get("requests", ()):
        return None
    return kept if whole(env) and (env / "env.sh").is_file() else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a bootstrap came out; ``plan`` is None where the receipt told that nothing is left."""

    changed: bool
    environment: Path | None
    plan: Plan | None
    receipt: Mapping[str, Any]
    seconds: float
    findings: tuple[Finding, ...] = ()


def bootstrap(resolved: Resolved, state: State) -> Outcome:
    """Build, install, prove and activate what ``resolved`` asks for; only what is left to do."""
    started = time.monotonic()
    settings = resolved.settings
    kept = unchanged(settings, state)
    if kept is not None:
        env = state.current_env()
        return Outcome(
            changed=False,
            environment=env,
            plan=None,
            receipt=kept,
            seconds=time.monotonic() - started,
        )
    from cpubuild import shared_wheels
    from cpubuild import survey as surveys
    from cpubuild.plan import make_plan

    ui.lines(shown.settings_lines(resolved))
    survey = surveys.look(settings, state)
    surveys.refuse_early(survey, state)
    with state.lock():
        folder = state.new_run("bootstrap")
        survey = surveys.with_packages(survey, settings, state, folder)
        surveys.refuse([surveys.as_problem(f) for f in surveys.blockers(survey.findings)])
        gathered = surveys.choose(survey, settings, state)
        shared = shared_wheels.open_for(settings, survey, state)
        if shared is not None:
            shared.fetch(gathered.inputs)
        plan = make_plan(gathered.inputs, state)
        ui.lines(shown.plan_lines(gathered, plan, survey))
        ctx = gathered.context(state, folder, offline=settings.offline)
        results = execute(plan, ctx, survey, resolved, folder)
        if shared is not None:
            shared.publish(gathered.inputs, results)
    final = receipt.answered(ctx.env, request_fingerprint(settings))
    return Outcome(
        changed=bool(results) or survey.installed,
        environment=ctx.env,
        plan=plan,
        receipt=final,
        seconds=time.monotonic() - started,
        findings=survey.findings,
    )


def execute(
    plan: Plan, ctx: Context, survey: Survey, resolved: Resolved, folder: Path
) -> list[dict[str, Any]]:
    """Run the steps that are left, side by side where they do not wait; keep a journal."""
    from cpubuild.schedule import Ran, run_steps
    from cpubuild.steps import compile as compiling
    from cpubuild.steps import environments, finish, patch

    results: list[dict[str, Any]] = []

    def prove_it(ctx: Context) -> None:
        request = request_fingerprint(resolved.settings)
        record = finish.Record(
            request=request, facts=survey.facts, settings=resolved.origins, steps=results
        )
        finish.prove(ctx, record)

    acts: dict[str, Callable[[Context], None]] = {
        "lock": environments.lock,
        "buildenv": environments.buildenv,
        "patch": patch.patch,
        "compile": compiling.compile_wheel,
        "dependencies": environments.dependencies,
        "environment": environments.environment,
        "verify": prove_it,
        "activate": finish.activate,
    }

    def begin(step: Step) -> None:
        number = plan.left.index(step) + 1
        ui.say(f"[{number}/{len(plan.left)}] {step.title} ({step.reason})")

    def end(ran: Ran) -> None:
        results.append(
            {
                "id": ran.step.id,
                "fingerprint": ran.step.fingerprint,
                "status": ran.status,
                "started": round(ran.began, 1),
                "seconds": round(ran.seconds, 1),
                "log": str(folder / ran.step.id),
            }
        )
        jsonio.write(folder / "journal.json", {"plan": plan.id, "steps": results})

    steps = {name: functools.partial(act, ctx) for name, act in acts.items()}
    run_steps(plan.left, steps, records=ctx.state.running, begin=begin, end=end)
    return results
