"""Ways out of a missing or old compiler or package, in this distribution's words and prices."""

from __future__ import annotations

from packaging.version import Version

from cpubuild.assess.base import Context
from cpubuild.choose.compilers import capable
from cpubuild.choose.known import known_releases
from cpubuild.choose.levels import version_of
from cpubuild.choose.tables import needs_table, table
from cpubuild.choose.wheels import wheel_option
from cpubuild.facts.model import Compiler
from cpubuild.system import (
    compilers_of,
    install_command,
    name_row,
    names_for,
    newer_compilers,
    one_line,
)


def install_line(ctx: Context, names: tuple[str, ...]) -> str:
    """The command that installs packages here, as one line; empty when there is none."""
    root = ctx.facts.container.root
    return one_line(install_command(ctx.facts.distro, names, root=root))


def need_line(ctx: Context, need: str) -> tuple[str, ...]:
    """The remedy for one need of the package table, or words when the names are not known."""
    line = install_line(ctx, names_for(ctx.facts.distro, need))
    if line:
        return (line,)
    note = name_row(ctx.facts.distro).get("note")
    if note:
        return (str(note),)
    called = table("packages.toml")["need"][need]["words"]
    return (f"install {called} with this system's own package tool",)


def newer_gxx(ctx: Context) -> tuple[str, ...]:
    """Ways to a newer g++ on this distribution release, or the sentence that it has none."""
    distro, floor = ctx.facts.distro, ctx.release.gcc_floor
    lines: list[str] = []
    for row in newer_compilers(distro, floor):
        note = f"; {row.note}" if row.note else ""
        if row.repository:
            before = "" if ctx.facts.container.root else "sudo "
            line = (
                f"{before}add-apt-repository -y {row.repository} && "
                f"{install_line(ctx, row.packages[:1])}"
            )
            price = f"g++ {row.version} from {row.repository}, a repository outside {distro.pretty}"
        else:
            line = install_line(ctx, row.packages[:1])
            price = f"g++ {row.version} of {distro.pretty}, about 60 MB{note}"
        lines.append(f"{line}  # {price}; then CXX={row.gxx}")
    if lines:
        return tuple(lines)
    have = compilers_of(distro)
    newest = max(have, key=lambda row: Version(row.version), default=None)
    if newest is not None:
        return (f"{distro.pretty} has no newer g++ than {newest.version}",)
    return unlisted_gxx(ctx)


def unlisted_gxx(ctx: Context) -> tuple[str, ...]:
    """The way to a g++ on a distribution release that the package table does not hold."""
    distro, floor = ctx.facts.distro, ctx.release.gcc_floor
    wanted = f"g++ {floor} or newer" if floor else "a newer g++"
    line = install_line(ctx, names_for(distro, "cxx"))
    if line and not any(c.works for c in ctx.facts.compilers):
        return (f"{line}  # the g++ of {distro.pretty}; {wanted} is needed",)
    search = table("packages.toml")["search"].get(distro.family)
    if search:
        return (f"{search}  # which compilers {distro.pretty} has; {wanted} is needed",)
    return (f"install {wanted} ({distro.pretty} is not in the package table)",)


def older_release(ctx: Context, compiler: Compiler | None) -> tuple[str, ...]:
    """The newest known release that only warns about an old compiler, if this one is newer.

    None is of use to a compiler that torch's own headers refuse.
    """
    here = version_of(ctx.release.version)
    mine = version_of(compiler.version) if compiler and compiler.version else None
    if mine is not None and mine < Version(needs_table()["compile"]["torch_gcc"]):
        return ()
    for row in known_releases(ctx.facts.cpu.arch):
        if not row.gcc_fatal and here is not None and Version(row.version) < here:
            return (
                f"--vllm {row.version}  # only warns; price: built without BF16, VNNI and AMX, "
                "older models only",
            )
    return ()


def ways_out(ctx: Context, compiler: Compiler | None) -> tuple[str, ...]:
    """All ways from a compiler below the floor, each with its price, cheapest first."""
    ways = list(newer_gxx(ctx))
    if compiler is not None and capable(compiler, ctx.release, ctx.facts.cpu):
        patch = (
            "patch compiler-floor lowers the floor  # price: untested upstream; taken by itself "
            "because every option this host needs compiled with "
            f"g++ {compiler.version}"
        )
        has_own = any(
            not r.repository for r in newer_compilers(ctx.facts.distro, ctx.release.gcc_floor)
        )
        ways.insert(1 if has_own else 0, patch)
    ways += older_release(ctx, compiler)
    wheel = wheel_option(ctx.facts, ctx.release)
    return (*ways, wheel) if wheel else tuple(ways)
