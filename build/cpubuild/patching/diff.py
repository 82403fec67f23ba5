"""Unified diffs as git reads them: written from two texts, and read for the files they name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from cpubuild.patching.edits import Change, lines

CONTEXT_LINES = 2
NO_NEWLINE = "\\ No newline at end of file\n"


def unified(changes: Iterable[Change]) -> str:
    """The diff of all ``changes``, with a few lines of context, for ``git apply -p1``."""
    return "".join(_one(change) for change in changes)


def _one(change: Change) -> str:
    made = difflib.unified_diff(
        list(lines(change.before)),
        list(lines(change.after)),
        f"a/{change.path}",
        f"b/{change.path}",
        n=CONTEXT_LINES,
    )
    return "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in made)


def paths(diff: str) -> tuple[str, ...]:
    """The files a diff touches, in its order, relative to the tree."""
    named = re.findall(r"(?m)^(?:--- a|\+\+\+ b)/([^\t\n]+)", diff)
    return tuple(dict.fromkeys(named))


def hunk(diff: str, path: str, line: int) -> tuple[str, ...]:
    """The hunk of ``path`` that starts at ``line`` of the old file; empty if there is none."""
    within = False
    kept: list[str] = []
    for text in diff.splitlines():
        if text.startswith("--- "):
            within, kept = text == f"--- a/{path}", []
        elif within and text.startswith("@@ "):
            if kept:
                break
            if re.match(rf"@@ -{line}\b", text):
                kept.append(text)
        elif kept:
            kept.append(text)
    return tuple(kept)
