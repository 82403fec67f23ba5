"""The table of checks in docs/verify.md, made from data/verify.toml."""

from __future__ import annotations

from cpubuild.verify import knowledge


def checks_table() -> str:
    """A Markdown table of every check: id, level, whether the verdict needs it, what it is."""
    rows = ["| Check | Level | Needed | What it finds out |", "|---|---|---|---|"]
    for info in knowledge.checks().values():
        needed = "yes" if info.required else ""
        rows.append(f"| `{info.id}` | {info.level} | {needed} | {info.title}. {info.means} |")
    return "\n".join(rows) + "\n"
