"""The rules as frozen data, read from ``data/rules/*.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Literal

Tier = Literal["cause", "generic", "notice"]
Confidence = Literal["high", "medium", "low"]
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")
TIERS: tuple[Tier, ...] = ("cause", "generic", "notice")
SPECIAL_FILES = frozenset({"lines.toml", "lookups.toml", "languages.toml"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """One way a rule shows itself in a log; everything stated must hold.

    ``any``: one of these matches; ``all``: each matches somewhere; ``near``: one of these lies
    within ``within`` lines of an ``any``; ``absent``: none matches anywhere; ``unless``: a line
    that matches one of these does not count. ``exit`` requires one of these statuses (negative:
    signal). ``arch`` names the architectures it is meant for; elsewhere it stays a low confidence,
    for the log may come from another host. ``same`` and ``differs`` name a group whose values are
    all equal, or are not. ``tier``: a cause; a generic finding, shown only where no cause is; a
    notice, which a healthy run may print too.
    """

    any: tuple[str, ...] = ()
    all: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    within: int = 40
    absent: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    exit: tuple[int, ...] = ()
    arch: tuple[str, ...] = ()
    same: str = ""
    differs: str = ""
    tier: Tier = "cause"
    confidence: Confidence = "high"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One kind of failure: how it shows, what it means, what mends it.

    ``releases`` is a specifier set ("" means any). ``explains`` names rules that are secondary
    to this one, ``after`` rules this one is secondary to. ``exit`` are statuses that make it
    certain. ``persistent`` findings count although the command ended with status 0.
    ``lookup`` maps a table of ``lookups.toml`` to the group that is the key. ``remedies`` is
    keyed by ``general``, a package family, or ``<distribution id>-<version>``.
    """

    id: str
    title: str
    phase: str
    category: str
    explanation: str
    match: tuple[Match, ...]
    remedies: dict[str, tuple[str, ...]]
    examples: tuple[str, ...]
    counterexamples: tuple[str, ...]
    releases: str = ""
    explains: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    exit: tuple[int, ...] = ()
    foreseen_by: tuple[str, ...] = ()
    persistent: bool = False
    lookup: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class LineKinds:
    """Patterns about lines in general.

    ``noise`` is what healthy runs print too, ``wrapper`` a last word that names no cause,
    ``success`` a sign that all went well; ``strong`` and ``weak`` are errors by their look, and
    ``exit`` are exit statuses told in words.
    """

    noise: tuple[str, ...]
    wrapper: tuple[str, ...]
    success: tuple[str, ...]
    strong: tuple[str, ...]
    weak: tuple[str, ...]
    exit: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _File:
    rule: tuple[Rule, ...]


Lookups = dict[str, dict[str, dict[str, str]]]


def _text(name: str) -> str:
    folder = resources.files("cpubuild").joinpath("data", "rules")
    return folder.joinpath(name).read_text(encoding="utf-8")


def rule_files() -> tuple[str, ...]:
    """Names of the files that hold rules, sorted."""
    folder = resources.files("cpubuild").joinpath("data", "rules")
    names = (entry.name for entry in folder.iterdir())
    return tuple(sorted(n for n in names if n.endswith(".toml") and n not in SPECIAL_FILES))


@cache
def load_rules() -> tuple[Rule, ...]:
    """All rules, strictly read: an unknown key or a wrong type raises with its path."""
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True)
    return tuple(
        rule
        for name in rule_files()
        for rule in converter.structure(tomllib.loads(_text(name)), _File).rule
    )


@cache
def load_line_kinds() -> LineKinds:
    """The patterns of ``lines.toml``."""
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True)
    return converter.structure(tomllib.loads(_text("lines.toml")), LineKinds)


@cache
def load_lookups() -> Lookups:
    """The tables of ``lookups.toml``: table -> key -> family -> package."""
    return tomllib.loads(_text("lookups.toml"))
