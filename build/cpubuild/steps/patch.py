"""The patched tree: a copy of the release's own, with the series applied and recorded."""

from __future__ import annotations

import shutil

from cpubuild import jsonio, patching
from cpubuild.state import now
from cpubuild.steps.context import Context


def patch(ctx: Context) -> None:
    """Copy the tree and apply the selected patches; the record is written when all hold."""
    tree = ctx.build / "tree"
    shutil.rmtree(ctx.build, ignore_errors=True)
    ctx.build.mkdir(parents=True)
    shutil.copytree(ctx.inputs.tree, tree, symlinks=True)
    applied = patching.apply(tree, ctx.patches)
    jsonio.write(ctx.build / "patched.json", {"created": now(), "applied": list(applied)})
