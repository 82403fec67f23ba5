"""``git apply`` on a plain folder: no repository, no configuration, no fuzz.

git skips every file of a diff in silence when the working directory lies below another
repository and the paths do not match its root, so it is shown that there is no repository at all
(GIT_DIR names none); whether the files really changed is for the caller to check.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from cpubuild.errors import ExitCode, fail
from cpubuild.run import Completed, capture

CONFIGURATION = ("core.autocrlf=false", "core.safecrlf=false", "apply.whitespace=nowarn")
SECONDS = 120.0


def apply(tree: Path, diff: str, *, check: bool = False, reverse: bool = False) -> Completed:
    """Run ``git apply`` with ``diff`` in ``tree``; ``check`` changes nothing. All or nothing."""
    with tempfile.TemporaryDirectory(prefix="cpubuild-patch-") as scratch:
        file = Path(scratch) / "patch.diff"
        file.write_bytes(encode(diff))
        argv = ["git"]
        for setting in CONFIGURATION:
            argv += ["-c", setting]
        argv += ["apply", "-p1", "--whitespace=nowarn"]
        argv += ["--check"] if check else []
        argv += ["--reverse"] if reverse else []
        done = capture(
            [*argv, str(file)], cwd=tree, timeout=SECONDS, env=_environment(Path(scratch))
        )
    if done.returncode == 127:
        raise fail(
            ExitCode.PREREQUISITE,
            "git cannot be started, and patches are applied through it",
            why=done.stderr.strip(),
            remedy=("Install git.",),
        )
    return done


def conflict(done: Completed) -> tuple[str | None, int | None]:
    """The file and the line of its hunk that git could not apply, as far as it says."""
    match = re.search(r"(?m)^error: patch failed: (.+):(\d+)$", done.stderr)
    if match:
        return match[1], int(match[2])
    match = re.search(r"(?m)^error: (.+?): ", done.stderr)
    return (match[1] if match else None), None


def encode(text: str) -> bytes:
    """Text read by ``decode`` as the bytes it came from."""
    return text.encode("utf-8", "surrogateescape")


def decode(data: bytes) -> str:
    """Bytes as text without loss: what is not UTF-8 survives, line ends stay as they are."""
    return data.decode("utf-8", "surrogateescape")


def _environment(scratch: Path) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_DIR": str(scratch / "no-repository"),
        "GIT_CEILING_DIRECTORIES": str(scratch),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "LC_ALL": "C",
    }
