"""Which compiler a build would take, and what it can do of what the release asks."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.version import Version

from cpubuild.choose.levels import required_options, version_of
from cpubuild.facts.compilers import named_program
from cpubuild.facts.model import Compiler, Cpu, HostFacts
from cpubuild.release import Release


def version(compiler: Compiler) -> Version:
    """The compiler's version; 0 when it does not say one."""
    return version_of(compiler.version) or Version("0")


def meets_floor(compiler: Compiler, release: Release) -> bool | None:
    """Whether the release's CMake accepts the compiler; None when it does not say its version.

    Only GNU compilers pass where CMake enforces a floor.
    """
    if release.gcc_floor is None:
        return True
    if compiler.kind == "unknown" or version_of(compiler.version) is None:
        return None
    if compiler.kind != "gnu":
        return not release.gcc_fatal
    return version(compiler) >= Version(release.gcc_floor)


def missing_options(
    compiler: Compiler, release: Release, cpu: Cpu
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Options the compiler refused, and options that were not tried, of those it needs."""
    wanted = required_options(release, cpu)
    refused = tuple(option for option in wanted if compiler.accepts(option) is False)
    untried = tuple(option for option in wanted if compiler.accepts(option) is None)
    return refused, untried


def capable(compiler: Compiler, release: Release, cpu: Cpu) -> bool:
    """Whether probe compiles showed everything that building for this host takes."""
    refused, untried = missing_options(compiler, release, cpu)
    standard = compiler.cxx20 or release.cxx_standard < 20
    return compiler.works and standard and not refused and not untried


def choose_compiler(
    facts: HostFacts, release: Release, *, cxx: str | None = None
) -> Compiler | None:
    """The compiler a build takes: ``cxx``, else $CXX when it is set, else the best there is.

    Best: works, accepted by the floor, capable for this host's level, GNU, then the newest.
    None when the host has none, or when the asked one names one that was not found.
    """
    asked = named_program(cxx or dict(facts.environment).get("CXX", ""))
    if asked:
        return find(facts.compilers, asked)

    def quality(compiler: Compiler) -> tuple[bool, bool, bool, bool, Version]:
        return (
            compiler.works,
            meets_floor(compiler, release) is True,
            capable(compiler, release, facts.cpu),
            compiler.kind == "gnu",
            version(compiler),
        )

    return max(facts.compilers, key=quality, default=None)


def find(compilers: Iterable[Compiler], name: str) -> Compiler | None:
    """The compiler at path ``name``; by its program's name where ``name`` has no folder."""
    return next((c for c in compilers if c.path == name or c.path.rsplit("/", 1)[-1] == name), None)
