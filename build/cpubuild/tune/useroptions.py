"""A user's own options for ``vllm serve``: kept, translated or refused, each with its reason."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cpubuild.choose.tables import table
from cpubuild.errors import CpuBuildError, ExitCode, Problem, fail
from cpubuild.findings import Finding, Status
from cpubuild.tune.model import Option, Tuning
from cpubuild.tune.tree import Tree

SUFFIXES = (".yaml", ".yml")
LENGTH = "--max-model-len"
# What decides over the cache besides: with one of these of the user's own nothing is known of it.
DECIDING = frozenset({"--kv-cache-memory-bytes", "--dtype", "--kv-cache-dtype"})
FLAG = re.compile(r"-{1,2}[A-Za-z]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """One option as it was given; no values: a switch."""

    name: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        return shlex.join([self.name, *self.values])


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What became of an option that the release does not know; ``now`` "": it was left out."""

    given: str
    now: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Translated:
    """The options that are good for the release, and what was changed to come there."""

    options: tuple[Given, ...]
    changes: tuple[Change, ...] = ()


def read(path: Path) -> tuple[Given, ...]:
    """Read a YAML file as vLLM's ``--config`` takes it, or a file with words of a command line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise wrong(path, str(error)) from error
    return from_yaml(path, text) if path.suffix in SUFFIXES else from_words(path, text)


def wrong(path: Path, reason: str) -> CpuBuildError:
    """The SETTINGS error for a file of options that cannot be used."""
    return fail(
        ExitCode.SETTINGS,
        f"--options {path}: {reason}",
        why="it must be YAML (.yaml, .yml) as `vllm serve --config` takes it, or words of a "
        "command line",
        remedy=("mend the file, or leave --options out",),
    )


def from_yaml(path: Path, text: str) -> tuple[Given, ...]:
    """The options of a YAML file: one mapping, each key an option."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        raise wrong(path, f"not YAML: {' '.join(str(error).split())[:200]}") from error
    if found is None:
        return ()
    if not isinstance(found, Mapping):
        raise wrong(path, f"it holds a {type(found).__name__}, not a mapping")
    return tuple(as_given(str(key), value) for key, value in found.items() if key != "model")


def as_given(key: str, value: Any) -> Given:
    """One entry of the mapping as the option that vLLM makes of it."""
    name = "--" + key.removeprefix("--").replace("_", "-")
    if value is True:
        return Given(name=name)
    if value is False:
        return Given(name="--no-" + name.removeprefix("--"))
    if isinstance(value, Mapping):
        return Given(name=name, values=(json.dumps(value),))
    if isinstance(value, list | tuple):
        return Given(name=name, values=tuple(str(v) for v in value))
    return Given(name=name, values=() if value is None else (str(value),))


def from_words(path: Path, text: str) -> tuple[Given, ...]:
    """The options among the words; what comes before the first of them is the command."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise wrong(path, f"its quotes do not close: {error}") from error
    found: list[Given] = []
    for word in words:
        if FLAG.match(word):
            name, equals, value = word.partition("=")
            if name.startswith("--"):
                name = name.replace("_", "-")
            found.append(Given(name=name, values=(value,) if equals else ()))
        elif found:
            found[-1] = Given(name=found[-1].name, values=(*found[-1].values, word))
    return tuple(found)


def translate(given: Sequence[Given], tree: Tree, release: str) -> Translated:
    """Keep what the release knows, translate what it once knew; refuse the rest, all at once."""
    if tree.options is None:
        return Translated(options=tuple(given))
    kept: list[Given] = []
    changes: list[Change] = []
    problems: list[Problem] = []
    for option in given:
        if known(option.name, tree.options):
            kept.append(option)
            continue
        row = gone(option.name)
        if row is None or row["action"] == "refuse" or unfit(row, option):
            problems.append(refusal(option, row, tree.options, release))
            continue
        now = tuple(renamed(row, option)) if row["action"] == "rename" else ()
        bad = [n for n in now if not known(n.name, tree.options)]
        if bad:
            problems.append(refusal(option, None, tree.options, release))
            continue
        kept += now
        words = " ".join(map(str, now))
        changes.append(Change(given=str(option), now=words, reason=row["reason"]))
    if problems:
        raise CpuBuildError(*problems)
    return Translated(options=tuple(kept), changes=tuple(changes))


def known(name: str, options: frozenset[str]) -> bool:
    """Whether a release takes an option: as it is, switched off, or a part of it by a dot."""
    base = name.split(".")[0]
    positive = "--" + base.removeprefix("--no-")
    return base in options or (base.startswith("--no-") and positive in options) or short(base)


def short(name: str) -> bool:
    """Whether it is -O with its level, the only option that is glued to its value."""
    return re.fullmatch(r"-O\d?", name) is not None


def gone(name: str) -> dict[str, Any] | None:
    """What the table knows of an option, None for nothing."""
    base = "--" + name.removeprefix("--").removeprefix("no-")
    rows: list[dict[str, Any]] = table("tune.toml")["option"]
    return next((row for row in rows if row["name"] in (name, base)), None)


def unfit(row: Mapping[str, Any], option: Given) -> bool:
    """Whether an option may not be dropped, because its value asks for something else."""
    return "only" in row and not set(option.values) <= set(row["only"])


def renamed(row: Mapping[str, Any], option: Given) -> Iterator[Given]:
    """The options that stand for it now."""
    name, *values = row["to"]
    yield Given(name=name, values=(*values, *option.values))


def refusal(
    option: Given, row: Mapping[str, Any] | None, options: frozenset[str], release: str
) -> Problem:
    """Why an option cannot be taken, and what to do."""
    if row is not None:
        value = " ".join(option.values)
        remedy = tuple(text.replace("VALUE", value or "VALUE") for text in row.get("remedy", ()))
        why = row["reason"]
    else:
        near = difflib.get_close_matches(option.name, sorted(options), n=1, cutoff=0.75)
        remedy = tuple(f"did you mean {name}?" for name in near)
        why = "vllm serve ends at once with an option that it does not know"
    return Problem(
        what=f"vLLM {release} does not take {option}",
        why=why,
        remedy=(*remedy, f"take {option.name} out of the file"),
        exit_code=ExitCode.SETTINGS,
    )


def merged(tuning: Tuning, given: Sequence[Given], origin: str) -> Tuning:
    """A tuning with the user's options: theirs win, are the last words, and may not fit."""
    names = {g.name for g in given}
    kept = [o for o in tuning.options if o.name not in names]
    return replace(
        tuning,
        options=(*kept, *(as_option(g, origin) for g in given)),
        findings=(*tuning.findings, *too_long(tuning, given, origin)),
    )


def too_long(tuning: Tuning, given: Sequence[Given], origin: str) -> tuple[Finding, ...]:
    """A context that was asked for and that the computed cache cannot keep: vLLM would end."""
    asked = {g.name: g.values[0] for g in given if g.values}
    length = asked.get(LENGTH, "")
    if tuning.cache_tokens is None or not length.isdigit() or DECIDING & set(asked):
        return ()
    if int(length) <= tuning.cache_tokens:
        return ()
    found = Finding(
        id="tune.options",
        status=Status.BLOCKER,
        title=f"{LENGTH} {length} of {origin} does not fit",
        found=f"the cache keeps {tuning.cache_tokens} tokens",
        needed=f"{length} tokens",
        why="vLLM ends at the start when one context does not fit into the cache",
        remedy=(
            f"{LENGTH} {tuning.cache_tokens}",
            "free memory, or raise the control group's limit",
        ),
        exit_code=ExitCode.SETTINGS,
    )
    return (found,)


def as_option(given: Given, origin: str) -> Option:
    """A given option as one of a tuning; several values stay one word each for ``arguments``."""
    value = given.values[0] if len(given.values) == 1 else None
    more = given.values if len(given.values) > 1 else ()
    return Option(name=given.name, value=value, values=more, reason=f"asked for in {origin}")
