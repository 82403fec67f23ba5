"""Packages of the operating system: which a build lacks here, and how to install them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cpubuild.choose.compilers import choose_compiler, meets_floor
from cpubuild.choose.levels import version_of
from cpubuild.choose.pythons import headers_wanted, in_range, minor
from cpubuild.choose.tables import table
from cpubuild.facts.model import Distro, HostFacts
from cpubuild.release import Release


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """What to install for one need: ``names`` in the distribution's words, and why.

    ``required`` is False for what a build goes well without. ``repository`` names one outside
    the distribution's own, which is never added by this tool.
    """

    need: str
    names: tuple[str, ...]
    reason: str
    required: bool = True
    repository: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CompilerPackage:
    """A C++ compiler that a distribution release really has."""

    version: str
    packages: tuple[str, ...]
    gxx: str
    enable: str | None = None
    repository: str | None = None
    note: str = ""


def canonical(distro: Distro) -> tuple[str, str]:
    """The distribution id and release that the tables know, aliases resolved."""
    release = distro.version
    for row in table("packages.toml")["alias"]:
        if row["distro"] == distro.id and same_release(release, row["release"]):
            return row["as"][0], row["as"][1]
    return distro.id, release


def same_release(version: str, wanted: str) -> bool:
    """Whether ``version`` (9.6) is of release ``wanted`` (9); an empty ``wanted`` takes all."""
    return not wanted or version == wanted or version.startswith(wanted + ".")


def compilers_of(distro: Distro) -> tuple[CompilerPackage, ...]:
    """The compilers of this distribution release, preferred first; empty when it is not known."""
    name, release = canonical(distro)
    return tuple(
        CompilerPackage(
            version=row["version"],
            packages=tuple(row["packages"]),
            gxx=row["gxx"],
            enable=row.get("enable"),
            repository=row.get("repo"),
            note=row.get("note", ""),
        )
        for row in table("packages.toml")["compiler"]
        if name in row["distro"] and same_release(release, row["release"])
    )


def newer_compilers(distro: Distro, floor: str | None) -> tuple[CompilerPackage, ...]:
    """Those of the release that are not below ``floor``, the release's own before others'."""
    fitting = [
        row
        for row in compilers_of(distro)
        if floor is None or Version(row.version) >= Version(floor)
    ]
    return tuple(sorted(fitting, key=lambda row: row.repository is not None))


def pythons_of(distro: Distro) -> tuple[str, ...]:
    """Python minor versions that this distribution release packages; empty when not known."""
    name, release = canonical(distro)
    for row in table("packages.toml")["python"]:
        if name in row["distro"] and same_release(release, row["release"]):
            return tuple(row["versions"])
    return ()


def names_for(distro: Distro, need: str, *, python: str | None = None) -> tuple[str, ...]:
    """The package names of one need here; empty when this distribution has none.

    ``python`` is the minor version (3.11) that the python needs are asked for.
    """
    rows = name_row(distro)
    names = rows.get(need, ())
    default = (pythons_of(distro) or ("",))[0]
    if need == "python_headers" and python == default:
        names = rows.get("python_headers_default", names)
    return tuple(
        name.format(minor=python or "3", compact=(python or "3").replace(".", "")) for name in names
    )


def name_row(distro: Distro) -> Mapping[str, Any]:
    """The names of the family with the exceptions of this release laid over them."""
    name, release = canonical(distro)
    rows = dict(table("packages.toml")["family"].get(distro.family, {}))
    here = version_of(release)
    for row in table("packages.toml")["override"]:
        if name not in row["distro"] or here is None or here < Version(row["from"]):
            continue
        if "to" in row and here.major > Version(row["to"]).major:
            continue
        rows |= row
    return rows


def missing_packages(facts: HostFacts, release: Release) -> tuple[Package, ...]:
    """Packages that this release needs or is better with and that the host lacks.

    What is unknown (not tried) is not asked for. Names are those of the host's distribution;
    nothing is returned for one whose names are not known.
    """
    lacking = {
        "numa_header": facts.libraries.numa_header is False or facts.libraries.numa_link is False,
        "numa_runtime": facts.libraries.numa_runtime is None,
        "git": absent(facts, "git"),
        "lscpu": absent(facts, "lscpu"),
        "tcmalloc": facts.libraries.tcmalloc is None,
        "ccache": absent(facts, "ccache"),
    }
    found = [compiler_package(facts, release)]
    found += [package(facts.distro, need) for need, lacks in lacking.items() if lacks]
    found += list(python_packages(facts, release))
    return tuple(p for p in found if p is not None and p.names)


def absent(facts: HostFacts, tool: str) -> bool:
    """Whether a program was looked for and is not there."""
    return any(entry.name == tool and entry.path is None for entry in facts.tools)


def package(distro: Distro, need: str, *, python: str | None = None) -> Package:
    """The package of one need, with the table's reason."""
    row = table("packages.toml")["need"][need]
    return Package(
        need=need,
        names=names_for(distro, need, python=python),
        reason=row["reason"],
        required=row["required"],
    )


def compiler_package(facts: HostFacts, release: Release) -> Package | None:
    """The compiler to install: none when the host has one that serves.

    Below the floor it is asked for where the distribution release has a newer one; required
    only when the host has no compiler that works.
    """
    compiler = choose_compiler(facts, release)
    working = compiler is not None and compiler.works
    if compiler is not None and working and meets_floor(compiler, release) is not False:
        return None
    reason = table("packages.toml")["need"]["cxx"]["reason"]
    newer = [r for r in newer_compilers(facts.distro, release.gcc_floor) if not r.repository]
    if newer:
        return Package(
            need="cxx",
            names=newer[0].packages[:1],
            reason=f"{reason}; g++ {newer[0].version}",
            required=not working,
        )
    if working:
        return None
    return package(facts.distro, "cxx")


def python_packages(facts: HostFacts, release: Release) -> Iterable[Package]:
    """Interpreter and headers, when no interpreter in range has both."""
    fitting = [p for p in facts.interpreters if in_range(p, release)]
    if any(p.headers for p in fitting):
        return
    if fitting:
        if headers_wanted(fitting[0]):
            yield package(facts.distro, "python_headers", python=minor(fitting[0].version))
        return
    allowed = SpecifierSet(release.python)
    usable = [v for v in pythons_of(facts.distro) if allowed.contains(f"{v}.99")]
    if usable:
        names = interpreter_names(facts.distro, usable[0])
        reason = f"Python {usable[0]}: " + table("packages.toml")["need"]["python"]["reason"]
        yield Package(need="python", names=names, reason=reason)


def interpreter_names(distro: Distro, version: str) -> tuple[str, ...]:
    """Packages of one Python minor version with its headers and venv."""
    base = f"python{version.replace('.', '')}" if distro.family == "zypper" else f"python{version}"
    if distro.family == "pacman":
        base = "python"
    rest = (names_for(distro, need, python=version) for need in ("python_headers", "python_venv"))
    return tuple(dict.fromkeys((base, *(name for names in rest for name in names))))


def install_command(
    distro: Distro, packages: Iterable[Package | str], *, root: bool
) -> tuple[tuple[str, ...], ...]:
    """The commands that install ``packages`` without asking; empty for an unknown family.

    ``sudo`` is put before each when ``root`` is False. Packages that need a foreign repository
    are left out.
    """
    names: dict[str, None] = {}
    for entry in packages:
        if isinstance(entry, str):
            names[entry] = None
        elif entry.repository is None:
            names.update(dict.fromkeys(entry.names))
    rows = table("packages.toml")["install"].get(distro.family)
    if not names or rows is None:
        return ()
    before = () if root else ("sudo",)
    commands: list[tuple[str, ...]] = []
    if "refresh" in rows:
        commands.append((*before, *rows["refresh"]))
    commands.append((*before, *rows["install"], *names))
    return tuple(commands)


def one_line(commands: Iterable[Iterable[str]]) -> str:
    """Commands as one line that a person can paste."""
    return " && ".join(shlex.join(command) for command in commands)
