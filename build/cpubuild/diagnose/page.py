"""The documentation page of the rules, generated from them."""

from __future__ import annotations

from cpubuild.diagnose.remedies import FAMILY_NAMES, shown
from cpubuild.diagnose.rules import Rule, load_rules

PHASES = ("resolve", "fetch", "install", "patch", "compile", "import", "detect", "run")
HEAD = """\
# What diagnose knows

This page is generated from `build/cpubuild/data/rules/` (`cpubuild.diagnose.rules_page`); a test
holds it. Ids are stable. `foreseen by` names the checks of `cpubuild check` that see the same
thing coming.

A log is cleaned first (colour, BuildKit and worker prefixes, time stamps, boxes, wrapped lines),
lines that healthy runs print are passed over, and wrappers' last words ("Engine core
initialization failed", "subprocess-exited-with-error", "ninja: build stopped") are never a cause.
Causes are ranked: what explains other findings first, then by confidence, then by position. When
no rule knows, the answer is `unknown` with the likeliest first error and what to collect.
"""


def rules_page(rules: tuple[Rule, ...] | None = None) -> str:
    """The page as Markdown."""
    rules = load_rules() if rules is None else rules
    parts = [HEAD]
    for phase in PHASES:
        chosen = sorted((r for r in rules if r.phase == phase), key=lambda r: r.id)
        if chosen:
            parts.append(f"\n## {phase}\n")
            parts += [_section(rule) for rule in chosen]
    return "".join(parts)


def _section(rule: Rule) -> str:
    facts = [f"category {rule.category}"]
    if rule.releases:
        facts.append(f"releases `{rule.releases}`")
    if rule.exit:
        facts.append("exit status " + ", ".join(map(str, rule.exit)))
    if rule.foreseen_by:
        facts.append("foreseen by " + ", ".join(f"`{c}`" for c in rule.foreseen_by))
    if rule.explains:
        facts.append("comes before " + ", ".join(f"`{c}`" for c in sorted(rule.explains)))
    lines = [f"\n### {rule.id}\n", f"\n{rule.title}.\n", f"\n{shown(rule.explanation)}\n"]
    lines.append("\n" + "; ".join(facts) + ".\n")
    lines.append("\n```text\n" + rule.examples[0].strip("\n") + "\n```\n\n")
    for key in sorted(rule.remedies, key=lambda k: (k == "general", k)):
        name = "" if key == "general" else f"{FAMILY_NAMES.get(key, key)}: "
        lines += [f"- {name}{text}\n" for text in rule.remedies[key]]
    return "".join(lines)
