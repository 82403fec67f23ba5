"""The packages of the operating system that are missing, in one line."""

from __future__ import annotations

from collections.abc import Iterator

from cpubuild.assess.base import Context, fine, state
from cpubuild.findings import Finding, Status
from cpubuild.system import install_command, missing_packages, one_line


def packages(ctx: Context) -> Iterator[Finding]:
    """What the package manager would be asked for."""
    missing = missing_packages(ctx.facts, ctx.release)
    if not missing:
        yield fine("host.packages", "nothing is missing that has a package here")
        return
    required = [p for p in missing if p.required]
    names = " ".join(dict.fromkeys(name for p in missing for name in p.names))
    commands = install_command(ctx.facts.distro, missing, root=ctx.facts.container.root)
    yield state(
        "host.packages",
        Status.WARN if required else Status.OK,
        names,
        needed=" ".join(dict.fromkeys(n for p in required for n in p.names)) or "none of them",
        why="Each stands in the finding it belongs to; this is all of them at once.",
        remedy=tuple(filter(None, (one_line(commands),))),
        evidence=tuple(f"{' '.join(p.names)}: {p.reason}" for p in missing),
    )


JUDGES = (packages,)
