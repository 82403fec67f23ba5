"""cpubuild check against `vllm collect-env` of an installed vLLM.

collect-env prints what it finds, without a verdict; check judges the host against a release.
"First look" starts without the kept results of the compiler probes.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import lib

# What check may end with: fine, or a host that lacks something. The time is the same.
VERDICTS = (0, 3, 4, 5)


def judged(stdout: str) -> dict[str, Any]:
    """How many findings it took."""
    document = json.loads(stdout)
    return {"findings": len(document["findings"])}


def main() -> None:
    """Run the bench."""
    options = lib.parser("check", __doc__ or "", runs=5)
    options.add_argument("--state", type=Path, help="state root whose current vLLM is asked")
    options.add_argument("--env", type=Path, help="environment to ask instead of the current one")
    given = options.parse_args()
    state = lib.state_of(given.state)
    vllm = (given.env or lib.current(state)).absolute() / "bin" / "vllm"

    def check(root: Path | str) -> lib.Sample:
        argv = [lib.TOOL / "cpubuild", "check", "--state", str(root), "--json"]
        return lib.timed(argv, accept=VERDICTS, keep=judged)

    def first_look() -> lib.Sample:
        with tempfile.TemporaryDirectory() as folder:
            return check(Path(folder) / "state")

    # In an environment without pip, which uv makes, collect-env asks uv for the packages.
    environ = os.environ | {"PATH": f"{os.environ['PATH']}:{lib.TOOL}"}
    with tempfile.TemporaryDirectory() as folder:
        cases = [
            lib.Case(
                name="vllm collect-env",
                run=lambda: lib.timed([vllm, "collect-env"], cwd=Path(folder), env=environ),
            ),
            lib.Case(name="cpubuild check", run=lambda: check(state)),
            lib.Case(name="cpubuild check, first look", run=first_look),
        ]
        host = lib.host()
        rows = lib.rounds(cases, runs=given.runs)
    median = rows[1].median
    lib.finish(
        lib.Result(
            bench="check",
            claim="Looking at a host and judging it, against vllm collect-env",
            host=host,
            rows=rows,
            notes=(f"target of check: 1.5 s; {'met' if median <= 1.5 else 'MISSED'}",),
        ),
        given.out,
    )


if __name__ == "__main__":
    main()
