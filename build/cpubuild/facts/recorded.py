"""A recorded host: a folder of the host's own files, and recorded.json for what programs told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cpubuild.errors import ExitCode, fail
from cpubuild.facts.model import Compiler, Container, Disk, Interpreter, Libc, Libraries, Tool
from cpubuild.facts.serial import structure

NAME = "recorded.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """What a folder's files cannot tell; None and empty mean that it was not recorded."""

    compilers: tuple[Compiler, ...] = ()
    tools: tuple[Tool, ...] = ()
    interpreters: tuple[Interpreter, ...] = ()
    libraries: Libraries | None = None
    container: Container | None = None
    libc: Libc | None = None
    disks: tuple[Disk, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


def read(root: Path) -> Recorded:
    """Read ``root/recorded.json``; without it nothing was recorded."""
    path = root / NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Recorded()
    except (OSError, ValueError, RecursionError) as error:
        raise fail(
            ExitCode.SETTINGS,
            f"{path} cannot be read: {error}",
            why="it holds what the programs of the recorded host said",
            remedy=("record the host again",),
        ) from error
    return structure(document, Recorded, source=str(path))
