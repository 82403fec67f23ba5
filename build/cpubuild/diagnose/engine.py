"""The faces of the diagnosis: lines, files and folders, a running command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from cpubuild.diagnose.inputs import log_files, read_lines
from cpubuild.diagnose.judge import Context, judge
from cpubuild.diagnose.model import Diagnosis
from cpubuild.diagnose.scan import Scan
from cpubuild.facts.model import HostFacts
from cpubuild.run import Completed, logged


def diagnose_lines(
    lines: Iterable[str],
    *,
    exit_status: int | None = None,
    host: HostFacts | None = None,
    family: str | None = None,
    arch: str | None = None,
    release: str | None = None,
) -> Diagnosis:
    """Diagnose a log given as lines; they may be dirty, and as many as one likes.

    ``exit_status`` is the command's (negative, or 128 + n, for a signal; 0 says that it went
    well). ``host`` names distribution and architecture, else ``family`` (apt, dnf, zypper,
    pacman, apk) and ``arch`` may. ``release`` is a vLLM version.
    """
    scan = Scan()
    scan.feed(lines)
    return judge(
        scan,
        _context(exit_status=exit_status, host=host, family=family, arch=arch, release=release),
    )


def diagnose_paths(
    paths: Sequence[Path],
    *,
    exit_status: int | None = None,
    host: HostFacts | None = None,
    family: str | None = None,
    arch: str | None = None,
    release: str | None = None,
) -> Diagnosis:
    """Diagnose files and folders as one log, in the order given; folders by name.

    A path that does not exist is a SETTINGS error; a file that cannot be read is passed over
    when it was found in a folder.
    """
    scan = Scan()
    files = log_files(paths)
    for path in files:
        scan.feed(read_lines(path), file=str(path) if len(files) > 1 else None)
    return judge(
        scan,
        _context(exit_status=exit_status, host=host, family=family, arch=arch, release=release),
    )


def run_and_diagnose(
    argv: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 24 * 3600.0,
    on_line: Callable[[str], None] | None = None,
    host: HostFacts | None = None,
    release: str | None = None,
) -> tuple[Completed, Diagnosis]:
    """Run ``argv`` with its log in ``folder`` and diagnose how it went; ``timeout`` in seconds."""
    done = logged(
        argv,
        folder=folder,
        env=os.environ if env is None else env,
        cwd=cwd,
        timeout=timeout,
        on_line=on_line,
    )
    if done.log is None:
        return done, diagnose_lines((done.stdout,), exit_status=done.returncode, host=host)
    diagnosis = diagnose_paths([done.log], exit_status=done.returncode, host=host, release=release)
    return done, diagnosis


def _context(
    *,
    exit_status: int | None,
    host: HostFacts | None,
    family: str | None,
    arch: str | None,
    release: str | None,
) -> Context:
    distro = None
    if host is not None:
        distro = f"{host.distro.id}-{host.distro.version}"
        arch = arch or host.cpu.arch
        family = family or host.distro.family
    return Context(
        exit_status=exit_status,
        host=host,
        family=None if family == "unknown" else family,
        distro=distro,
        arch=arch,
        release=release,
    )
