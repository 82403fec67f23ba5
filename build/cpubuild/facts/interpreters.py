"""Python interpreters on the host: on PATH, of pyenv, of uv, of the system."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from cpubuild.facts.model import Interpreter
from cpubuild.facts.programs import ask, search_path, which

NAME = re.compile(r"python3?(?:\.\d+t?)?|pypy3(?:\.\d+)?")
SYSTEM = ("/usr/bin", "/usr/local/bin")
# -S leaves site-packages out: what is asked is in the standard library, and it starts faster.
QUESTION = """
import importlib.util, json, os, platform, sys, sysconfig
include = sysconfig.get_path("include") or ""
print(json.dumps({
    "executable": os.path.realpath(sys.executable),
    "version": ".".join(map(str, sys.version_info[:3])) + (
        "" if sys.version_info[3] == "final" else sys.version_info[3][0] + str(sys.version_info[4])
    ),
    "implementation": platform.python_implementation(),
    "headers": os.path.exists(os.path.join(include, "Python.h")),
    "venv": importlib.util.find_spec("ensurepip") is not None,
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
}))
"""


def candidates(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return programs that may be interpreters, one per file behind the links, PATH first."""
    found: dict[Path, Path] = {}
    for path in _listed(environ):
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):
            continue
        # a shell script of this name is a shim or a wrapper, never the interpreter
        if real.is_file() and not _is_script(real):
            found.setdefault(real, path)
    return tuple(found.values())


def _listed(environ: Mapping[str, str]) -> Iterator[Path]:
    home = Path(environ.get("HOME", "/nonexistent"))
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local/share")
    for folder in (*search_path(environ), *map(Path, SYSTEM)):
        yield from _named(folder)
    pyenv = Path(environ.get("PYENV_ROOT") or home / ".pyenv")
    uv = Path(environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv/python")
    for base in (pyenv / "versions", uv, Path("/opt/python")):
        for folder in _entries(base):
            yield folder / "bin/python3"


def _named(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if NAME.fullmatch(path.name)]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_script(path: Path) -> bool:
    try:
        with path.open("rb") as source:
            return source.read(2) == b"#!"
    except OSError:
        return False


def parse(output: str) -> Interpreter | None:
    """Build the fact from what an interpreter printed; None when it is not Python 3."""
    try:
        answer = json.loads(output)
        version = str(answer["version"])
        if not version.startswith("3."):
            return None
        return Interpreter(
            path=str(answer["executable"]),
            version=version,
            implementation=str(answer["implementation"]),
            headers=bool(answer["headers"]),
            venv=bool(answer["venv"]),
            free_threaded=bool(answer["free_threaded"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def program(asked: str, environ: Mapping[str, str]) -> Path | None:
    """The program that a wish means: a path, an environment's folder, or a name on PATH."""
    path = Path(asked)
    if "/" in asked and path.is_dir():
        path = path / "bin" / "python3"
    if "/" not in asked:
        found = which(asked, environ) if NAME.fullmatch(asked) else None
        return Path(found) if found else None
    return path if path.is_file() else None


def collect(
    environ: Mapping[str, str], pool: ThreadPoolExecutor, *, asked: str | None = None
) -> tuple[Interpreter, ...]:
    """Ask every candidate at the same time; one fact per real executable.

    ``asked`` is what the user wishes for; the one that it leads to (a link, an environment's
    python, a name on PATH) comes first and says so.
    """

    def answer(path: Path) -> Interpreter | None:
        done = ask([str(path), "-I", "-S", "-c", QUESTION], environ, timeout=10.0)
        return parse(done.stdout)

    wished = program(asked, environ) if asked else None
    first = pool.submit(answer, wished) if wished else None
    facts = [fact for fact in pool.map(answer, candidates(environ)) if fact is not None]
    meant = first.result() if first else None
    if meant is not None:
        facts.insert(0, replace(meant, asked=asked))
    unique: dict[str, Interpreter] = {}
    for fact in facts:
        unique.setdefault(fact.path, fact)
    return tuple(unique.values())
