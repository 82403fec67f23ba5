"""What a build for one CPU takes of the compiler, and the least that vLLM accepts of a CPU."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from cpubuild.choose.tables import needs_table
from cpubuild.facts.isa import NOT_SUPPORTED, isa_of, level, x86_target
from cpubuild.facts.model import Cpu
from cpubuild.release import Release

UNKNOWN = "unknown"


def flags_known(cpu: Cpu) -> bool:
    """Whether the kernel showed anything to judge by."""
    return bool(cpu.flags)


def level_words(cpu: Cpu) -> str:
    """The CPU's level in words; ``unknown`` where the kernel shows no flags."""
    if not flags_known(cpu) and cpu.arch in needs_table()["least"]:
        return UNKNOWN
    return level(cpu)


def supported(cpu: Cpu) -> bool | None:
    """Whether vLLM has kernels that run on this CPU; None when its flags are not shown."""
    words = level_words(cpu)
    return None if words == UNKNOWN else words != NOT_SUPPORTED


def least(arch: str) -> tuple[str, frozenset[str]] | None:
    """The least an architecture must offer: in words, and as cpuinfo flags."""
    row = needs_table()["least"].get(arch)
    return (row["words"], frozenset(row["flags"])) if row else None


def version_of(text: str | None) -> Version | None:
    """``text`` as a version; None when it is none, or empty."""
    try:
        return Version(text or "")
    except InvalidVersion:
        return None


def among(text: str, specifier: str) -> bool:
    """Whether a release is in ``specifier``; pre-releases and local parts count with their base."""
    version = version_of(text)
    if version is None:
        return False
    return SpecifierSet(specifier).contains(Version(version.base_version), prereleases=True)


def lacks_avx512_library(release: Release) -> bool:
    """Whether the release loads its BF16 library on every AVX512 CPU (0.17)."""
    return "_C_AVX2" in release.targets and "_C_AVX512" not in release.targets


def required_options(release: Release, cpu: Cpu) -> tuple[str, ...]:
    """Compiler options that the library for this CPU is built with and that a compiler may lack."""
    rows = needs_table()["options"]
    if cpu.arch != "x86_64":
        return _fitting(rows.get(cpu.arch, ()), isa_of(cpu))
    target = x86_target(cpu)
    if "_C_AVX2" not in release.targets:
        return _fitting(rows["x86_64_by_flag"], isa_of(cpu))
    if target == "_C" or (target == "_C_AVX512" and lacks_avx512_library(release)):
        return tuple(rows["x86_64_C"])
    return ()


def _fitting(rows: Iterable[dict[str, list[str]]], isa: frozenset[str]) -> tuple[str, ...]:
    """The options of the rows whose sets are there and whose ``unless`` is not."""
    return tuple(
        option
        for row in rows
        if set(row["isa"]) <= isa and not set(row.get("unless", ())) & isa
        for option in row["options"]
    )
