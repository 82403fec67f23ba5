"""Every finding a check can make: its title, group and meaning, by stable id."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from cpubuild.choose.tables import table

GROUPS = (
    "host",
    "isa",
    "toolchain",
    "libraries",
    "python",
    "memory",
    "disk",
    "network",
    "container",
    "environment",
    "existing",
    "release",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One check: ``cases`` are the ids of the diagnosed failures it foresees."""

    id: str
    title: str
    text: str
    cases: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The part of the id before the dot."""
        return self.id.split(".", 1)[0]


@cache
def registry() -> dict[str, Check]:
    """All checks by id, in the order of the groups."""
    rows = dict(table("explain.toml"))
    for row in table("known.toml")["issue"]:
        rows[row["id"]] = {"title": row["title"], "text": row["why"], "cases": row["cases"]}
    checks = [
        Check(
            id=key,
            title=row["title"],
            text=" ".join(row["text"].split()),
            cases=tuple(row.get("cases", ())),
        )
        for key, row in rows.items()
    ]
    checks.sort(key=lambda check: GROUPS.index(check.group))
    return {check.id: check for check in checks}
