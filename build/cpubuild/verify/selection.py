"""Which checks are wanted, and what each of them means."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cpubuild.errors import ExitCode, fail
from cpubuild.verify import knowledge
from cpubuild.verify.model import Level


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Which checks are wanted: those of the levels, narrowed by ``only`` and ``skip``."""

    levels: frozenset[str]
    only: frozenset[str] = frozenset()
    skip: frozenset[str] = frozenset()

    def wants(self, id_: str) -> bool:
        """Whether the check ``id_`` is wanted; names match whole ids and their first part."""
        names = {id_, id_.partition(".")[0]}
        if knowledge.checks()[id_].level not in self.levels or names & self.skip:
            return False
        return not self.only or bool(names & self.only)

    def any(self, prefix: str) -> bool:
        """Whether any check of a group is wanted."""
        return any(self.wants(i) for i in knowledge.checks() if i.startswith(prefix + "."))


def select(
    level: Level, *, server: bool, model: bool, only: Collection[str], skip: Collection[str]
) -> Selection:
    """The selection; raises a SETTINGS error that names ids which do not exist."""
    known = set(knowledge.checks()) | {i.partition(".")[0] for i in knowledge.checks()}
    strange = sorted({*only, *skip} - known)
    if strange:
        raise fail(
            ExitCode.SETTINGS,
            f"no such check: {', '.join(strange)}",
            why="ids and groups are " + ", ".join(sorted(known)),
        )
    levels = {"quick"} | ({"default"} if level == "default" else set())
    levels |= ({"server"} if server else set()) | ({"model"} if model else set())
    return Selection(levels=frozenset(levels), only=frozenset(only), skip=frozenset(skip))


def word_stages(selection: Selection) -> tuple[str, ...]:
    """Which stages of the words the first process must run for what is wanted."""
    compared = selection.wants("change.answers") or selection.wants("change.speed")
    if not selection.any("words") and not compared:
        return ("reference",) if selection.any("server") else ()
    compiled = selection.wants("words.compiled") or selection.wants("words.second_process")
    return ("reference", "eager", "compiled") if compiled else ("reference", "eager")


def explain(id_: str) -> str:
    """What a check means, in a few lines; raises a SETTINGS error for an unknown id."""
    info = knowledge.checks().get(id_)
    if info is None:
        raise fail(
            ExitCode.SETTINGS,
            f"no such check: {id_}",
            why="ids are " + ", ".join(knowledge.checks()),
        )
    needed = "the verdict needs it" if info.required else "it never fails the verdict by absence"
    return f"{id_}: {info.title} ({info.level}; {needed})\n{info.means}"
