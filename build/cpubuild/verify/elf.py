"""What a shared library needs and does not find, read from the files; nothing is run.

The search order is that of the dynamic linker as far as files tell: libraries that torch has
already loaded (by their name), the library's own run path, the system's folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INTERPRETER = re.compile(r"^_?Py[A-Z_]|^_Py|^PyInit_")
SYSTEM = ("lib64", "usr/lib64", "lib", "usr/lib", "usr/local/lib")


@dataclass(frozen=True, kw_only=True, slots=True)
class Linkage:
    """How one library is linked: needed names with the file that provides each (None: nowhere).

    ``undefined`` are symbols that none of them exports. ``versions`` the highest version asked
    of each versioned prefix (GLIBC, GLIBCXX, CXXABI), ``unversioned`` those that the found
    library does not define. ``unreadable`` names providers that could not be read.
    """

    path: str
    needed: tuple[tuple[str, str | None], ...]
    undefined: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]
    missing_versions: tuple[str, ...]
    unreadable: tuple[str, ...] = ()


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """An ELF file; raises ELFError or OSError when it is none."""
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as stream:
        yield ELFFile(stream)


def needed(elf: Any) -> tuple[list[str], list[str]]:
    """DT_NEEDED names and run path entries of an open library."""
    names: list[str] = []
    paths: list[str] = []
    section = elf.get_section_by_name(".dynamic")
    for tag in section.iter_tags() if section is not None else ():
        if tag.entry.d_tag == "DT_NEEDED":
            names.append(tag.needed)
        elif tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH"):
            text = tag.rpath if tag.entry.d_tag == "DT_RPATH" else tag.runpath
            paths += [p for p in text.split(":") if p]
    return names, paths


def undefined(elf: Any) -> list[str]:
    """Strong undefined symbols of an open library, without the interpreter's own."""
    section = elf.get_section_by_name(".dynsym")
    if section is None:
        return []
    return [
        symbol.name
        for symbol in section.iter_symbols()
        if symbol["st_shndx"] == "SHN_UNDEF"
        and symbol["st_info"]["bind"] == "STB_GLOBAL"
        and symbol.name
        and not INTERPRETER.match(symbol.name)
    ]


def wanted_versions(elf: Any) -> dict[str, set[str]]:
    """Version names asked of each needed library (``libc.so.6`` -> GLIBC_2.34 ...)."""
    section = elf.get_section_by_name(".gnu.version_r")
    wanted: dict[str, set[str]] = {}
    for need, versions in section.iter_versions() if section is not None else ():
        wanted.setdefault(need.name, set()).update(v.name for v in versions)
    return wanted


def defined_versions(elf: Any) -> set[str]:
    """Version names an open library defines."""
    section = elf.get_section_by_name(".gnu.version_d")
    names: set[str] = set()
    for _, versions in section.iter_versions() if section is not None else ():
        names.update(v.name for v in versions)
    return names


def exports(elf: Any, names: Iterable[str]) -> set[str]:
    """Which of ``names`` an open library defines, through its hash table."""
    table = elf.get_section_by_name(".gnu.hash") or elf.get_section_by_name(".hash")
    if table is None:
        return _exports_by_scan(elf, set(names))
    found = set()
    for name in names:
        symbol = table.get_symbol(name)
        if symbol is not None and symbol["st_shndx"] != "SHN_UNDEF":
            found.add(name)
    return found


def _exports_by_scan(elf: Any, names: set[str]) -> set[str]:
    section = elf.get_section_by_name(".dynsym")
    if section is None:
        return set()
    return {
        s.name for s in section.iter_symbols() if s["st_shndx"] != "SHN_UNDEF" and s.name in names
    }


def system_folders(root: Path = Path("/")) -> list[Path]:
    """Folders the dynamic linker looks in: /etc/ld.so.conf and the usual ones."""
    folders: list[Path] = []
    conf = [root / "etc/ld.so.conf", *sorted((root / "etc/ld.so.conf.d").glob("*.conf"))]
    for path in conf:
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        folders += [root / s.lstrip("/") for s in map(str.strip, lines) if s.startswith("/")]
    triplets = sorted((root / "usr/lib").glob("*-linux-gnu*"))
    folders += [*triplets, *(root / s for s in SYSTEM)]
    return [f for f in dict.fromkeys(folders) if f.is_dir()]


def find(name: str, folders: Sequence[Path]) -> Path | None:
    """The first file called ``name``."""
    return next((f / name for f in folders if (f / name).is_file()), None)


def expand(paths: Iterable[str], origin: Path) -> list[Path]:
    """Run path entries with $ORIGIN filled in."""
    return [Path(re.sub(r"\$\{?ORIGIN\}?", str(origin), p)) for p in paths]


def analyse(library: Path, loaded: Sequence[Path], system: Sequence[Path]) -> Linkage:
    """Resolve ``library`` against the folders of what is ``loaded`` before it, and the system's."""
    with opened(library) as elf:
        names, paths = needed(elf)
        symbols = set(undefined(elf))
        wanted = wanted_versions(elf)
    folders = [*loaded, *expand(paths, library.parent), *system]
    providers = {name: find(name, folders) for name in names}
    missing_versions: list[str] = []
    unreadable: list[str] = []
    for provider in _closure(providers, folders):
        try:
            with opened(provider) as elf:
                symbols -= exports(elf, symbols)
                asked = wanted.get(provider.name, set())
                missing_versions += sorted(asked - defined_versions(elf)) if asked else []
        except Exception as error:  # a damaged provider is evidence, not a crash
            unreadable.append(f"{provider}: {error}")
    return Linkage(
        path=str(library),
        needed=tuple((n, str(p) if p else None) for n, p in providers.items()),
        undefined=tuple(sorted(symbols)),
        versions=tuple(sorted(_highest(wanted).items())),
        missing_versions=tuple(missing_versions),
        unreadable=tuple(unreadable),
    )


def _closure(providers: dict[str, Path | None], folders: Sequence[Path]) -> list[Path]:
    """The providers and what they need themselves, each once."""
    queue = [p for p in providers.values() if p is not None]
    seen: dict[Path, None] = {}
    while queue:
        path = queue.pop(0)
        if path in seen:
            continue
        seen[path] = None
        names, paths = _needed_or_none(path)
        here = [*folders, *expand(paths, path.parent)]
        queue += [p for p in (find(n, here) for n in names) if p is not None]
    return list(seen)


def _needed_or_none(path: Path) -> tuple[list[str], list[str]]:
    """Like ``needed``, nothing for a file that cannot be read: its symbols' reader says so."""
    try:
        with opened(path) as elf:
            return needed(elf)
    except Exception:
        return [], []


def _highest(wanted: dict[str, set[str]]) -> dict[str, str]:
    best: dict[str, tuple[tuple[int, ...], str]] = {}
    for names in wanted.values():
        for name in names:
            match = re.fullmatch(r"([A-Z]+)_([0-9.]+)", name)
            if match:
                key = tuple(int(n) for n in match.group(2).split("."))
                best[match.group(1)] = max(best.get(match.group(1), ((), "")), (key, name))
    return {prefix: name for prefix, (_, name) in best.items()}


def machine_code(library: Path) -> bytes:
    """The library's .text section."""
    with opened(library) as elf:
        section = elf.get_section_by_name(".text")
        return bytes(section.data()) if section is not None else b""


def count(code: bytes, pattern: str) -> int:
    """How often an instruction pattern (a regular expression over bytes) occurs."""
    return len(re.findall(pattern.encode("latin-1"), code, re.DOTALL))
