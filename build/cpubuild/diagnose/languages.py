"""What programs say in other languages, in English, so that one rule answers to all of them."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources

from cpubuild.diagnose.literals import any_of


@cache
def phrases() -> dict[str, str]:
    """The phrases of ``data/rules/languages.toml``, by what they read like elsewhere."""
    path = resources.files("cpubuild").joinpath("data", "rules", "languages.toml")
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return {foreign: text for table in tables.values() for foreign, text in table.items()}


@cache
def _gate(plain: bool) -> re.Pattern[str]:
    """What a line with a phrase has; ``plain`` lines are ASCII and can only hold such phrases."""
    return re.compile(any_of(phrase for phrase in phrases() if not plain or phrase.isascii()))


@cache
def _expression() -> re.Pattern[str]:
    longest_first = sorted(phrases(), key=len, reverse=True)
    return re.compile("|".join(map(_whole, longest_first)))


def _whole(phrase: str) -> str:
    """The phrase where no letter of a longer word stands before it."""
    before = r"(?<![A-Za-z])" if phrase[0].isascii() and phrase[0].isalpha() else ""
    return before + re.escape(phrase)


def english(text: str) -> str:
    """``text`` with the known phrases of other languages in English."""
    if _gate(text.isascii()).search(text) is None:
        return text
    return _expression().sub(lambda found: phrases()[found[0]], text)
