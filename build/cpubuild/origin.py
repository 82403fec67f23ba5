"""Where the tool itself comes from: its checkout, repository and commit, and pip's own settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from cpubuild import run

SCHEMES = frozenset({"https", "http", "git", "ssh"})
STAGE0 = ("Makefile", "pyproject.toml", "build/cpubuild", "patches", "templates")


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """``checkout`` is the folder the tool runs from, None when it is installed elsewhere.

    ``repository`` is a URL that others can clone (without what it held of user and password) and
    ``commit`` what is checked out; None when not known. ``pip`` is pip's configuration file.
    """

    checkout: Path | None
    repository: str | None = None
    commit: str | None = None
    pip: Path | None = None


def origin(environ: Mapping[str, str]) -> Origin:
    """Look: files of the checkout, two questions to git, the places pip reads."""
    folder = Path(__file__).resolve().parents[2]
    if not all((folder / name).exists() for name in STAGE0):
        return Origin(checkout=None, pip=pip_file(environ))
    url = asked(folder, environ, "config", "--get", "remote.origin.url")
    commit = asked(folder, environ, "rev-parse", "--verify", "HEAD")
    public = cloned_from(url) if url and commit else None
    return Origin(
        checkout=folder,
        repository=public,
        commit=commit if public else None,
        pip=pip_file(environ),
    )


def asked(folder: Path, environ: Mapping[str, str], *words: str) -> str | None:
    """What git answers in one line, None for no answer."""
    done = run.capture(["git", "-C", str(folder), *words], env=dict(environ), timeout=10.0)
    return done.stdout.strip() or None if done.returncode == 0 else None


def cloned_from(url: str) -> str | None:
    """A remote's URL as others can use it: no user, no password; None for a path of this host."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not parts.hostname or not url.isprintable():
        return None
    if parts.scheme != "ssh":
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    return urlunsplit(parts)


def pip_file(environ: Mapping[str, str]) -> Path | None:
    """The configuration file that pip reads first here, by pip's own places; None for none."""
    named = environ.get("PIP_CONFIG_FILE")
    if named is not None:
        path = Path(named)
        return path if path.is_file() else None  # os.devnull: pip is told to read none
    home = Path(environ.get("HOME", "/"))
    base = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    places = (base / "pip/pip.conf", home / ".pip/pip.conf", Path("/etc/pip.conf"))
    return next((p for p in places if p.is_file()), None)
