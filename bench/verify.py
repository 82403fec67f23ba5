"""cpubuild verify, default level, against a bare script with the same LLM() calls.

The bare script starts the same engines on the same model with the same options, in as many
processes and from compile caches just as empty, asks each of them the same prompts once, and
judges nothing. What verify does beyond that (the file checks, the operators one by one, the
reference by transformers, more questions to each engine) is its own cost.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import lib

EXTRA: dict[str, dict[str, Any]] = {
    "eager": {"dtype": "float32", "enforce_eager": True},
    "compiled": {"dtype": "float32"},
    "second": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16", "enforce_eager": True},
}
PROCESSES = (("eager", "compiled"), ("second", "bfloat16"))


def verified(env: Path, state: Path) -> lib.Sample:
    """One verification into a state root of its own."""
    argv = [lib.TOOL / "cpubuild", "verify", "--target", env, "--state", state, "--json"]
    return lib.timed(argv, accept=(0, 8), keep=verdict)


def verdict(stdout: str) -> dict[str, Any]:
    """What verify said."""
    document = json.loads(stdout)
    return {"verdict": document["verdict"], "checks": len(document["checks"])}


def calls_of(state: Path) -> dict[str, Any]:
    """The engines that a verification started, from the documents it left."""
    (documents,) = state.glob("runs/*/documents")

    def read(name: str) -> Any:
        return json.loads((documents / f"{name}.json").read_text(encoding="utf-8"))

    base = {k: v for k, v in read("eager")["options"].items() if k not in EXTRA["eager"]}
    made = [name for name in EXTRA if (documents / f"{name}.json").exists()]
    reference = read("reference")
    return {
        "model": reference["model"],
        "prompts": [[p["ids"], len(p["tokens"])] for p in reference["prompts"]],
        "options": {name: {**base, **EXTRA[name]} for name in made},
    }


def bare(env: Path, calls: Path, names: list[list[str]]) -> lib.Sample:
    """The same engines by the bare script, from empty compile caches."""
    from cpubuild.verify.target import Target

    with tempfile.TemporaryDirectory() as folder:
        target = Target(python=env / "bin" / "python", folder=Path(folder))
        target.prepare(fresh_caches=True)
        samples = [
            lib.timed(
                [target.python, lib.HERE / "bare.py", calls, *group],
                env=target.clean(),
                cwd=target.neutral,
            )
            for group in names
        ]
    return lib.Sample(wall=sum(s.wall for s in samples), cpu=sum(s.cpu for s in samples))


def main() -> None:
    """Run the bench."""
    options = lib.parser("verify", __doc__ or "", runs=3)
    options.add_argument("--state", type=Path, help="state root whose current vLLM is verified")
    options.add_argument("--env", type=Path, help="environment instead of the current one")
    given = options.parse_args()
    env = (given.env or lib.current(lib.state_of(given.state))).absolute()
    host = lib.host()
    with tempfile.TemporaryDirectory() as folder:
        lib.say("warming up: cpubuild verify, whose engines the bare script starts again")
        verified(env, Path(folder) / "first")
        document = calls_of(Path(folder) / "first")
        calls = Path(folder) / "calls.json"
        calls.write_text(json.dumps(document), encoding="utf-8")
        groups = [[n for n in names if n in document["options"]] for names in PROCESSES]
        groups = [names for names in groups if names]

        def verify() -> lib.Sample:
            with tempfile.TemporaryDirectory() as state:
                return verified(env, Path(state))

        cases = [
            lib.Case(name="bare script", run=lambda: bare(env, calls, groups)),
            lib.Case(name="cpubuild verify", run=verify),
        ]
        rows = lib.rounds(cases, runs=given.runs, warm=False)
    names = ", ".join(document["options"])
    lib.finish(
        lib.Result(
            bench="verify",
            claim="A verification, against a bare script with the same LLM() calls",
            host=host,
            rows=rows,
            notes=(f"engines started by both: {names}",),
        ),
        given.out,
    )


if __name__ == "__main__":
    main()
