"""Verify a target environment from outside: ask it through probes, judge the answers, report."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cpubuild.verify import (
    change,
    crash,
    hub,
    identity,
    kernels,
    knowledge,
    platform,
    realmodel,
    words,
)
from cpubuild.verify.crash import broken
from cpubuild.verify.library import Static, candidate, read_static
from cpubuild.verify.model import Check, Level, VerifyReport
from cpubuild.verify.selection import Selection, select, word_stages
from cpubuild.verify.target import (
    RUNTIME_SECONDS,
    WORDS_SECONDS,
    Answer,
    Target,
    biting,
    interpreter,
)

FIRST = ("platform", "kernels")
SECOND_WORDS = ("second", "bfloat16")
Say = Callable[[str], None]


@dataclass(kw_only=True, slots=True)
class Gathered:
    """What one verification has learned so far."""

    identity: dict[str, Any] = field(default_factory=lambda: EMPTY)
    first: Answer | None = None
    second: Answer | None = None
    caller: Answer | None = None
    static: Static | None = None
    files: tuple[tuple[str, str], ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    def good(self, stage: str) -> dict[str, Any] | None:
        """The document of a stage of either process."""
        for answer in (self.first, self.second):
            document = answer.good(stage) if answer is not None else None
            if document is not None:
                return document
        return None


def verify(
    python: Path,
    *,
    level: Level = "default",
    folder: Path,
    receipt: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    model: Path | str | None = None,
    server: bool = False,
    only: Collection[str] = (),
    skip: Collection[str] = (),
    say: Say | None = None,
) -> VerifyReport:
    """Verify the environment of ``python`` (an interpreter, or the folder of an environment).

    ``folder`` keeps logs, documents, a small model and compile caches. ``environ`` and ``cwd``
    are the caller's (default: this process's): the target is asked in a clean environment, and
    a second time in the caller's when that could change the answer. ``receipt`` is what the
    target is compared with. ``model`` is a folder or a hub's id. ``only`` and ``skip`` hold check
    ids or groups. Raises a SETTINGS error for an unknown id, a missing interpreter or a
    folder that cannot be written; everything that is wrong with the target is in the report.
    """
    started = time.monotonic()
    selection = select(level, server=server, model=model is not None, only=only, skip=skip)
    caller = dict(os.environ if environ is None else environ)
    target = Target(python=interpreter(python), folder=folder.absolute(), environ=caller)
    target.prepare(fresh_caches=selection.any("words"))
    tell = say or (lambda _: None)
    got = Gathered(names=biting(caller))
    judge_identity(got, target, cwd=cwd, receipt=receipt)
    if got.identity["module"]["origin"]:
        located = find_model(got, target, selection, tell, model=model)
        judge_runtime(got, target, selection, tell)
        judge_words(got, target, selection, tell)
        judge_change(got, selection, receipt, caller)
        judge_extra(got, target, selection, tell, model=located)
    return assemble(got, target, selection, level=level, seconds=time.monotonic() - started)


def judge_identity(
    got: Gathered, target: Target, *, cwd: Path | None, receipt: Mapping[str, Any] | None
) -> None:
    """Ask what is installed and judge it."""
    done, document = target.identity()
    if document is None:
        said = (done.stderr.strip().splitlines() or [done.describe_end()])[-1]
        got.checks.append(
            Check(
                id="identity.distribution",
                status="fail",
                summary=f"the interpreter gave no answer: {said}",
                evidence=tuple(done.stderr.splitlines()[-8:]),
                remedy=("give --target a Python that works",),
                seconds=done.seconds,
            )
        )
        return
    got.identity = document
    checks = identity.judge(
        document,
        python=str(target.python),
        cwd=Path.cwd() if cwd is None else cwd,
        pythonpath=target.environ.get("PYTHONPATH", ""),
        receipt=receipt,
    )
    got.checks += [replace(checks[0], seconds=done.seconds), *checks[1:]]


def judge_runtime(got: Gathered, target: Target, selection: Selection, tell: Say) -> None:
    """Ask vLLM for platform, kernels and the first words, in one process; judge the first two."""
    flags = host_flags()
    root = Path(got.identity["module"]["origin"]).parent
    guess = candidate(root, flags)
    stages = (*FIRST, *word_stages(selection))
    tell("asking vLLM in a clean environment" + (", with a small Qwen2" if len(stages) > 2 else ""))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_library, got.identity, guess) if guess else None
        hashing = pool.submit(change.hashes, root, got.identity["module"]["libraries"])
        got.first = target.run(
            stages,
            name="first",
            timeout=WORDS_SECONDS if len(stages) > 2 else RUNTIME_SECONDS,
            options={"speed": selection.wants("change.speed")},
        )
        if got.names:
            got.caller = target.run(
                ("platform",), name="caller", env=target.environ, cwd=target.neutral
            )
        got.static = static_of(got, reading, guess)
        got.files = hashing.result()
    got.checks += platform_checks(got, got.first)
    got.checks += kernel_checks(got, got.first, flags)


def read_library(document: Mapping[str, Any], library: Path) -> Static:
    """Read a library file, with torch's folder as the first place to look."""
    origin = document["torch"].get("origin")
    folder = Path(origin).parent if origin else None
    return read_static(library, folder, str(document["machine"]))


def static_of(got: Gathered, reading: Future[Static] | None, guess: Path | None) -> Static | None:
    """What was read of the library that was loaded, or of the guess when none was."""
    path = kernels.loaded(got.good("kernels"))
    if path is not None and (guess is None or Path(path).name != guess.name):
        return read_library(got.identity, Path(path))
    return reading.result() if reading is not None else None


def platform_checks(got: Gathered, first: Answer) -> list[Check]:
    """The platform, or why it could not be asked."""
    document = first.good("platform")
    if document is None:
        return [broken("platform.class", first, "platform")]
    caller = got.caller.good("platform") if got.caller else None
    failure = ""
    if got.caller is not None and caller is None:
        failure = crash.explain(got.caller, "platform").summary
    python = str(document["executable"])
    return [
        replace(platform.klass(document, python), seconds=float(document["seconds"])),
        platform.layers(document),
        platform.environment(document, caller, got.names, failure),
    ]


def kernel_checks(got: Gathered, first: Answer, flags: frozenset[str]) -> list[Check]:
    """The kernels, or why they could not be asked; the file itself is always read."""
    torch = got.identity["torch"].get("version")
    version = identity.answer(got.identity).version
    document = first.good("kernels")
    if document is not None:
        checks = kernels.judge(
            document, static=got.static, flags=flags, version=version, torch=torch
        )
        return [replace(checks[0], seconds=float(document["seconds"])), *checks[1:]]
    static = [
        kernels.isa_unused(got.static, flags, None),
        kernels.symbols(got.static, torch),
    ]
    if first.broken_stage == "kernels":
        if (first.good("platform") or {}).get("stop"):
            return static
        return [broken("kernels.library", first, "kernels"), *static]
    return static


def judge_words(got: Gathered, target: Target, selection: Selection, tell: Say) -> None:
    """Run the second process when the first did its part; judge what there is."""
    if not selection.any("words") or got.first is None:
        return
    wanted = [
        stage
        for stage, id_ in zip(
            SECOND_WORDS, ("words.second_process", "words.bfloat16_logprobs"), strict=True
        )
        if selection.wants(id_)
    ]
    if wanted and got.first.broken_stage is None:
        tell("the same in a second process, and in bfloat16")
        got.second = target.run(wanted, name="second", timeout=WORDS_SECONDS)
    for answer in (got.first, got.second):
        stage = answer.broken_stage if answer is not None else None
        if answer is not None and stage in BLAMED and not stopped(answer):
            got.checks.append(broken(BLAMED[stage], answer, stage))
    got.checks += word_checks(got)


BLAMED = {
    "reference": "words.tokenizer",
    "eager": "words.greedy_float32",
    "compiled": "words.compiled",
    "second": "words.second_process",
    "bfloat16": "words.bfloat16_logprobs",
}


def stopped(answer: Answer) -> bool:
    """Whether the process ended early on purpose."""
    return any(d.get("stop") for d in answer.documents.values())


def word_checks(got: Gathered) -> list[Check]:
    """Judge the documents that are there."""
    reference, eager = got.good("reference"), got.good("eager")
    compiled, second, bf16 = got.good("compiled"), got.good("second"), got.good("bfloat16")
    checks: list[Check] = []
    if reference and eager:
        checks += [
            words.tokenizer(reference, eager),
            replace(words.greedy(reference, eager), seconds=float(eager["seconds"])),
            words.batch(eager),
            words.prefix_cache(eager),
        ]
    if eager and compiled:
        checks.append(replace(words.compiled(eager, compiled), seconds=float(compiled["seconds"])))
    if compiled and second:
        checks.append(replace(words.second(compiled, second), seconds=float(second["seconds"])))
    if bf16:
        checks.append(replace(words.bfloat16(bf16), seconds=float(bf16["seconds"])))
    return checks


def judge_change(
    got: Gathered,
    selection: Selection,
    receipt: Mapping[str, Any] | None,
    environ: Mapping[str, str],
) -> None:
    """What differs from the receipt; words and speed where the first process gave them."""
    record = (identity.owner(got.identity) or {}).get("record") or {}
    checks = [
        change.host(receipt, change.host_now(environ)),
        change.packages(receipt, got.identity["packages"]),
        change.library(receipt, got.files, record.get("hashes") or {}),
    ]
    answer = words.smoke(got.good("reference"), got.good("eager"))
    if answer is not None:
        checks += [change.answers(receipt, answer), change.speed(receipt, answer)]
    elif receipt is not None and got.first is not None:
        stage = got.first.broken_stage
        if stage in BLAMED and not stopped(got.first):
            checks.append(broken("change.answers", got.first, stage))
    got.checks += [c for c in checks if selection.wants(c.id)]


def find_model(
    got: Gathered, target: Target, selection: Selection, tell: Say, *, model: Path | str | None
) -> Path | None:
    """Where the model lies, its files and size judged at once; None: there is nothing to ask."""
    if not selection.any("model") or model is None:
        return None
    tell(f"the model {model}")
    located = hub.locate(model, target)
    got.checks += (checks := realmodel.before(located, realmodel.usable_memory()))
    return None if any(c.status == "fail" for c in checks) else located.folder


def judge_extra(
    got: Gathered, target: Target, selection: Selection, tell: Say, *, model: Path | None
) -> None:
    """The server and a real model, when asked for."""
    reference = got.good("reference")
    if selection.any("server") and reference is not None and reference["prompts"]:
        from cpubuild.verify.server import verify_server

        tell("vllm serve, with a key, on a free loopback port")
        got.checks += verify_server(target, reference, str(got.identity["python"]["scripts"]))
    if model is None or not selection.wants("model.answers"):
        return
    if platform.answer(got.good("platform")).is_cpu:
        tell(f"questions to the model in {model}")
        got.checks.append(realmodel.ask(model, target))


def assemble(
    got: Gathered, target: Target, selection: Selection, *, level: Level, seconds: float
) -> VerifyReport:
    """Order the checks, add those that were not reached, decide."""
    have = {c.id: c for c in got.checks}
    blocking = next((c for c in got.checks if c.status == "fail"), None)
    reason = f"not reached: {blocking.summary}" if blocking else "not reached"
    checks = tuple(
        have.get(id_) or Check(id=id_, status="skip", summary=reason)
        for id_ in knowledge.checks()
        if selection.wants(id_)
    )
    unproved = tuple(
        c.id
        for c in checks
        if knowledge.checks()[c.id].required and c.status in ("skip", "unknown")
    )
    bad = any(c.status == "fail" for c in checks) or bool(unproved)
    return VerifyReport(
        verdict="fail" if bad else "pass",
        level=level,
        target=str(target.python),
        folder=str(target.folder),
        checks=checks,
        seconds=seconds,
        vllm=identity.answer(got.identity),
        platform=platform.answer(got.good("platform")),
        kernels=replace(kernels.answer(got.good("kernels"), got.static), files=got.files),
        smoke=words.smoke(got.good("reference"), got.good("eager")),
        unproved=unproved,
    )


EMPTY: dict[str, Any] = {
    "distributions": [],
    "version": {"value": None, "error": None},
    "module": {"origin": None},
    "torch": {},
    "packages": [],
}


def host_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The CPU's flags as the kernel shows them; empty when it does not."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()
