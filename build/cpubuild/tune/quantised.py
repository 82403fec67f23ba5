"""Whether this release runs a quantised checkpoint on this processor, by its own files."""

from __future__ import annotations

from typing import Any

from cpubuild.choose.tables import table
from cpubuild.errors import ExitCode
from cpubuild.facts.isa import isa_of
from cpubuild.facts.model import Cpu
from cpubuild.findings import Finding, Status
from cpubuild.tune.shape import Shape
from cpubuild.tune.tree import Tree

TITLE = "quantised weights"


def judge(shape: Shape, tree: Tree, cpu: Cpu, release: str) -> tuple[Finding, ...]:
    """One finding for a quantised model, none for another; a kind without kernels is a blocker."""
    if shape.scheme is None:
        return ()
    if tree.site is None:
        return (finding(shape, Status.UNKNOWN, why="the release's own files were not found"),)
    rows = [r for r in table("tune.toml")["quantised"] if r["kind"] == shape.scheme]
    missing: list[str] = []
    for row in rows:
        why_not = lacking(row, tree, cpu)
        if why_not is None:
            return (finding(shape, Status.OK, why=row["price"], evidence=(row["file"],)),)
        missing.append(why_not)
    runs = ", ".join(kinds(tree, cpu)) or "none"
    why = "; ".join(dict.fromkeys(missing)) or "no release is known to run this kind on a CPU"
    return (
        finding(
            shape,
            Status.BLOCKER,
            needed=f"one of the kinds that {release} runs on this CPU: {runs}",
            why=why,
            remedy=("take the model in bfloat16", f"take a variant of these kinds: {runs}"),
        ),
    )


def kinds(tree: Tree, cpu: Cpu) -> tuple[str, ...]:
    """The kinds of quantisation that the release runs on this processor."""
    rows = table("tune.toml")["quantised"]
    return tuple(dict.fromkeys(r["kind"] for r in rows if lacking(r, tree, cpu) is None))


def lacking(row: dict[str, Any], tree: Tree, cpu: Cpu) -> str | None:
    """What a row needs that is not here, in words; None when it fits."""
    if not tree.matches(row["file"], row["text"]):
        return "this release has no kernel of that kind for CPUs"
    if cpu.arch not in row.get("arch", [cpu.arch]):
        return f"its kernel is one for {', '.join(row['arch'])}"
    wanted = row.get("isa", {}).get(cpu.arch, ())
    if wanted and not set(wanted) & isa_of(cpu):
        return f"its kernel needs {' or '.join(wanted)}, which this processor does not show"
    module = row.get("module")
    if module and tree.site is not None and not (tree.site / module).is_dir():
        return f"this release leaves it to {module}, which is not installed"
    return None


def finding(shape: Shape, status: Status, **words: Any) -> Finding:
    """The finding about a checkpoint's quantisation."""
    return Finding(
        id="tune.quantisation",
        status=status,
        title=TITLE,
        found=f"{shape.method}: {shape.scheme}",
        exit_code=ExitCode.UNSUPPORTED,
        **words,
    )
