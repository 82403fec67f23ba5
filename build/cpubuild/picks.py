"""The single choices of a run: interpreter, torch, oneDNN, compiler, each with its reason."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

from packaging.version import Version

from cpubuild import jsonio
from cpubuild.choose import compilers, pythons
from cpubuild.errors import CpuBuildError, ExitCode, Problem, fail
from cpubuild.facts.model import Compiler, HostFacts, Interpreter
from cpubuild.plan import Choice
from cpubuild.release import Release
from cpubuild.settings import Settings
from cpubuild.sources import Rejected
from cpubuild.sources.onednn import OnednnChoice, choose_onednn, recorded
from cpubuild.sources.pipconfig import PipConfig, redact
from cpubuild.sources.torch import (
    TorchChoice,
    TorchMissing,
    python_tag_of,
    pythons_with_torch,
)
from cpubuild.sources.vllm import VllmChoice
from cpubuild.state import State


@dataclass(frozen=True, kw_only=True, slots=True)
class Picks:
    """What one run takes; ``onednn`` is None where the tree fetches its own, or wants none."""

    vllm: VllmChoice
    tree: Path
    release: Release
    interpreter: Interpreter
    torch: TorchChoice
    onednn: OnednnChoice | None
    compiler: Compiler


def pick(
    vllm: VllmChoice,
    tree: Path,
    release: Release,
    *,
    settings: Settings,
    facts: HostFacts,
    config: PipConfig,
    state: State,
) -> Picks:
    """Make every choice; problems of several choices are raised together."""
    problems: list[Problem] = []
    compiler = interpreter = onednn = None
    try:
        compiler = pick_compiler(facts, release, settings)
    except CpuBuildError as error:
        problems += error.problems
    try:
        interpreter, torch = pick_python(release, settings, facts, config, state)
    except CpuBuildError as error:
        problems += error.problems
    try:
        onednn = pick_onednn(release, settings, facts, state)
    except CpuBuildError as error:
        problems += error.problems
    if problems or compiler is None or interpreter is None:
        raise CpuBuildError(*problems)
    return Picks(
        vllm=vllm,
        tree=tree,
        release=release,
        interpreter=interpreter,
        torch=torch,
        onednn=onednn,
        compiler=compiler,
    )


def pick_compiler(facts: HostFacts, release: Release, settings: Settings) -> Compiler:
    """The compiler to build with; PREREQUISITE if none on this host works."""
    compiler = compilers.choose_compiler(facts, release, cxx=settings.cxx)
    if compiler is None and settings.cxx is not None:
        raise fail(
            ExitCode.SETTINGS,
            f"{settings.origin('cxx')} {settings.cxx}: there is no such compiler here",
            why="found: " + (", ".join(c.path for c in facts.compilers) or "none"),
            remedy=tuple(f"--cxx {c.path}" for c in facts.compilers if c.works),
        )
    if compiler is None or not compiler.works:
        raise fail(
            ExitCode.SETTINGS if compiler and settings.cxx else ExitCode.PREREQUISITE,
            "no C++ compiler on this host can compile anything"
            if compiler is None
            else f"{compiler.path} cannot compile: {compiler.failure}",
            why="vLLM is built from source",
            remedy=("cpubuild check --only toolchain   # lists what to install here",),
        )
    return compiler


def pick_python(
    release: Release, settings: Settings, facts: HostFacts, config: PipConfig, state: State
) -> tuple[Interpreter, TorchChoice]:
    """The interpreter and the torch for it.

    Without a wish: of those the release accepts and that have headers, the newest for which the
    pinned CPU torch can be had here.
    """
    if settings.python is not None:
        wanted = asked_interpreter(
            settings.python, release, facts, origin=settings.origin("python")
        )
        candidates = [wanted]
    else:
        fitting = [p for p in facts.interpreters if pythons.in_range(p, release) and p.headers]
        candidates = sorted(fitting, key=lambda p: Version(p.version), reverse=True)
    if not candidates:
        raise fail(
            ExitCode.PREREQUISITE,
            f"no Python {release.python} with headers is on this host",
            why=f"vLLM {release.version} builds for these; found: {found_pythons(facts)}",
            remedy=("cpubuild check --only python   # lists what to install here",),
        )
    answers = pythons_with_torch(
        release.torch,
        candidates,
        arch=release.arch,
        glibc=facts.libc.version if facts.libc.name == "glibc" else None,
        config=config,
        offline=settings.offline,
    )
    for interpreter, answer in answers:
        if isinstance(answer, TorchChoice):
            jsonio.write(kept_torch(state, interpreter, release), answer)
            return interpreter, answer
    for interpreter, _ in answers:
        kept = remembered(kept_torch(state, interpreter, release))
        if kept is not None:
            return interpreter, kept
    raise no_torch(release, tuple((i, a) for i, a in answers if isinstance(a, TorchMissing)))


def kept_torch(state: State, interpreter: Interpreter, release: Release) -> Path:
    """Where the torch found for an interpreter is remembered, for a run without a network."""
    return state.cache / f"torch-{release.torch}-{python_tag_of(interpreter)}.json"


def remembered(path: Path) -> TorchChoice | None:
    """The torch found before; None where nothing is remembered, or by another version's shape."""
    with contextlib.suppress(CpuBuildError, KeyError, TypeError):
        kept = jsonio.read(path) or {}
        reason = f"found before (it is not found now): {kept['reason']}"
        return TorchChoice(**(kept | {"reason": reason, "rejected": ()}))
    return None


def asked_interpreter(
    wanted: str, release: Release, facts: HostFacts, *, origin: str = "--python"
) -> Interpreter:
    """The interpreter that was asked for; SETTINGS if there is none such, or it does not fit."""
    found = pythons.asked_for(facts.interpreters, wanted)
    if found is not None and pythons.in_range(found, release):
        return found
    what = (
        f"{origin} {wanted}: there is no such interpreter here"
        if found is None
        else f"{origin} {wanted} is {found.implementation} {found.version}; "
        f"vLLM {release.version} wants {release.python}"
    )
    raise fail(
        ExitCode.SETTINGS,
        what,
        why=f"found: {found_pythons(facts)}",
        remedy=tuple(
            f"--python {p.path}" for p in facts.interpreters if pythons.in_range(p, release)
        )
        or ("install an interpreter in that range",),
    )


def found_pythons(facts: HostFacts) -> str:
    """The interpreters of the host in words."""
    return ", ".join(f"{p.version} ({p.path})" for p in facts.interpreters) or "none"


def no_torch(
    release: Release, missing: tuple[tuple[Interpreter, TorchMissing], ...]
) -> CpuBuildError:
    """The DOWNLOAD error for a pinned torch that cannot be had for any interpreter."""
    names = ", ".join(pythons.minor(i.version) for i, _ in missing)
    remedies = [*missing[0][1].remedy, "--vllm latest   # the newest whose torch can be had here"]
    return fail(
        ExitCode.DOWNLOAD,
        f"torch {release.torch} cannot be had here as a CPU build",
        why=f"vLLM {release.version} pins it, and for none of Python {names} it is there: "
        f"{missing[0][1].why}",
        remedy=tuple(dict.fromkeys(remedies)),
    )


def pick_onednn(
    release: Release, settings: Settings, facts: HostFacts, state: State
) -> OnednnChoice | None:
    """Where oneDNN comes from; None if the tree wants none or cannot be handed one."""
    if release.onednn_tag is None or not release.onednn_local_source:
        return None
    kept = None if settings.onednn else recorded(release.onednn_tag, state.sources)
    return kept or choose_onednn(
        release.onednn_tag,
        distro=facts.distro,
        folder=state.sources,
        directory=settings.onednn,
        offline=settings.offline,
    )


def as_choices(picks: Picks) -> tuple[Choice, ...]:
    """The picks in the one shape that plan and receipt show."""
    vllm, torch, onednn, compiler = picks.vllm, picks.torch, picks.onednn, picks.compiler
    rows = [
        Choice(
            what="vllm",
            taken=f"{picks.release.version} from {vllm.kind}: "
            f"{vllm.filename or vllm.ref or vllm.path}",
            reason=vllm.reason,
            rejected=refusals(vllm.rejected),
            warnings=(vllm.warning,) if vllm.warning else (),
            record=identity(vllm, "kind", "version", "ref", "commit", "url", "sha256", "path"),
        ),
        Choice(
            what="torch",
            taken=f"{torch.version}: {torch.filename}",
            reason=torch.reason,
            rejected=refusals(torch.rejected),
            record=identity(torch, "version", "filename", "origin", "sha256"),
        ),
        Choice(
            what="python",
            taken=f"{picks.interpreter.version}: {picks.interpreter.path}",
            reason=f"in the range {picks.release.python}, with headers, and torch is had for it",
            record={"path": picks.interpreter.path, "version": picks.interpreter.version},
        ),
        Choice(
            what="compiler",
            taken=f"{compiler.kind} {compiler.version}: {compiler.path}",
            reason="the best that works here"
            if compilers.meets_floor(compiler, picks.release)
            else f"below the release's floor {picks.release.gcc_floor}, but its probes passed",
            record={"path": compiler.path, "version": compiler.version, "target": compiler.target},
        ),
    ]
    if onednn is not None:
        rows.append(
            Choice(
                what="onednn",
                taken=f"{onednn.version} from {onednn.kind}: "
                f"{onednn.package or onednn.url or onednn.path}",
                reason=onednn.reason,
                rejected=refusals(onednn.rejected),
                warnings=(onednn.warning,) if onednn.warning else (),
                record=identity(
                    onednn, "kind", "tag", "version", "package", "suite", "commit", "files", "key"
                ),
            )
        )
    return tuple(rows)


def refusals(rejected: Iterable[Rejected]) -> tuple[str, ...]:
    """What was not taken, each as one sentence without secrets."""
    return tuple(redact(f"{r.what}: {r.why}") for r in rejected)


def identity(choice: VllmChoice | TorchChoice | OnednnChoice, *names: str) -> dict[str, object]:
    """The fields that identify what was taken, secrets left out."""
    values = asdict(choice)
    return {
        n: redact(v) if isinstance(v := values[n], str) else v
        for n in names
        if values[n] is not None
    }


def kept_objects(onednn: OnednnChoice | None) -> str | None:
    """The list of sources that the linker keeps of this oneDNN, None where none is recorded."""
    if onednn is None or onednn.version is None:
        return None
    name = f"{onednn.version.removeprefix('v')}.txt"
    file = resources.files("cpubuild").joinpath("data", "onednn", name)
    return file.read_text(encoding="utf-8") if file.is_file() else None


def content(text: str | None) -> str | None:
    """The first sixteen hex digits of a text's fingerprint."""
    return None if text is None else jsonio.fingerprint(text)[:16]
