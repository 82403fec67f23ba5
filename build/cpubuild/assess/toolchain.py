"""Judgements about compilers and build tools."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from cpubuild.assess import asked
from cpubuild.assess.base import Context, fine, state
from cpubuild.assess.ways import need_line, newer_gxx, ways_out
from cpubuild.choose.compilers import (
    capable,
    choose_compiler,
    find,
    meets_floor,
    missing_options,
)
from cpubuild.choose.levels import level_words, required_options, version_of
from cpubuild.choose.tables import needs_table
from cpubuild.choose.wheels import wheel_option
from cpubuild.errors import ExitCode
from cpubuild.facts.compilers import named_program
from cpubuild.facts.model import Compiler
from cpubuild.findings import Finding, Status


def chosen(ctx: Context) -> Compiler | None:
    """The compiler a build takes in this context."""
    return choose_compiler(ctx.facts, ctx.release, cxx=ctx.needs.cxx)


def describe(compiler: Compiler) -> str:
    """A compiler in words."""
    name = {"gnu": "g++", "clang": "clang++"}.get(compiler.kind, "a compiler")
    return f"{name} {compiler.version or 'of unknown version'} ({compiler.path})"


def gxx(ctx: Context) -> Iterator[Finding]:
    """The compiler that a build will take, against the release's floor."""
    compiler = chosen(ctx)
    floor = ctx.release.gcc_floor
    needed = f"g++ {floor} or newer" if floor else f"a C++{ctx.release.cxx_standard} compiler"
    if compiler is None or not compiler.works:
        yield no_compiler(ctx, compiler, needed)
        return
    evidence = tuple(describe(c) for c in ctx.facts.compilers)
    accepted = meets_floor(compiler, ctx.release)
    if accepted is True:
        yield fine("toolchain.gxx", describe(compiler), needed=needed, evidence=evidence)
        return
    if accepted is None:
        yield state(
            "toolchain.gxx",
            Status.UNKNOWN,
            describe(compiler),
            needed=needed,
            why="The compiler does not say its version, so CMake's answer cannot be foreseen.",
            remedy=newer_gxx(ctx),
            evidence=evidence,
        )
        return
    yield below_floor(ctx, compiler, needed, evidence)


def below_floor(
    ctx: Context, compiler: Compiler, needed: str, evidence: tuple[str, ...]
) -> Finding:
    """The finding for a compiler that works and is older than the release wants."""
    passes = capable(compiler, ctx.release, ctx.facts.cpu) and compiler.kind == "gnu"
    if not ctx.release.gcc_fatal:
        why = "CMake only warns and leaves BF16, VNNI and AMX out: slower on CPUs that have them."
        status = Status.WARN
    elif passes:
        why = (
            "CMake would stop; the probe compiles passed with everything this host needs, so the "
            "build lowers the floor by a patch."
        )
        status = Status.WARN
    else:
        why = "CMake stops below this version, and the probe compiles show that a patch is no way."
        status = Status.BLOCKER
    return state(
        "toolchain.gxx",
        status,
        describe(compiler),
        needed=needed,
        why=why,
        remedy=(*asked.instead(ctx), *ways_out(ctx, compiler)),
        evidence=evidence,
        exit_code=asked.code(ctx),
    )


def no_compiler(ctx: Context, compiler: Compiler | None, needed: str) -> Finding:
    """The finding for a host without a compiler that works."""
    wish = asked.in_words(ctx)
    if compiler is not None:
        failure = compiler.failure or "no reason given"
        found = f"{wish or describe(compiler)} compiles nothing: {failure}"
    elif wish:
        found = f"{wish} is not a program that can be run here"
    else:
        found = "no C++ compiler"
    why = "vLLM's kernels are compiled here, and torch.compile compiles again when vLLM runs."
    remedy = asked.instead(ctx) or newer_gxx(ctx)
    wheel = wheel_option(ctx.facts, ctx.release)
    return state(
        "toolchain.gxx",
        Status.BLOCKER if ctx.needs.source else Status.WARN,
        found,
        needed=needed,
        why=why,
        remedy=(*remedy, wheel) if wheel and ctx.needs.source and not wish else remedy,
        evidence=(compiler.failure,) if compiler and compiler.failure else (),
        exit_code=asked.code(ctx),
    )


def cxx20(ctx: Context) -> Iterator[Finding]:
    """Whether the compiler speaks the release's C++."""
    compiler, standard = chosen(ctx), ctx.release.cxx_standard
    if compiler is None or not compiler.works:
        return
    if standard < 20 or compiler.cxx20:
        yield fine("toolchain.cxx20", f"C++{standard} compiles", needed=f"C++{standard}")
        return
    yield state(
        "toolchain.cxx20",
        Status.BLOCKER,
        f"{describe(compiler)}: <concepts> does not compile",
        needed=f"C++{standard}",
        why=f"{ctx.release.version} is written in C++{standard}.",
        remedy=(*asked.instead(ctx), *newer_gxx(ctx)),
        exit_code=asked.code(ctx),
    )


def options(ctx: Context) -> Iterator[Finding]:
    """Whether the compiler takes the options of this host's target."""
    compiler, cpu = chosen(ctx), ctx.facts.cpu
    wanted = required_options(ctx.release, cpu)
    if compiler is None or not compiler.works or not wanted:
        return
    refused, untried = missing_options(compiler, ctx.release, cpu)
    evidence = tuple(f"{k}: {'compiles' if v else 'refused'}" for k, v in compiler.options)
    needed, words = " ".join(wanted), level_words(cpu)
    if refused:
        yield state(
            "toolchain.options",
            Status.BLOCKER,
            f"{describe(compiler)} refuses {' '.join(refused)}",
            needed=needed,
            why=f"The library for this CPU ({words}) is compiled with it.",
            remedy=(*asked.instead(ctx), *ways_out(ctx, compiler)),
            evidence=evidence,
            exit_code=asked.code(ctx),
        )
    elif untried:
        yield state(
            "toolchain.options",
            Status.UNKNOWN,
            f"{' '.join(untried)} was not tried",
            needed=needed,
            why="Only a probe compile can tell.",
            evidence=evidence,
        )
    else:
        yield fine("toolchain.options", f"compiles for {words}", needed=needed, evidence=evidence)


def agree(ctx: Context) -> Iterator[Finding]:
    """Whether the C compiler beside the C++ compiler is of the same version."""
    compiler, asked = chosen(ctx), ctx.env("CC")
    if compiler is None or not compiler.works:
        return
    partner = find(ctx.facts.compilers, partner_name(named_program(asked) or "")) if asked else None
    if partner is not None and partner.version != compiler.version:
        yield state(
            "toolchain.cc",
            Status.WARN,
            f"CC={asked} is of {partner.version}, {compiler.path} of {compiler.version}",
            needed="gcc and g++ of one version",
            why="CMake compiles oneDNN's C parts with one and vLLM with the other.",
            remedy=(f"export CC={compiler.cc or 'gcc'} CXX={compiler.path}",),
        )
    elif compiler.cc is None and asked is None:
        yield state(
            "toolchain.cc",
            Status.WARN,
            f"no C compiler beside {compiler.path}",
            needed="gcc of the same version",
            why="CMake asks for a C compiler too.",
            remedy=need_line(ctx, "cxx"),
        )
    else:
        yield fine("toolchain.cc", asked or compiler.cc or "")


def partner_name(cc: str) -> str:
    """The C++ program that belongs to a C compiler: gcc-12 -> g++-12, clang -> clang++."""
    folder, slash, name = cc.rpartition("/")
    if "clang" in name:
        return f"{folder}{slash}{name.replace('clang', 'clang++')}"
    return f"{folder}{slash}{name.replace('gcc', 'g++')}"


def git(ctx: Context) -> Iterator[Finding]:
    """Git fetches sources and applies patches."""
    tool = ctx.facts.tool("git")
    if tool is not None:
        yield fine("toolchain.git", f"git {tool.version or ''} ({tool.path})")
        return
    looked = any(t.name == "git" for t in ctx.facts.tools)
    yield state(
        "toolchain.git",
        Status.BLOCKER if looked else Status.UNKNOWN,
        "no git" if looked else "not looked for",
        why="Sources are fetched and the patch series is applied with git.",
        remedy=need_line(ctx, "git"),
    )


def cmake(ctx: Context) -> Iterator[Finding]:
    """The host's own cmake, which a build by hand would meet first."""
    tool, least = ctx.facts.tool("cmake"), needs_table()["tools"]["cmake"]
    ours = "the build environment brings its own, first on PATH"
    if tool is None:
        yield fine("toolchain.cmake", f"none; {ours}")
        return
    here = version_of(tool.version or "")
    if here is not None and here < Version(least):
        yield state(
            "toolchain.cmake",
            Status.OK,
            f"cmake {tool.version} ({tool.path}), below {least}; {ours}",
            needed=f"{least} or newer",
            why=(
                "3.26.0 names the libraries wrongly (_C.so for _C.abi3.so)"
                if here >= Version("3.26")
                else "vLLM's CMake stops below 3.26"
            )
            + "; only a build by hand, without build isolation, takes this one.",
            remedy=(f"pip install 'cmake>={least}'  # for a build by hand",),
        )
        return
    yield fine("toolchain.cmake", f"cmake {tool.version or ''}; {ours}", needed=least)


def ninja(ctx: Context) -> Iterator[Finding]:
    """Ninja comes with the build environment."""
    tool = ctx.facts.tool("ninja")
    there = f"ninja {tool.version or ''}" if tool else "none"
    yield fine("toolchain.ninja", f"{there}; the build environment brings its own")


def rust(ctx: Context) -> Iterator[Finding]:
    """Rust is wanted by some releases for a part that is not needed."""
    if not ctx.release.rust:
        return
    cargo = ctx.facts.tool("cargo")
    if cargo is not None:
        yield fine("toolchain.rust", f"cargo {cargo.version or ''}")
    elif ctx.env("VLLM_REQUIRE_RUST_FRONTEND") not in (None, "0"):
        yield state(
            "toolchain.rust",
            Status.BLOCKER,
            "VLLM_REQUIRE_RUST_FRONTEND is set and there is no cargo",
            needed=f"Rust {ctx.release.rust_toolchain or ''}",
            why="The build was told to stop when it cannot compile the Rust frontend.",
            remedy=("unset VLLM_REQUIRE_RUST_FRONTEND",),
        )
    else:
        yield fine("toolchain.rust", "no cargo: the optional Rust frontend is left out")


def ccache(ctx: Context) -> Iterator[Finding]:
    """A compiler cache, which only saves time."""
    tool = ctx.facts.tool("ccache") or ctx.facts.tool("sccache")
    yield fine(
        "toolchain.ccache",
        tool.path or "" if tool else "none: a second compile takes as long as the first",
    )


def runtime(ctx: Context) -> Iterator[Finding]:
    """Inductor compiles C++ whenever vLLM starts."""
    compiler = chosen(ctx)
    if compiler is not None and compiler.works and ctx.facts.libraries.libgomp is not None:
        yield fine("toolchain.runtime", describe(compiler))
        return
    lacks = "OpenMP (libgomp)" if compiler is not None and compiler.works else "a C++ compiler"
    yield state(
        "toolchain.runtime",
        Status.WARN,
        f"{lacks} was not found",
        needed="g++ with OpenMP for the user who serves",
        why="torch.compile generates and compiles C++ at start, also where nothing was built "
        "(InvalidCxxCompiler, CppCompileError).",
        remedy=(*need_line(ctx, "cxx"), "vllm serve MODEL --enforce-eager  # price: slower"),
        exit_code=ExitCode.PREREQUISITE,
    )


JUDGES = (gxx, agree, cxx20, options, git, cmake, ninja, rust, ccache, runtime)
