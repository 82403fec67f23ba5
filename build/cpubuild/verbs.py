"""What each verb does: options in, one outcome out (document, lines, exit code)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpubuild import jsonio, receipt, ui
from cpubuild.calls import Call, Outcome
from cpubuild.errors import ExitCode, fail
from cpubuild.state import State

if TYPE_CHECKING:
    from cpubuild.settings import Resolved
    from cpubuild.survey import Survey


def bootstrap(call: Call) -> Outcome:
    """Build, install, prove, activate."""
    from cpubuild.bootstrap import bootstrap as run

    resolved = call.resolved()
    state = State(root=resolved.settings.state)
    done = run(resolved, state)
    env, kept = done.environment, done.receipt
    report = kept.get("verify", {})
    document = {
        "changed": done.changed,
        "plan": {"id": kept.get("plan"), "steps": done.plan.steps if done.plan else []},
        "environment": env,
        "current": state.current,
        "receipt": kept,
        "seconds": round(done.seconds, 3),
    }
    lines = [
        f"{'changed' if done.changed else 'nothing to do'}: {env}",
        f"vllm {report.get('vllm', {}).get('version')}, "
        f"{report.get('platform', {}).get('class')}, "
        f"{report.get('kernels', {}).get('library')}; took {ui.duration(done.seconds)}",
        f"use it:  . {state.current}/env.sh",
    ]
    return Outcome(document=document, lines=lines)


def plan(call: Call) -> Outcome:
    """Show choices and steps; the source tree is fetched to be read, nothing else is touched."""
    from cpubuild import shared_wheels, shown, wheelcache
    from cpubuild import survey as surveys
    from cpubuild.plan import explain_miss, make_plan

    resolved = call.resolved()
    settings, state = resolved.settings, State(root=resolved.settings.state)
    survey = surveys.look(settings, state)
    surveys.refuse_early(survey, state)
    if survey.installs and surveys.blockers(survey.findings):
        return packages_first(resolved, survey)
    with state.lock():
        survey = surveys.judged(surveys.with_tree(survey, settings, state), settings)
        surveys.refuse_early(survey, state)
        gathered = surveys.choose(survey, settings, state)
        made = make_plan(gathered.inputs, state)
        miss = explain_miss(gathered.inputs, state) if call.options["why"] else ()
        shared = shared_wheels.open_for(settings, survey, state)
        if call.options["why"] and shared is not None:
            miss += wheelcache.explain_miss(shared.shared.store, gathered.inputs.wheel)
    document = {
        "plan": made,
        "changes": bool(made.left),
        "settings": resolved.origins,
        "choices": gathered.inputs.choices,
        "patches": [{"id": p.id, "reason": p.reason} for p in gathered.patches],
        "packages": survey.missing,
        "jobs": {"count": gathered.jobs, "reason": gathered.jobs_reason},
        "warnings": gathered.inputs.warnings,
        "inputs": {"wheel": gathered.inputs.wheel, "environment": gathered.inputs.env},
        "why": miss,
    }
    lines = [*shown.settings_lines(resolved), *shown.plan_lines(gathered, made, survey), *miss]
    return Outcome(document=document, lines=lines)


def packages_first(resolved: Resolved, survey: Survey) -> Outcome:
    """The plan of a host that lacks what the choices depend on: its packages, then the rest."""
    from cpubuild import shown

    step = {
        "id": "packages",
        "title": "install packages of the operating system",
        "reason": "; ".join(f"{' '.join(p.names)}: {p.reason}" for p in survey.missing),
        "done": False,
    }
    later = "the other steps depend on these packages and are planned when they are there"
    document = {
        "plan": {"id": None, "steps": [step]},
        "changes": True,
        "settings": resolved.origins,
        "packages": survey.missing,
        "warnings": [later],
    }
    lines = [*shown.settings_lines(resolved), *shown.package_lines(survey), f"     {later}"]
    return Outcome(document=document, lines=lines)


def verify(call: Call) -> Outcome:
    """Prove an environment again, from outside it."""
    from cpubuild.verify import explain
    from cpubuild.verify import verify as prove

    if call.options["explain"]:
        text = explain(call.options["explain"])
        return Outcome(document={"explain": text}, lines=[text])
    settings = call.resolved().settings
    state = State(root=settings.state)
    python = target_python(call.options["target"], state)
    folder = state.new_run("verify")
    kept = receipt.load(python.parent.parent)
    # The compiler that vLLM needs at run time, where the host has none called g++.
    named = (kept or {}).get("environment_variables", {}).get("CXX")
    report = prove(
        python,
        level="quick" if call.options["quick"] else "default",
        folder=folder,
        receipt=kept,
        environ=({"CXX": named} if named else {}) | dict(call.environ),
        say=ui.note,
        **extras(call),
    )
    document = report.to_json()
    passed = document["verdict"] == "pass"
    return Outcome(
        document=document,
        lines=report.lines(verbose=call.verbose),
        exit_code=ExitCode.OK if passed else ExitCode.VERIFY,
    )


def extras(call: Call) -> dict[str, Any]:
    """The options of verify that are only handed on when they are given."""
    options = call.options
    given: dict[str, Any] = {}
    if options["model"]:
        from cpubuild.models import stored_path

        state = State(root=call.resolved().settings.state)
        given["model"] = stored_path(options["model"], state) or options["model"]
    if options["server"]:
        given["server"] = True
    for name in ("only", "skip"):
        if names := call.names(name):
            given[name] = names
    return given


def target_python(target: str | None, state: State) -> Path:
    """The interpreter of an environment or of ``current``; SETTINGS if there is none."""
    if target is None:
        env = state.installed(otherwise="cpubuild verify --target ENVIRONMENT")
        return env / "bin" / "python"
    path = Path(target).expanduser().absolute()
    python = path / "bin" / "python" if path.is_dir() else path
    if not python.is_file():
        raise fail(
            ExitCode.SETTINGS,
            f"--target {target}: there is no interpreter at {python}",
            remedy=("give an interpreter, or a folder that holds bin/python",),
        )
    return python


def repair(call: Call) -> Outcome:
    """Make an installed vLLM recognisable without a rebuild, or undo that."""
    from cpubuild import repair as repairs

    state = State(root=call.resolved().settings.state)
    python = target_python(call.options["target"], state)
    with state.lock():
        folder = state.root / "repairs" / jsonio.fingerprint(str(python))[:16]
        if call.options["undo"]:
            done = repairs.undo(python, folder=folder)
        else:
            done = repairs.repair(python, folder=folder, dry_run=bool(call.options["dry"]))
    return Outcome(document=done.to_json(), lines=list(done.lines))


def status(call: Call) -> Outcome:
    """List environments, the current one, the last run, and what the state root takes."""
    from cpubuild.keeping import status as run

    return run(call)


def rollback(call: Call) -> Outcome:
    """Let ``current`` point to the newest other environment that was verified."""
    from cpubuild.keeping import rollback as run

    return run(call)


def clean(call: Call) -> Outcome:
    """Remove what is not in use; with --all all that is ours in the state root."""
    from cpubuild.keeping import clean as run
    from cpubuild.serving.lifecycle import spare

    if not call.options["dry"]:
        spare(State(root=call.resolved().settings.state), everything=bool(call.options["all"]))
    return run(call)


def check(call: Call) -> Outcome:
    """Foresee what will go wrong on this host with this release."""
    from cpubuild.checking import check as run

    return run(call)


def report(call: Call) -> Outcome:
    """Draw a build as one self-contained page."""
    from cpubuild.report.verb import report as run

    return run(call)


def model(call: Call) -> Outcome:
    """Get, list, check or remove models."""
    from cpubuild.models.verb import model as run

    return run(call)


def serve(call: Call) -> Outcome:
    """Start, look at or stop a server."""
    from cpubuild.serving.serve import serve as run

    return run(call)


def ask(call: Call) -> Outcome:
    """Ask the served model."""
    from cpubuild.serving.ask import ask as run

    return run(call)


def bench(call: Call) -> Outcome:
    """Measure the served model."""
    from cpubuild.benchmark.verb import bench as run

    return run(call)


def chat(call: Call) -> Outcome:
    """Talk with the served model."""
    from cpubuild.serving.chat import chat as run

    return run(call)


def web(call: Call) -> Outcome:
    """Show a page to talk with the served model."""
    from cpubuild.serving.web import web as run

    return run(call)


def tune(call: Call) -> Outcome:
    """Compute the settings for this host and a model."""
    from cpubuild.tuning import tune as run

    return run(call)


def diagnose(call: Call) -> Outcome:
    """Name the cause of a failure."""
    from cpubuild.diagnosing import diagnose as run

    return run(call)
