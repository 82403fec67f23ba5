"""The console script ``cpubuild``: the same Invoke tasks, for use outside the checkout."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any

from invoke.exceptions import ParseError
from invoke.program import Program

from cpubuild import __version__
from cpubuild.errors import ExitCode, fail

# Verbs with free arguments; Invoke has no optional positional ones, so they become options.
FREE_ARGUMENTS = {
    "ask": ("--text",),
    "bench": ("--model",),
    "diagnose": ("--path",),
    "model": ("--action", "--name"),
    "serve": ("--model",),
    "tune": ("--model",),
}


class CpuBuild(Program):
    """Invoke's program with this tool's exit code for arguments that cannot be parsed."""

    def parse_core(self, argv: list[str] | None) -> None:
        """Parse the arguments that come before the verb."""
        self._parse(super().parse_core, argv)

    def parse_tasks(self) -> None:
        """Parse the verb and its options."""
        self._parse(super().parse_tasks)

    def _parse(self, parse: Any, *arguments: Any) -> None:
        try:
            parse(*arguments)
        except ParseError as error:
            from cpubuild.tasks import failed, wished

            remedy = ("cpubuild --list", "cpubuild VERB --help")
            wrong = fail(ExitCode.SETTINGS, str(error), remedy=remedy)
            json = "--json" in sys.argv or wished("JSON")
            raise SystemExit(int(failed("", wrong, json=json))) from error


def with_options(argv: Sequence[str]) -> list[str]:
    """Turn the free arguments of the verbs that take some into options, in their order."""
    verb = next((i for i, word in enumerate(argv) if not word.startswith("-")), None)
    if verb is None or argv[verb] not in FREE_ARGUMENTS:
        return list(argv)
    free, result = list(FREE_ARGUMENTS[argv[verb]]), list(argv[: verb + 1])
    with_value = valued(argv[verb])
    rest = list(argv[verb + 1 :])
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*result, word, *rest]
        if word in with_value and rest:
            result += [word, rest.pop(0)]
        elif free and (word == "-" or not word.startswith("-")):
            result += [free.pop(0), word]
        else:
            result.append(word)
    return result


def valued(verb: str) -> frozenset[str]:
    """The options of a verb that take a value."""
    from cpubuild.tasks import namespace

    parameters = inspect.signature(namespace[verb].body).parameters.values()
    names = (p.name.rstrip("_") for p in parameters if p.default is None)
    return frozenset("--" + name.replace("_", "-") for name in names)


def main() -> None:
    """Run the console script."""
    from cpubuild.tasks import namespace

    program = CpuBuild(namespace=namespace, version=__version__, name="cpubuild", binary="cpubuild")
    argv = with_options(sys.argv[1:])
    program.run(["cpubuild", *argv])
