"""The patch series: what a release needs on this host, applied, recorded and undone through git."""

from cpubuild.patching.engine import apply, check, reverse
from cpubuild.patching.model import Applied, Checked, Outcome, PatchContext, Selected, Touched
from cpubuild.patching.predicate import select

__all__ = [
    "Applied",
    "Checked",
    "Outcome",
    "PatchContext",
    "Selected",
    "Touched",
    "apply",
    "check",
    "reverse",
    "select",
]
