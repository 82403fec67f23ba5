"""A bootstrap that has nothing to do, against Invoke listing an empty tasks file.

Needs an installation: run a bootstrap of the same settings into the same state root before.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import lib


def unchanged(stdout: str) -> dict[str, Any]:
    """Hold that nothing was done."""
    document = json.loads(stdout)
    if document["changed"]:
        raise SystemExit("this bootstrap had something to do; run it again")
    return {"seconds_inside": document["seconds"]}


def main() -> None:
    """Run the bench."""
    options = lib.parser("nothing_to_do", __doc__ or "", runs=15)
    options.add_argument("--state", type=Path, help="state root that holds the installation")
    given = options.parse_args()
    state = lib.state_of(given.state)
    lib.current(state)
    where = ["bootstrap", "--state", str(state), "--json"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tasks.py").write_text("", encoding="utf-8")
        cases = [
            lib.Case(
                name="empty tasks file, --list",
                run=lambda: lib.timed(
                    [lib.TOOL / "invoke", "--list"], cwd=Path(folder), accept=(0, 1)
                ),
            ),
            lib.Case(
                name="cpubuild bootstrap",
                run=lambda: lib.timed([lib.TOOL / "cpubuild", *where], keep=unchanged),
                target=2.0,
            ),
            lib.Case(
                name="invoke bootstrap",
                run=lambda: lib.timed([lib.TOOL / "invoke", *where], keep=unchanged),
                target=2.0,
            ),
        ]
        host = lib.host()
        rows = lib.rounds(cases, runs=given.runs)
    lib.finish(
        lib.Result(
            bench="nothing_to_do",
            claim="A bootstrap with nothing to do, against Invoke's own start",
            host=host,
            rows=rows,
        ),
        given.out,
    )


if __name__ == "__main__":
    main()
