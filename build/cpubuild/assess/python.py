"""Judgements about Python interpreters and the pins of torch."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet

from cpubuild.assess.base import Context, fine, state
from cpubuild.assess.ways import install_line
from cpubuild.choose.levels import version_of
from cpubuild.choose.pythons import asked_for, best, in_range, minor
from cpubuild.errors import ExitCode
from cpubuild.facts.model import Interpreter
from cpubuild.findings import Finding, Status
from cpubuild.system import interpreter_names, names_for, pythons_of


def chosen(ctx: Context) -> Interpreter | None:
    """The interpreter a build takes in this context."""
    pythons = ctx.facts.interpreters
    if ctx.needs.python:
        return asked_for(pythons, ctx.needs.python)
    return best(pythons, ctx.release)


def ways(ctx: Context) -> tuple[str, ...]:
    """Ways to an interpreter in the release's range."""
    allowed = SpecifierSet(ctx.release.python)
    own = [v for v in pythons_of(ctx.facts.distro) if allowed.contains(f"{v}.99")]
    lines = [
        f"{install_line(ctx, interpreter_names(ctx.facts.distro, v))}  # {ctx.facts.distro.pretty}"
        for v in own[:1]
    ]
    newest = [v for v in ("3.12", "3.11", "3.13", "3.10") if allowed.contains(f"{v}.99")]
    lines += [f"uv python install {v}  # from GitHub, with headers" for v in newest[:1]]
    return tuple(lines)


def in_words(pythons: tuple[Interpreter, ...]) -> str:
    """The interpreters of a host in words."""
    return ", ".join(dict.fromkeys(p.version for p in pythons)) or "none"


def python_range(ctx: Context) -> Iterator[Finding]:
    """An interpreter that the release accepts."""
    needed, pythons = f"CPython {ctx.release.python}", ctx.facts.interpreters
    python = chosen(ctx)
    evidence = tuple(f"{p.version} {p.implementation} {p.path}" for p in pythons)
    if python is not None and in_range(python, ctx.release):
        yield fine(
            "python.range", f"{python.version} ({python.path})", needed=needed, evidence=evidence
        )
        return
    if python is not None:
        found = f"{python.version} ({python.implementation}) was asked for"
    elif ctx.needs.python:
        found = f"{ctx.needs.python} was asked for; here: {in_words(pythons)}"
    else:
        found = in_words(pythons)
    other = best(pythons, ctx.release)
    remedy = ways(ctx)
    if ctx.needs.python and other is not None:
        remedy = (f"--python {other.path}", *remedy)
    yield state(
        "python.range",
        Status.BLOCKER,
        found,
        needed=needed,
        why=f"{ctx.release.version} names this range; pip refuses to install it elsewhere.",
        exit_code=ExitCode.SETTINGS if ctx.needs.python else ExitCode.PREREQUISITE,
        remedy=remedy,
        evidence=evidence,
    )


def headers(ctx: Context) -> Iterator[Finding]:
    """Python.h of the interpreter the extension is compiled for."""
    python = chosen(ctx)
    if python is None or not in_range(python, ctx.release):
        return
    if python.headers:
        yield fine("python.headers", f"Python.h of {python.version}")
        return
    names = names_for(ctx.facts.distro, "python_headers", python=minor(python.version))
    line = install_line(ctx, names)
    yield state(
        "python.headers",
        Status.BLOCKER if ctx.needs.source else Status.WARN,
        f"{python.path} has no Python.h",
        needed="Python.h",
        why="CMake stops with: Unable to find python matching, or Could NOT find Python "
        "(missing: Python_INCLUDE_DIRS). torch.compile needs it too when vLLM runs.",
        remedy=tuple(filter(None, (line, *ways(ctx)[-1:]))),
    )


def venv(ctx: Context) -> Iterator[Finding]:
    """Whether the interpreter can make an environment with pip."""
    python = chosen(ctx)
    if python is None or not in_range(python, ctx.release):
        return
    if python.venv:
        yield fine("python.venv", "ensurepip is there")
        return
    names = names_for(ctx.facts.distro, "python_venv", python=minor(python.version))
    yield state(
        "python.venv",
        Status.WARN,
        f"{python.path} has no ensurepip",
        why="Only the pip back end needs it; uv makes environments without it.",
        remedy=tuple(filter(None, (install_line(ctx, names), "use the uv back end"))),
    )


def torch(ctx: Context) -> Iterator[Finding]:
    """The torch pins of the tree, which old releases state twice and differently."""
    release = ctx.release
    run = version_of(release.torch)
    pins = {
        "requirements at run time": release.torch,
        "build requirements": release.torch_build,
        "pyproject.toml": release.torch_project,
    }
    evidence = tuple(f"{name}: {pin}" for name, pin in pins.items() if pin)
    others = [version_of(pin) for pin in (release.torch_build, release.torch_project) if pin]
    differ = [str(pin) for pin in others if pin and run and pin.public != run.public]
    if run is None:
        yield state("python.torch", Status.UNKNOWN, "no torch pin could be read", evidence=evidence)
    elif differ:
        yield state(
            "python.torch",
            Status.WARN,
            f"run-time pin {release.torch}, elsewhere {', '.join(differ)}",
            needed="one torch for building and running",
            why="A build with isolation compiles against the other one and ends with undefined "
            "symbols, or brings a CUDA torch; here the run-time pin is used for both.",
            remedy=("pip install --no-build-isolation  # with the run-time pin installed first",),
            evidence=evidence,
        )
    else:
        yield fine("python.torch", release.torch, evidence=evidence)


JUDGES = (python_range, headers, venv, torch)
