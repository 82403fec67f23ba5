"""C++ compilers on the host and what probe compiles show of each (table: data/compilers.toml).

Four small questions go to every compiler: who it is, whether it compiles at all, C++20, and which
options it knows. The intrinsics are one larger compile, whose success is kept in a cache; a failure
never is, because installing an assembler or a header mends it without changing the compiler.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cpubuild.facts.compiler_cache import Cache, key_of
from cpubuild.facts.compiler_table import Option, Table, table
from cpubuild.facts.model import Compiler
from cpubuild.facts.programs import ask, search_path, which
from cpubuild.run import Completed

ANYTHING = "int twice(int x) { return 2 * x; }\n"
CONCEPTS = """#include <concepts>
template <std::integral T> T twice(T x) { return 2 * x; }
int four = twice(2);
"""
UNKNOWN_OPTION = re.compile(
    r"(?:unrecognized command[- ]line option|unknown argument:?|unsupported option|"
    r"unrecognized argument in option) ?['\"‘“`]([^'\"’”`]+)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """What ``-v`` prints: kind, version and target triple."""

    kind: Literal["gnu", "clang", "unknown"]
    version: str
    target: str


def candidates(environ: Mapping[str, str], *, cxx: str | None, root: Path) -> tuple[str, ...]:
    """Return paths of compilers, one per real file; the asked one and $CXX first, then PATH."""
    found: dict[Path, str] = {}
    for path in _listed(environ, cxx=cxx, root=root):
        try:
            real = Path(path).resolve(strict=True)
        except (OSError, RuntimeError):
            continue
        if real.name not in table().wrappers:
            found.setdefault(real, path)
    return tuple(found.values())


def _listed(environ: Mapping[str, str], *, cxx: str | None, root: Path) -> Iterator[str]:
    for asked in (cxx, named_program(environ.get("CXX", ""))):
        path = which(asked, environ) if asked else None
        if path is not None:
            yield path
    folders = search_path(environ)
    for name in table().names:
        yield from (str(folder / name) for folder in folders if (folder / name).is_file())
    for pattern in table().globs:
        yield from (str(path) for path in sorted(root.glob(pattern)))


def named_program(command: str) -> str | None:
    """Return the compiler that a value of $CXX names, without ccache before or options after it."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return next((w for w in words if Path(w).name not in table().wrappers), None)


def partner(path: str) -> str | None:
    """Return the C compiler that belongs to a C++ compiler: its sibling of the same version."""
    place = Path(path)
    name = place.name.replace("clang++", "clang").replace("g++", "gcc")
    sibling = place.with_name("cc" if name == "c++" else name)
    return str(sibling) if sibling != place and sibling.is_file() else None


def parse_identity(text: str) -> Identity:
    """Build the identity from what ``-v`` prints; unknown parts are "" or "unknown"."""
    target = re.search(r"^Target: (\S+)", text, re.MULTILINE)
    clang = re.search(r"\bclang version (\d+(?:\.\d+)*)", text)
    gnu = re.search(r"^gcc[- ]version (\d+(?:\.\d+)*)", text, re.MULTILINE)
    match = clang or gnu
    return Identity(
        kind="clang" if clang else "gnu" if gnu else "unknown",
        version=match[1] if match else "",
        target=target[1] if target else "",
    )


def parse_unknown_options(text: str) -> frozenset[str]:
    """Return the options a compiler complained about."""
    return frozenset(UNKNOWN_OPTION.findall(text))


def first_error(done: Completed) -> str:
    """Return the line that says why a compile failed."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    bad = (line for line in lines if re.search(r"error|cannot|not found|No such file", line))
    return next(bad, lines[0] if lines else done.describe_end())


def collect(
    environ: Mapping[str, str],
    pool: ThreadPoolExecutor,
    *,
    cxx: str | None,
    root: Path,
    cache: Path | None,
) -> tuple[Compiler, ...]:
    """Probe every compiler at the same time."""
    known = Cache.load(cache)
    paths = candidates(environ, cxx=cxx, root=root)
    found = tuple(pool.map(lambda path: probe(path, environ, known), paths))
    known.save()
    return found


def probe(path: str, environ: Mapping[str, str], cache: Cache) -> Compiler:
    """Ask one compiler; the four small questions run side by side."""
    base = [path, "-x", "c++", "-"]
    with ThreadPoolExecutor(max_workers=3) as pool:
        verbose = pool.submit(ask, [path, "-v"], environ)
        concepts = pool.submit(ask, [*base, "-std=c++20", "-fsyntax-only"], environ, stdin=CONCEPTS)
        anything = ask([*base, "-c", "-o", "/dev/null"], environ, stdin=ANYTHING)
        banner = verbose.result().stderr
        identity = parse_identity(banner)
        options: tuple[tuple[str, bool], ...] = ()
        if anything.ok:
            options = _options(path, environ, identity, cache, key_of(path, banner))
        return Compiler(
            path=path,
            cc=partner(path),
            kind=identity.kind,
            version=identity.version,
            target=identity.target,
            works=anything.ok,
            cxx20=concepts.result().ok,
            options=options,
            failure="" if anything.ok else first_error(anything),
        )


def _options(
    path: str, environ: Mapping[str, str], identity: Identity, cache: Cache, key: str
) -> tuple[tuple[str, bool], ...]:
    arch = identity.target.partition("-")[0].replace("powerpc64le", "ppc64le")
    rows = tuple(row for row in table().options if row.arch == arch)
    accepted = _accepted(path, environ, rows)
    shown = tuple(row for row in rows if row.source and row.name in accepted)
    proven = accepted - {row.name for row in shown}
    if shown and not cache.holds(key):
        if compiles(path, environ, shown):
            cache.add(key)
            proven |= {row.name for row in shown}
        else:
            proven |= {row.name for row in shown if compiles(path, environ, (row,))}
    elif shown:
        proven |= {row.name for row in shown}
    return tuple((row.name, row.name in proven) for row in rows)


def _accepted(path: str, environ: Mapping[str, str], rows: tuple[Option, ...]) -> frozenset[str]:
    """Return the options the compiler takes; those that exclude each other are asked singly."""
    together = tuple(row for row in rows if not row.exclusive)
    alone = [row for row in rows if row.exclusive]
    accepted: set[str] = set()
    if together:
        done = _takes(path, environ, together)
        refused = parse_unknown_options(done.stderr)
        if done.ok:
            accepted |= {row.name for row in together}
        elif refused & {row.name for row in together}:
            accepted |= {row.name for row in together if row.name not in refused}
        else:
            alone += together
    accepted |= {row.name for row in alone if _takes(path, environ, (row,)).ok}
    return frozenset(accepted)


def _takes(path: str, environ: Mapping[str, str], rows: tuple[Option, ...]) -> Completed:
    names = [row.name for row in rows]
    argv = [path, "-x", "c++", "-", *names, "-c", "-o", "/dev/null"]
    return ask(argv, environ, stdin=ANYTHING)


def compiles(path: str, environ: Mapping[str, str], rows: tuple[Option, ...]) -> bool:
    """Whether the intrinsics of ``rows`` compile and assemble in one file."""
    settings: Table = table()
    names = dict.fromkeys(name for row in rows for name in (*row.also, row.name))
    source = settings.header + "".join(f"{row.source}\n" for row in rows)
    argv = [path, "-x", "c++", "-", "-O1", *names, "-c", "-o", "/dev/null"]
    return ask(argv, environ, stdin=source, timeout=30.0).ok
