"""Reading files of a vLLM tree, with errors that name the file and what was expected there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from cpubuild.errors import CpuBuildError, ExitCode, Problem

T = TypeVar("T")

REMEDY = ("give a complete vLLM source tree: a release sdist, or a git checkout of a release tag",)


def problem(where: str, what: str, expected: str) -> Problem:
    """One unreadable place of a tree: ``where`` is a file name, with a line where one is known."""
    return Problem(
        what=f"{where}: {what}",
        why=f"expected there: {expected}",
        remedy=REMEDY,
        exit_code=ExitCode.SETTINGS,
    )


def unreadable(where: str, what: str, expected: str) -> CpuBuildError:
    """Build the error for one unreadable place (the caller raises it)."""
    return CpuBuildError(problem(where, what, expected))


def read_text(tree: Path, name: str, expected: str) -> str:
    """The text of a file of the tree."""
    try:
        return (tree / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise unreadable(name, f"there is no such file in {tree}", expected) from None
    except UnicodeDecodeError as error:
        raise unreadable(name, f"not UTF-8 at byte {error.start}", expected) from None
    except OSError as error:
        raise unreadable(name, error.strerror or str(error), expected) from None


def first_file(tree: Path, names: tuple[str, ...], expected: str) -> str:
    """The first of ``names`` that the tree has."""
    for name in names:
        if (tree / name).is_file():
            return name
    raise unreadable(
        " or ".join(names), f"there is no such file in {tree}", f"{expected}, in one of these"
    )


class Gather:
    """Runs readers one after the other and keeps the problems of all of them."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def take(self, read: Callable[[], T]) -> T | None:
        """The result of ``read``, or None when it found problems (which are kept)."""
        try:
            return read()
        except CpuBuildError as error:
            self.problems.extend(p for p in error.problems if p not in self.problems)
            return None

    def error(self) -> CpuBuildError:
        """Build the error that carries every problem found (the caller raises it)."""
        return CpuBuildError(*self.problems)
