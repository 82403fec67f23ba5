"""Run the tool in this process and write down when it waited for processes it had started.

Usage: ``python traced.py OUT.json VERB...``: the verb of cpubuild, every call of its one process
runner noted as (seconds since start, seconds until end, program and first argument).
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEGAN = time.monotonic()


def noting(function: Callable[..., Any], calls: list[tuple[float, float, str]]) -> Any:
    """``function`` with each of its calls noted."""

    @functools.wraps(function)
    def noted(argv: Any, *given: Any, **named: Any) -> Any:
        start = time.monotonic()
        try:
            return function(argv, *given, **named)
        finally:
            words = " ".join(Path(str(word)).name for word in list(argv)[:3])
            calls.append((start - BEGAN, time.monotonic() - BEGAN, words))

    return noted


def main() -> None:
    """Run the verb, then write the calls and the whole time."""
    out = Path(sys.argv[1])
    calls: list[tuple[float, float, str]] = []
    from cpubuild import run

    for name in ("capture", "logged"):
        setattr(run, name, noting(getattr(run, name), calls))
    from cpubuild.cli import main as cli

    sys.argv = ["cpubuild", *sys.argv[2:]]
    try:
        cli()
    finally:
        document = {"seconds": time.monotonic() - BEGAN, "calls": sorted(calls)}
        out.write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main()
