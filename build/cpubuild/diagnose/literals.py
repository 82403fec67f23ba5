"""Find, before any regular expression runs, which patterns can match a line at all.

Every pattern must contain a literal word; one trie of all these words is searched first, so
that the cost of a log grows with its length and not with the number of rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SHORTEST = 4
WORTH = 3
COMMON_TEXT = """
available building build built cannot checkpoint cmake cmake/ compile compiled could cpu/ device
directory error error: errors exit failed failed: fatal file files found found: have import info
install installed invalid kernel library linking loading loading: made make memory missing model
module name named object open package packages path process python read register required
requires running server size space such support supported system torch type unable using valid
version vllm vllm. vllm/ warning with worker working
"""
COMMON = frozenset(COMMON_TEXT.split())
_BREAKS = frozenset(" \t-'\"`")
_Trie = dict[str, "_Trie"]


def literal_runs(pattern: str) -> list[str]:
    """The runs of literal characters every match of ``pattern`` contains, lower case.

    Groups, classes and whatever a quantifier makes optional are left out; runs end at white
    space and hyphens, where wrapping may cut. A pattern with alternatives at its top has none.
    """
    runs: list[str] = []
    run: list[str] = []
    position = 0

    def end() -> None:
        if run:
            runs.append("".join(run).lower())
            run.clear()

    while position < len(pattern):
        char = pattern[position]
        if char == "|":
            return []
        if char == "(":
            end()
            position = _skip_group(pattern, position)
            continue
        if char == "[":
            end()
            position = _skip_class(pattern, position)
            continue
        if char in "?*{":
            if run:
                run.pop()
            end()
            position = pattern.find("}", position) + 1 if char == "{" else position + 1
            continue
        if char == "\\" and position + 1 < len(pattern):
            char = pattern[position + 1]
            position += 2
            if char.isalnum():
                end()
                continue
        else:
            position += 1
            if char in ".^$+":
                end()
                continue
        if char in _BREAKS:
            end()
        else:
            run.append(char)
    end()
    return runs


def words_of(pattern: str) -> tuple[str, ...]:
    """The literal runs long enough to be looked for, the rarest first."""
    runs = {run for run in literal_runs(pattern) if len(run) >= WORTH}
    return tuple(sorted(runs, key=lambda run: (run in COMMON, -len(run), run)))


def gate_word(pattern: str) -> str | None:
    """The literal run of a pattern that occurs most rarely, None when none is long enough."""
    return next((word for word in words_of(pattern) if len(word) >= SHORTEST), None)


class Gate:
    """All gate words as one expression; ``words`` of a lower-case text in one pass."""

    def __init__(self, words: Iterable[str]) -> None:
        known = sorted(set(words))
        body = any_of(known)
        self._first = re.compile(body)
        self._every = re.compile(f"(?=({body}))")
        self._implied = {
            word: frozenset(other for other in known if word.startswith(other)) for word in known
        }

    def opens(self, lower: str) -> bool:
        """Whether any gate word occurs."""
        return self._first.search(lower) is not None

    def words(self, lower: str) -> frozenset[str]:
        """Every gate word that occurs."""
        if not self.opens(lower):
            return frozenset()
        found: set[str] = set()
        for word in set(self._every.findall(lower)):
            found |= self._implied[word]
        return frozenset(found)


def any_of(words: Iterable[str]) -> str:
    """One expression for all words, by their common beginnings: far faster than alternatives."""
    return _expression(_trie(words)) or r"(?!)"


def _trie(words: Iterable[str]) -> _Trie:
    root: _Trie = {}
    for word in words:
        node = root
        for char in word:
            node = node.setdefault(char, {})
        node[""] = {}
    return root


def _expression(node: _Trie) -> str:
    branches = [re.escape(char) + _expression(child) for char, child in node.items() if char]
    if not branches:
        return ""
    body = branches[0] if len(branches) == 1 else "|".join(branches)
    if "" in node:
        return f"(?:{body})?"
    return body if len(branches) == 1 else f"(?:{body})"


def _skip_class(pattern: str, position: int) -> int:
    """Index after the character class that starts at ``position``."""
    position += 1
    if pattern[position : position + 1] == "^":
        position += 1
    if pattern[position : position + 1] == "]":
        position += 1
    while position < len(pattern) and pattern[position] != "]":
        position += 2 if pattern[position] == "\\" else 1
    return position + 1


def _skip_group(pattern: str, position: int) -> int:
    """Index after the group that starts at ``position``."""
    depth = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            position += 2
            continue
        if char == "[":
            position = _skip_class(pattern, position)
            continue
        depth += {"(": 1, ")": -1}.get(char, 0)
        position += 1
        if depth == 0:
            break
    return position
