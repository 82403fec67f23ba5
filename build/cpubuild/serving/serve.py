"""The verb ``serve``: start a server for a model, say how it is, stop it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from cpubuild import activate, models, receipt, ui
from cpubuild.calls import Call, Outcome
from cpubuild.errors import CpuBuildError, ExitCode, Problem, fail
from cpubuild.facts.model import HostFacts
from cpubuild.findings import Status
from cpubuild.serving import key as keys
from cpubuild.serving import launch as launches
from cpubuild.serving import lifecycle, metrics
from cpubuild.serving.client import Client
from cpubuild.serving.launch import Launch
from cpubuild.serving.record import Files, Record, family, files_of, load, memory
from cpubuild.serving.supervisor import supervise
from cpubuild.state import State
from cpubuild.survey import observe
from cpubuild.tune import Tuning, compute

SAMPLE_SECONDS = 1.0


def serve(call: Call) -> Outcome:
    """Start a server, or with --status and --stop look at it and end it."""
    state = State(root=call.resolved().settings.state)
    files = files_of(state)
    options = call.options
    if options["stop"] and options["status"]:
        raise fail(
            ExitCode.SETTINGS,
            "--stop and --status exclude each other",
            remedy=("cpubuild serve --status", "cpubuild serve --stop"),
        )
    if options["stop"]:
        return stop(files)
    if options["status"]:
        return status(files)
    if not options["model"]:
        raise fail(
            ExitCode.SETTINGS,
            "serve needs a model",
            remedy=("cpubuild serve MODEL", "cpubuild model list   # what is here"),
        )
    return begin(call, state, files)


def begin(call: Call, state: State, files: Files) -> Outcome:
    """Start what was asked for, unless it runs already."""
    options = call.options
    wanted = models.find(options["model"], state, call.environ)
    launches.port_of(options["port"])
    same = already(files, wanted, options["port"])
    if same is not None:
        return Outcome(
            document=document(same, changed=False),
            lines=[f"runs already since {same.started}: {same.name}", *how(same)],
        )
    state.prepare()
    files.prepare()
    launch = prepared(call, state, files, wanted)
    if options["foreground"]:
        return foreground(launch, files)
    seconds = wait_of(options["wait"])
    ui.say(f"---- serve {launch.name} from {launch.target}")
    record = lifecycle.start(launch, files, seconds=seconds, say=ui.note)
    return Outcome(
        document=document(record, changed=True),
        lines=[f"ready: {record.name}", *how(record)],
    )


def already(files: Files, model: Path, port: str | None) -> Record | None:
    """The server that runs, if it is the one wanted; BUSY if it is another."""
    record = lifecycle.running(files)
    if record is None:
        return None
    if Path(record.model) == model and port in (None, "0", str(record.port)):
        if record.ready is not None:
            return record
        raise fail(
            ExitCode.BUSY,
            f"a server for {record.name} is being started",
            remedy=("cpubuild serve --status   # says when it is ready",),
        )
    raise fail(
        ExitCode.BUSY,
        f"a server runs already: {record.name} at {record.url} since {record.started}",
        why="one state root has one server; two would share cores and memory",
        remedy=(
            "cpubuild serve --stop   # then start the other one",
            "give another --state and --port",
        ),
    )


def prepared(call: Call, state: State, files: Files, model: Path) -> Launch:
    """Judge and put together; nothing is started. Errors name what stands against a start."""
    options = call.options
    asked = keys.given(options["api_key"], options["api_key_file"], call.environ)
    host = options["host"] or "127.0.0.1"
    launches.guard(host, key_given=asked is not None)
    more = launches.extras(options.get("command") or ())
    env, release = launches.target_of(state, options["target"])
    port = launches.free(host, launches.port_of(options["port"]))
    tuning, base = None, dict(call.environ)
    compiler = (receipt.load(env) or {}).get("environment_variables", {}).get("CXX")
    if compiler or not options["untuned"]:
        facts = observe(call.resolved().settings, state)
        if not options["untuned"]:
            tuning = tuned(call, env, release, model, facts)
        if compiler:
            base |= {v.name: v.value for v in activate.compiler_variables(facts, str(compiler))}
    return launches.compose(
        env=env,
        release=release,
        model=str(model),
        name=options["name"] or served_name(options["model"], model),
        host=host,
        port=port,
        key=keys.settle(files.key, asked),
        tuning=tuning,
        more=more,
        base=base,
        cache=state.cache,
    )


def served_name(asked: str, model: Path) -> str:
    """The name in requests: a folder's name for a path, else what was asked for."""
    return model.name if Path(asked).expanduser().is_dir() else asked


def tuned(call: Call, env: Path, release: str, model: Path, facts: HostFacts) -> Tuning:
    """The tuning, what it warns of said; its blockers are the error."""
    found = compute(env, facts, release=release, model=model, environ=call.environ)
    for finding in found.findings:
        if finding.status in (Status.WARN, Status.UNKNOWN):
            ui.note(f"{ui.mark(finding.status)} {finding.title}: {finding.found}")
    blockers = [f for f in found.findings if f.status is Status.BLOCKER]
    if blockers:
        raise CpuBuildError(
            *(
                Problem(
                    what=f"{f.title}: {f.found}" if f.found else f.title,
                    why=f"needed: {f.needed}. {f.why}" if f.needed else f.why,
                    remedy=f.remedy,
                    exit_code=f.exit_code,
                )
                for f in blockers
            )
        )
    for variable in found.variables:
        ui.note(f"{variable.name}={variable.value}   # {variable.reason}")
    for option in found.options:
        ui.note(f"{option.name} {option.value or ''}   # {option.reason}")
    return found


def wait_of(text: str | None) -> float:
    """Seconds to wait for the server at most."""
    if text is None:
        return lifecycle.READY_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if 1 <= seconds <= 86400:
        return seconds
    raise fail(
        ExitCode.SETTINGS,
        f"--wait {text}: seconds from 1 to 86400 are needed",
        remedy=(f"leave it out: {lifecycle.READY_SECONDS:.0f}",),
    )


def foreground(launch: Launch, files: Files) -> Outcome:
    """Run the server here until it ends; an interrupt is how a service manager ends it."""
    with lifecycle.alone(files):
        left = load(files.record)
        if left is not None:
            lifecycle.end(left, files)
        os.umask(0o077)
        try:
            code = supervise(launch, files, echo=ui.say)
        except KeyboardInterrupt:
            code = 0
        record = load(files.record)
        if record is not None and record.supervisor.pid == os.getpid():
            files.record.unlink(missing_ok=True)
    if record is not None and code not in lifecycle.ORDERLY:
        raise lifecycle.explained(record)
    ended: dict[str, Any] = {"changed": True, "running": False, "name": launch.name, "killed": []}
    return Outcome(document=ended, lines=["the server has ended"])


def how(record: Record) -> list[str]:
    """How to use a server, as lines."""
    return [
        f"  url   {record.url}/v1   model {record.name}",
        f"  key   {record.key_file}   (header: Authorization: Bearer KEY)",
        f"  log   {record.log}",
        '  use   cpubuild ask "TEXT"; cpubuild chat; cpubuild serve --status; '
        "cpubuild serve --stop",
    ]


def document(record: Record, *, changed: bool) -> dict[str, Any]:
    """What --json prints of a server that runs."""
    return {
        "changed": changed,
        "running": True,
        "model": record.model,
        "name": record.name,
        "url": record.url,
        "pid": record.server.pid if record.server else None,
        "environment": record.env,
        "release": record.release,
        "tuned": record.tuned,
        "started": record.started,
        "ready": record.ready,
        "key_file": record.key_file,
        "log": record.log,
    }


def stop(files: Files) -> Outcome:
    """Stop the server; nothing to stop is no error."""
    stopped, killed = lifecycle.stop(files)
    if stopped is None:
        return Outcome(
            document={"changed": False, "running": False, "killed": []},
            lines=["no server runs"],
        )
    freed = lifecycle.port_free(stopped)
    lines = [f"stopped: {stopped.name}; port {stopped.port} is {'free' if freed else 'taken'}"]
    lines += [f"  had to be killed: {words}" for words in killed]
    return Outcome(
        document={
            "changed": True,
            "running": False,
            "name": stopped.name,
            "port": stopped.port,
            "port_free": freed,
            "killed": killed,
        },
        lines=lines,
    )


def status(files: Files) -> Outcome:
    """How the server is; PREREQUISITE when none runs, BUSY while it starts, VERIFY when it fails.

    A server that has ended by itself is an error, with its cause.
    """
    ended = lifecycle.crashed(files)
    if ended is not None:
        raise lifecycle.explained(ended)
    record = lifecycle.running(files)
    if record is None:
        return Outcome(
            document={"changed": False, "running": False, "health": "none"},
            lines=["no server runs; do: cpubuild serve MODEL"],
            exit_code=ExitCode.PREREQUISITE,
        )
    client = Client(url=record.url, key=keys.kept(record.key_file))
    health, code = health_of(client, record)
    samples = two_samples(client) if health == "ok" else None
    client.close()
    found = document(record, changed=False) | {
        "health": health,
        "uptime_s": round(time.time() - (record.server or record.supervisor).started, 1),
        "supervised": record.supervisor.process() is not None,
        "memory": memory(family(record)),
        **(figures(*samples) if samples else {}),
    }
    return Outcome(document=found, lines=status_lines(found), exit_code=code)


def health_of(client: Client, record: Record) -> tuple[str, ExitCode]:
    """``ok``, ``starting`` or ``failing``, and what a script is told."""
    answered, _ = client.look("/health")
    if answered == 200:
        return "ok", ExitCode.OK
    if record.ready is None:
        return "starting", ExitCode.BUSY
    return "failing", ExitCode.VERIFY


def two_samples(client: Client) -> tuple[metrics.Sample, metrics.Sample] | None:
    """Two looks at the metrics, a second apart; None if there are none."""
    seen = []
    for pause in (SAMPLE_SECONDS, 0.0):
        answered, text = client.look("/metrics")
        if answered != 200:
            return None
        seen.append(metrics.parse(text, at=time.monotonic()))
        time.sleep(pause)
    return seen[0], seen[1]


def figures(first: metrics.Sample, second: metrics.Sample) -> dict[str, Any]:
    """What two samples say."""
    return {
        "tokens_per_s": metrics.rate(first, second),
        "requests": {"running": second.running, "waiting": second.waiting},
        "tokens": {"generated": second.generated, "prompt": second.prompt},
        "kv_cache_used": second.cache,
    }


def status_lines(found: dict[str, Any]) -> list[str]:
    """The status for people; what the server does not say is a question mark."""

    def shown(value: float | None, form: str = ".0f") -> str:
        return "?" if value is None else format(value, form)

    used = found["memory"]
    lines = [
        f"{found['health']}: {found['name']} at {found['url']}, "
        f"up {ui.duration(found['uptime_s'])}",
        f"  memory   {used['pss'] / 2**30:.2f} GiB in {used['processes']} processes",
    ]
    if "requests" in found:
        requests, tokens = found["requests"], found["tokens"]
        lines += [
            f"  now      {shown(found['tokens_per_s'], '.1f')} tokens/s; "
            f"{shown(requests['running'])} running, {shown(requests['waiting'])} waiting",
            f"  so far   {shown(tokens['generated'])} tokens generated, "
            f"{shown(tokens['prompt'])} read",
        ]
    return [*lines, f"  log      {found['log']}"]
