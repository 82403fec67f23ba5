"""A compiler that was asked for by name: where the wish came from, and what to say instead."""

from __future__ import annotations

from dataclasses import replace

from cpubuild.assess.base import Context
from cpubuild.choose.compilers import choose_compiler
from cpubuild.errors import ExitCode
from cpubuild.facts.model import Compiler


def wish(ctx: Context) -> tuple[str, str] | None:
    """The compiler that was asked for, and what asks for it; None when none was."""
    if ctx.needs.cxx:
        return ctx.needs.cxx, ctx.needs.cxx_from
    named = ctx.env("CXX")
    return (named, "CXX") if named else None


def code(ctx: Context) -> ExitCode:
    """The class of a compiler's failure: a wrong setting where one was asked for by name."""
    return ExitCode.SETTINGS if wish(ctx) else ExitCode.PREREQUISITE


def in_words(ctx: Context) -> str:
    """What was asked for, and where."""
    asked = wish(ctx)
    return f"{asked[0]} (asked for by {asked[1]})" if asked else ""


def without(ctx: Context) -> Compiler | None:
    """The compiler that would be taken if none were asked for, when it works."""
    rest = tuple((k, v) for k, v in ctx.facts.environment if k not in ("CXX", "CC"))
    other = choose_compiler(replace(ctx.facts, environment=rest), ctx.release)
    return other if other is not None and other.works else None


def instead(ctx: Context) -> tuple[str, ...]:
    """How to take the wish back, where a compiler is here that works; else nothing."""
    asked, other = wish(ctx), without(ctx)
    taken = choose_compiler(ctx.facts, ctx.release, cxx=ctx.needs.cxx)
    if asked is None or other is None or other == taken:
        return ()
    works = f"# {other.path} {other.version} works".replace("  ", " ")
    origin = asked[1]
    if origin == "CXX":
        return (f"unset CXX CC  {works}",)
    if origin.startswith("--"):
        return (f"{origin} {other.path}  {works}", f"leave {origin} out, the best is found")
    if origin.isupper():
        return (f"unset {origin}  {works}",)
    return (f"take cxx out of {origin}  {works}",)
