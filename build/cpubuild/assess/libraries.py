"""Judgements about shared libraries."""

from __future__ import annotations

from collections.abc import Iterator

from cpubuild.assess.base import Context, fine, state
from cpubuild.assess.ways import need_line
from cpubuild.findings import Finding, Status


def numa_header(ctx: Context) -> Iterator[Finding]:
    """numa.h and -lnuma, by a compile."""
    libs = ctx.facts.libraries
    if libs.numa_header is None:
        yield state(
            "libraries.numa_header",
            Status.UNKNOWN,
            "not tried: nothing here compiles",
            needed="numa.h and libnuma.so",
            remedy=need_line(ctx, "numa_header"),
        )
    elif libs.numa_header and libs.numa_link is not False:
        yield fine("libraries.numa_header", "a program with numa.h compiles and links")
    else:
        lacks = "numa.h" if not libs.numa_header else "-lnuma"
        yield state(
            "libraries.numa_header",
            Status.BLOCKER if ctx.needs.source else Status.OK,
            f"{lacks} was not found by the compiler",
            needed="numa.h and libnuma.so",
            why="The compile would stop in the middle: fatal error: numa.h: No such file or "
            "directory, or cannot find -lnuma.",
            remedy=need_line(ctx, "numa_header") if ctx.needs.source else (),
        )


def numa_runtime(ctx: Context) -> Iterator[Finding]:
    """libnuma.so.1, on every route."""
    path = ctx.facts.libraries.numa_runtime
    if path is not None:
        yield fine("libraries.numa_runtime", path)
        return
    yield state(
        "libraries.numa_runtime",
        Status.BLOCKER,
        "libnuma.so.1 was not found",
        needed="libnuma.so.1",
        why="The kernel libraries load it and wheels do not carry it: vLLM only warns, then "
        "operators are missing ('_OpNamespace' '_C' object has no attribute).",
        remedy=need_line(ctx, "numa_runtime"),
    )


def tcmalloc(ctx: Context) -> Iterator[Finding]:
    """A faster allocator."""
    path = ctx.facts.libraries.tcmalloc
    if path is not None:
        yield fine("libraries.tcmalloc", path)
        return
    yield state(
        "libraries.tcmalloc",
        Status.WARN,
        "libtcmalloc_minimal was not found",
        why="vLLM allocates faster with it; from 0.20 on it is copied into the wheel when it is "
        "there at build time, and 0.17 to 0.18 do not start without it.",
        remedy=need_line(ctx, "tcmalloc"),
    )


def openmp(ctx: Context) -> Iterator[Finding]:
    """One OpenMP runtime, not two."""
    libs = ctx.facts.libraries
    found = ", ".join(path for path in (libs.libgomp, libs.libiomp) if path)
    yield fine(
        "libraries.openmp",
        found or "none on this host: torch brings its own libgomp",
        why="torch carries a libgomp; vLLM refuses to start with libgomp and libiomp preloaded.",
    )


JUDGES = (numa_header, numa_runtime, tcmalloc, openmp)
