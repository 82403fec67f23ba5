"""Libraries by their real test: the header by a compile, the run-time object by a search."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from cpubuild.facts.model import Libraries
from cpubuild.facts.programs import ask, which

TAGS = {
    "x86_64": "x86-64",
    "aarch64": "AArch64",
    "ppc64le": "64bit",
    "s390x": "64bit",
    "riscv64": "double-float",
}
FOLDERS = (
    "usr/lib64",
    "usr/lib/{arch}-linux-gnu",
    "usr/lib/powerpc64le-linux-gnu",
    "usr/local/lib",
    "usr/local/lib64",
    "usr/lib",
    "lib64",
    "opt/intel/oneapi/compiler/latest/lib",
    "opt/venv/lib",
)
HEADER = "#include <numa.h>\nint main() { return numa_available(); }\n"
HEADER_ONLY = "#include <numa.h>\n"


def probe(root: Path, environ: Mapping[str, str]) -> str:
    """Return the loader's cache as ldconfig prints it; "" for another root or without ldconfig."""
    if root != Path("/"):
        return ""
    program = which("ldconfig", environ, more=("/sbin", "/usr/sbin"))
    return ask([program, "-p"], environ).stdout if program else ""


def parse_cache(text: str, arch: str) -> dict[str, str]:
    """Map a library's name to its first path of this architecture."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = re.fullmatch(r"\s*(\S+) \(([^)]*)\) => (/\S.*)", line)
        if match and TAGS.get(arch, "") in match[2]:
            found.setdefault(match[1], match[3].strip())
    return found


def find(name: str, cache: Mapping[str, str], root: Path, arch: str) -> str | None:
    """Return the path of a library from the loader's cache, else from usual folders."""
    places = [root / folder.format(arch=arch) / name for folder in FOLDERS]
    listed = [Path(cache[name])] if name in cache else []
    return first_file([*listed, *places])


def first_file(paths: Iterable[Path]) -> str | None:
    """Return the first path that is a file; its folder is resolved, its own name kept.

    The name with the major version (``libnuma.so.1``) is a link that survives a package upgrade,
    the file behind it does not.
    """
    for path in paths:
        try:
            if path.is_file():
                return str(path.parent.resolve() / path.name)
        except (OSError, RuntimeError, ValueError):
            continue
    return None


def parse(
    cache: Mapping[str, str],
    root: Path,
    arch: str,
    *,
    numa_header: bool | None = None,
    numa_link: bool | None = None,
) -> Libraries:
    """Build the facts: the searched libraries and the outcome of the two compiles."""

    def first(*names: str) -> str | None:
        return next((path for name in names if (path := find(name, cache, root, arch))), None)

    return Libraries(
        numa_header=numa_header,
        numa_link=numa_link,
        numa_runtime=first("libnuma.so.1"),
        tcmalloc=first("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"),
        libiomp=first("libiomp5.so"),
        libgomp=first("libgomp.so.1"),
    )


def compile_numa(compiler: str, environ: Mapping[str, str]) -> tuple[bool, bool]:
    """Return whether numa.h compiles and whether a program links with -lnuma."""
    base = [compiler, "-x", "c++", "-"]
    header = ask([*base, "-fsyntax-only"], environ, stdin=HEADER_ONLY).ok
    # without the header the declaration is enough to ask the linker
    source = (
        HEADER
        if header
        else 'extern "C" int numa_available();\nint main() { return numa_available(); }\n'
    )
    link = ask([*base, "-o", "/dev/null", "-lnuma"], environ, stdin=source).ok
    return header, link
