"""A tuning for people and for programs: a table, and a document."""

from __future__ import annotations

from typing import Any

from cpubuild.findings import Finding, Status
from cpubuild.tune.model import Tuning
from cpubuild.ui import mark

SCHEMA = 1


def document(tuning: Tuning) -> dict[str, Any]:
    """The document of ``tune --json`` (data/schemas/tune.json)."""
    return {
        "schema": SCHEMA,
        "environment": tuning.env,
        "release": tuning.release,
        "model": tuning.model,
        "fits": tuning.fits,
        "variables": tuning.variables,
        "options": tuning.options,
        "removed": [{"name": n, "reason": r} for n, r in tuning.removed],
        "launcher": tuning.launcher,
        "cache_tokens": tuning.cache_tokens,
        "memory": tuning.memory,
        "arguments": tuning.arguments(),
        "findings": tuning.findings,
    }


def lines(tuning: Tuning) -> list[str]:
    """The table: name, value, reason; then what was found."""
    rows = [(v.name, v.value, v.reason) for v in tuning.variables]
    rows += [(o.name, " ".join(o.words()[1:]), o.reason) for o in tuning.options]
    rows += [(n, "(unset)", r) for n, r in tuning.removed]
    if tuning.launcher:
        rows.append(("started by", " ".join(tuning.launcher), "see memory binding below"))
    width = max(len(name) for name, _, _ in rows)
    shown = [f"vLLM {tuning.release} in {tuning.env}", f"model: {tuning.model or 'any'}", ""]
    for name, value, reason in rows:
        shown += [f"{name:<{width}}  {value}", f"{'':<{width}}    {reason}"]
    shown.append("")
    for finding in tuning.findings:
        shown += finding_lines(finding)
    return shown


def finding_lines(finding: Finding) -> list[str]:
    """One finding: its title, and what stands behind it unless it is well."""
    rows = [f"{mark(finding.status)} {finding.title}"]
    if finding.found and finding.found != finding.title:
        rows.append(f"     {finding.found}")
    if finding.status is not Status.OK:
        rows += [f"     needed: {finding.needed}"] if finding.needed else []
        rows += [f"     why: {finding.why}"] if finding.why else []
        rows += [f"     do:  {text}" for text in finding.remedy]
    return rows
