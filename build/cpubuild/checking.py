"""The verb ``check``: options to findings, and the remedies it may carry out itself."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from cpubuild import check as checks
from cpubuild import run, speed, system, ui
from cpubuild.assess import look_around
from cpubuild.calls import Call, Outcome
from cpubuild.choose.known import known_releases
from cpubuild.diagnose.redact import redactor
from cpubuild.errors import ExitCode, fail
from cpubuild.facts.model import HostFacts, Reach
from cpubuild.facts.serial import facts_from_json, facts_to_json
from cpubuild.release import Release
from cpubuild.release.known import known_release, known_versions, provenance
from cpubuild.settings import EXACT, Settings
from cpubuild.sources import onednn, vllm
from cpubuild.sources.pipconfig import read_pip_config
from cpubuild.sources.reach import index_page, probe_reach
from cpubuild.sources.torch import PYTORCH_CPU_INDEX
from cpubuild.sources.vllm_errors import refuse_ancient
from cpubuild.state import State
from cpubuild.survey import needs, observe

REACH_SECONDS = 1.0
RECORD = ("on that host:  cpubuild check --json --verbose > HOST.json",)
# A file of facts is well below 100 KiB.
HOST_BYTES = 16 << 20


def check(call: Call) -> Outcome:
    """Judge this host, or a recorded one, against the release that the settings name."""
    if call.options["list"]:
        rows = checks.list_checks()
        return Outcome(document={"checks": rows}, lines=[f"{c.id:<28} {c.title}" for c in rows])
    if call.options["explain"]:
        lines = list(checks.explain(call.options["explain"]))
        return Outcome(document={"explain": lines}, lines=lines)
    only, skip = call.names("only"), call.names("skip")
    checks.names((*only, *skip))
    resolved = call.resolved()
    settings, state = resolved.settings, State(root=resolved.settings.state)
    live = not call.options["host"]
    facts = recorded_facts(call.options["host"]) or with_reach(settings, state)
    release = release_of(settings, facts)
    fixed: tuple[tuple[str, ...], ...] = ()
    if call.options["fix"]:
        fixed = fix(facts, release, settings, live=live)
        facts = observe(settings, state) if fixed else facts
    report = checks.run_check(
        facts,
        release,
        only=only,
        skip=skip,
        needs=needs(settings, release),
        around=look_around(facts) if live else None,
        measured=speed.look() if live else None,
    )
    document = report.to_json() | {"fixed": fixed}
    if call.verbose:
        document["facts"] = json.loads(redactor(())(json.dumps(facts_to_json(facts))))
    return Outcome(
        document=document,
        lines=report.lines(verbose=call.verbose),
        exit_code=report.exit_code,
    )


def with_reach(settings: Settings, state: State) -> HostFacts:
    """The facts of this host with which sources answer, asked while the host is looked at."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=1) as pool:
        reach = pool.submit(reachable) if not settings.offline else None
        facts = observe(settings, state)
        return replace(facts, reach=reach.result() if reach else ())


def reachable() -> tuple[Reach, ...]:
    """Ask the sources that a plan would use; all is decided within about a second."""
    config = read_pip_config()
    default = ("",) if config.index_url is None and not config.no_index else ()
    indexes = (*default, *map(index_page, config.index_urls))
    sources = (*indexes, PYTORCH_CPU_INDEX, vllm.REPOSITORY, onednn.REPOSITORY)
    return probe_reach(sources, config=config, seconds=REACH_SECONDS)


def recorded_facts(name: str | None) -> HostFacts | None:
    """Facts from a JSON file or a recorded host's folder; None when this host is meant."""
    if not name:
        return None
    path = Path(name).expanduser()
    try:
        if path.is_dir():
            from cpubuild.facts.collect import replay

            if not (path / "proc" / "cpuinfo").is_file():
                raise ValueError("the folder has no proc/cpuinfo")
            return replay(path)
        value: Any = json.loads(bounded(path))
    except (OSError, ValueError, RecursionError) as error:
        raise fail(
            ExitCode.SETTINGS,
            f"--host {name} cannot be read: {error}",
            why="it must be the JSON of a host's facts, or a recorded host's folder",
            remedy=RECORD,
        ) from error
    if isinstance(value, dict) and "verdict" in value and "facts" not in value:
        raise fail(
            ExitCode.SETTINGS,
            f"--host {name} holds a verdict and no facts: it was written without --verbose",
            remedy=RECORD,
        )
    return facts_from_json(value.get("facts", value) if isinstance(value, dict) else value)


def bounded(path: Path) -> str:
    """The text of a file or a pipe; ValueError where it is more than any host's facts.

    A named pipe that nobody writes to is empty: it is not waited for.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as source:
        os.set_blocking(descriptor, True)
        text = source.read(HOST_BYTES + 1)
    if len(text) > HOST_BYTES:
        raise ValueError(f"it holds more than {HOST_BYTES >> 20} MiB")
    return text.decode()


def release_of(settings: Settings, facts: HostFacts) -> Release:
    """What is known of the release without fetching it; a local tree is read."""
    path = Path(settings.vllm).expanduser()
    if path.is_dir():
        from cpubuild.release import read_release

        return read_release(path, arch=facts.cpu.arch)
    wanted = known_versions()[-1] if settings.vllm == "latest" else settings.vllm
    release = known_release(wanted.removeprefix("v"), facts.cpu.arch)
    if release is not None:
        return release
    here = [r.version for r in known_releases(facts.cpu.arch) if not r.arch_refusal]
    if provenance(wanted.removeprefix("v")) is not None:
        raise fail(
            ExitCode.UNSUPPORTED,
            f"vLLM {wanted} names no torch for {facts.cpu.arch}",
            why="its requirements leave this architecture out; these name one for it: "
            + (", ".join(reversed(here)) or "none that is known"),
            remedy=(f"--vllm {here[0]}",) if here else ("another machine",),
        )
    if EXACT.fullmatch(wanted):
        refuse_ancient(wanted)
    raise fail(
        ExitCode.SETTINGS,
        f"--vllm {settings.vllm} is not a release that check knows for {facts.cpu.arch}",
        why="check downloads nothing; known are "
        + (", ".join(reversed(here)) or "none for this architecture"),
        remedy=("cpubuild plan --vllm " + settings.vllm + "   # fetches and reads the tree",),
    )


def fix(
    facts: HostFacts, release: Release, settings: Settings, *, live: bool
) -> tuple[tuple[str, ...], ...]:
    """Install missing packages where that is allowed, else print the block that does."""
    planned = checks.fix_plan(facts, release)
    allowed = live and planned.allowed and not settings.no_system
    allowed = allowed and (facts.container.root or settings.yes)
    if not planned.commands or not allowed:
        ui.lines(planned.block)
        return ()
    ui.say(system.one_line(planned.commands))
    for argv in planned.commands:
        env = dict(os.environ) | {"DEBIAN_FRONTEND": "noninteractive"}
        done = run.capture(argv, env=env, timeout=1800)
        run.must(done, ExitCode.PREREQUISITE, "packages cannot be installed")
    return planned.commands
