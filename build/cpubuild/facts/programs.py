"""Find programs on a PATH and ask them things, in a neutral environment and folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from cpubuild.run import Completed, capture

QUIET = {
    "LC_ALL": "C",
    "LANGUAGE": "C",
    # a rustup or pyenv shim must not install or pick something because of where it is asked
    "RUSTUP_AUTO_INSTALL": "0",
    "CCACHE_DISABLE": "1",
}
NOISY = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "LD_PRELOAD", "GCC_COLORS", "MAKEFLAGS")


def search_path(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the absolute folders of PATH in order, without pyenv's shims (scripts that guess)."""
    folders = (Path(part) for part in environ.get("PATH", os.defpath).split(os.pathsep) if part)
    kept = (folder for folder in folders if folder.is_absolute() and folder.name != "shims")
    return tuple(dict.fromkeys(kept))


def which(name: str, environ: Mapping[str, str], *, more: Sequence[str] = ()) -> str | None:
    """Return the absolute path of a program; ``more`` are folders searched after PATH."""
    places = [str(folder) for folder in search_path(environ)] + list(more)
    return shutil.which(name, path=os.pathsep.join(places))


def ask(
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    stdin: str | None = None,
    timeout: float = 15.0,
) -> Completed:
    """Run a short question in English, from the root folder, with nothing preloaded."""
    env = {name: value for name, value in environ.items() if name not in NOISY}
    return capture(argv, env={**env, **QUIET}, cwd=Path("/"), timeout=timeout, stdin=stdin)
