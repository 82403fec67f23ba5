"""Settings and plans as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpubuild import ui
from cpubuild.settings import Resolved

if TYPE_CHECKING:
    from cpubuild.gather import Gathered
    from cpubuild.plan import Plan
    from cpubuild.survey import Survey


def settings_lines(resolved: Resolved) -> list[str]:
    """Every setting, its value and where it came from."""
    rows = ["settings"]
    width = max(len(name) for name, _, _ in resolved.origins)
    rows += [
        f"     {name:<{width}} {value}   ({origin})" for name, value, origin in resolved.origins
    ]
    return rows + [f"{ui.mark('warn')} {warning}" for warning in resolved.warnings]


def plan_lines(gathered: Gathered, plan: Plan, survey: Survey) -> list[str]:
    """The choices with their reasons, the patches, the steps, what is left to do."""
    rows = [f"plan {plan.id}"]
    for choice in gathered.inputs.choices:
        rows.append(f"     {choice.what:<10} {choice.taken}")
        rows.append(f"     {'':<10} because {choice.reason}")
        rows += [f"     {'':<10} not {refused}" for refused in choice.rejected]
    rows += [f"     patch      {p.id}: {p.reason}" for p in gathered.patches]
    rows.append(f"     jobs       {gathered.jobs}: {gathered.jobs_reason}")
    rows += package_lines(survey)
    rows += [f"{ui.mark('warn')} {warning}" for warning in gathered.inputs.warnings]
    for step in plan.steps:
        rows.append(f"     [{'x' if step.done else ' '}] {step.title} ({step.reason})")
    rows.append(f"     {len(plan.left)} of {len(plan.steps)} steps left")
    return rows


def package_lines(survey: Survey) -> list[str]:
    """The OS packages that are missing, and the command that installs them."""
    if not survey.missing:
        return []
    from cpubuild import system

    root = survey.facts.container.root
    line = system.one_line(system.install_command(survey.facts.distro, survey.missing, root=root))
    rows = [f"     package    {' '.join(p.names)}: {p.reason}" for p in survey.missing]
    verb = "will be installed" if survey.installs else "not installed by this run"
    return [*rows, f"     {verb}: {line}"]
