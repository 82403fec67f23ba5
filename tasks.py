"""The Invoke face of vllm-cpu-build: ``invoke --list`` shows the verbs."""

from __future__ import annotations

import sys

try:
    from cpubuild.tasks import namespace
except ImportError as error:
    sys.stderr.write(
        f"FAIL this interpreter lacks {error.name}\n"
        "     why: the tool lives in an environment of its own, .venv\n"
        "     do:  make .venv && .venv/bin/invoke --list\n"
    )
    raise SystemExit(4) from error

__all__ = ["namespace"]
