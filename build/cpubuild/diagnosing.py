"""The verb ``diagnose``: a log, a folder, stdin or a run, to causes and remedies."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from cpubuild import diagnose as engine
from cpubuild import jsonio, ui
from cpubuild.calls import Call, Outcome
from cpubuild.checking import recorded_facts
from cpubuild.diagnose.inputs import split_lines
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.facts.collect import collect
from cpubuild.facts.model import HostFacts
from cpubuild.facts.serial import facts_to_json
from cpubuild.state import State

WAYS = (
    "cpubuild diagnose LOG",
    "COMMAND 2>&1 | cpubuild diagnose",
    "cpubuild diagnose --last",
    "cpubuild diagnose -- COMMAND",
)


def diagnose(call: Call) -> Outcome:
    """Answer with the causes; exit code 0 when a log was read, whatever it says."""
    if call.options["rules"]:
        rules = engine.load_rules()
        return Outcome(
            document={"rules": jsonio.plain(rules)}, lines=list(engine.render_rules(rules))
        )
    state = State(root=call.resolved().settings.state)
    command = call.options.get("command")
    refuse_options(call, command)
    facts = recorded_facts(call.options["host"]) or collect(disks={}, compilers=False)
    if command:
        found, code = run_command(command, state, facts, call)
    else:
        found, code = read(call, state, facts), ExitCode.OK
    lines = list(engine.render_diagnosis(found, verbose=call.verbose))
    document: dict[str, Any] = found.to_json()
    if call.options["bundle"]:
        document["bundle"] = bundle(call, state, facts)
        lines.append(f"bundle: {document['bundle']}")
    return Outcome(document=document, lines=lines, exit_code=code)


def refuse_options(call: Call, command: tuple[str, ...] | None) -> None:
    """Raise a SETTINGS error for what cannot be done, before anything is read or run."""
    if command == ():
        raise fail(
            ExitCode.SETTINGS,
            "there is no command after --",
            remedy=("cpubuild diagnose -- COMMAND", "cpubuild diagnose LOG"),
        )
    release(call)
    if call.options["bundle"]:
        engine.refuse_place(Path(call.options["bundle"]).expanduser())


def release(call: Call) -> str | None:
    """The vLLM version that the log is of, in its public form; SETTINGS if it is none."""
    given = call.options["release"]
    if given is None:
        return None
    from packaging.version import InvalidVersion, Version

    try:
        return Version(given).public
    except InvalidVersion:
        raise fail(
            ExitCode.SETTINGS,
            f"--release {given!r} is not a version",
            why="it says which rules may apply",
            remedy=("--release 0.32.0   # what the log's vLLM was", "leave --release out"),
        ) from None


def explain_failure(error: CpuBuildError) -> CpuBuildError:
    """Add cause and remedy to a failure that has a log and no remedy of its own.

    Where no rule knows the cause, that is said, with the likeliest first error.
    """
    if error.log is None or not error.log.exists() or any(p.remedy for p in error.problems):
        return error
    found = engine.diagnose_paths([error.log])
    first, *rest = error.problems
    if found.causes:
        why = f"{found.causes[0].title}. {found.causes[0].explanation}"
        remedy = tuple(dict.fromkeys(r for c in found.causes[:2] for r in c.remedies))
    else:
        likely = (
            f"; the likeliest first error: {found.first_error.text}" if found.first_error else ""
        )
        why = f"{first.why}{'; ' if first.why else ''}the cause is not one that is known{likely}"
        remedy = (f"cpubuild diagnose {error.log} --bundle report.tar.gz   # for a bug report",)
    first = replace(first, why=why, remedy=remedy)
    return CpuBuildError(first, *rest, exit_code=error.exit_code, log=error.log, tail=error.tail)


def read(call: Call, state: State, facts: HostFacts) -> engine.Diagnosis:
    """Diagnose the log that the options name: a path, the last run, else stdin."""
    given: dict[str, Any] = {
        "host": facts,
        "release": release(call),
        "exit_status": exit_status(call.options["exit_status"]),
    }
    path = call.options["path"]
    if call.options["last"]:
        folder = last_run(state)
        return something(engine.diagnose_paths([folder], **given), str(folder))
    if path and path != "-":
        return something(engine.diagnose_paths([Path(path).expanduser()], **given), path)
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        raise fail(
            ExitCode.SETTINGS,
            "there is nothing to read",
            why="no path was given and stdin is not a log",
            remedy=WAYS,
        )
    return something(engine.diagnose_lines(split_lines(sys.stdin.buffer), **given), "stdin")


def something(found: engine.Diagnosis, source: str) -> engine.Diagnosis:
    """The diagnosis; a SETTINGS error if it rests on no line at all and no exit status."""
    if found.lines or found.exit_status is not None:
        return found
    raise fail(
        ExitCode.SETTINGS,
        f"there was nothing to read: {source} holds no line of a log",
        why="that nothing was written does not say that nothing failed",
        remedy=WAYS,
    )


def run_command(
    command: tuple[str, ...], state: State, facts: HostFacts, call: Call
) -> tuple[engine.Diagnosis, ExitCode]:
    """Run a command, its output on stderr as it comes, and diagnose it."""
    state.prepare()
    done, found = engine.run_and_diagnose(
        command,
        folder=state.new_run("diagnose") / "command",
        on_line=ui.say,
        host=facts,
        release=release(call),
    )
    ui.say(f"     log: {done.log}")
    return found, ExitCode.OK if done.ok else ExitCode.VERIFY


def last_run(state: State) -> Path:
    """The newest run that left a log; SETTINGS if there is none."""
    runs = sorted(state.runs.iterdir(), reverse=True) if state.runs.is_dir() else []
    for folder in runs:
        if any(folder.rglob("log")):
            return folder
    raise fail(
        ExitCode.SETTINGS,
        f"no run has left a log under {state.runs}",
        remedy=("cpubuild diagnose LOG", "give the --state that the run used"),
    )


def exit_status(text: str | None) -> int | None:
    """An exit status in words: a number, ``-9``, ``137`` or a signal's name."""
    if text is None:
        return None
    name = text.upper() if text.upper().startswith("SIG") else "SIG" + text.upper()
    if name in signal.Signals.__members__:
        return -int(signal.Signals[name])
    try:
        return int(text)
    except ValueError:
        raise fail(
            ExitCode.SETTINGS,
            f"--exit-status {text} is not a status",
            remedy=("give a number such as 1, -9 or 137, or a signal such as SIGKILL",),
        ) from None


def bundle(call: Call, state: State, facts: HostFacts) -> Path:
    """Write the redacted archive: the logs that were read, the facts, the current receipt."""
    path = call.options["path"]
    paths = [Path(path).expanduser()] if path and path != "-" else []
    if not paths and state.runs.is_dir() and any(state.runs.iterdir()):
        paths = [last_run(state)]
    documents = {"facts.json": json.dumps(facts_to_json(facts), indent=2, default=str)}
    env = state.current_env()
    if env is not None:
        documents["receipt.json"] = (env / "receipt.json").read_text(encoding="utf-8")
    return engine.bundle(paths, Path(call.options["bundle"]).expanduser(), documents=documents)
