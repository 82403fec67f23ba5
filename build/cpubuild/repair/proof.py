"""Prove that an installation is one CPU build before anything of it is changed, or say why not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cpubuild.errors import ExitCode, fail
from cpubuild.verify import elf, identity
from cpubuild.verify.library import KERNEL

FOREIGN = re.compile(r"cuda|cudart|cublas|amdhip|torch_hip|rocm|sycl|torch_xpu")
OF_CPU = b"init_cpu_"


def refuse(what: str, why: str) -> Exception:
    """The error for an installation that cannot be made right without a rebuild."""
    return fail(
        ExitCode.VERIFY,
        f"not repaired: {what}",
        why=why,
        remedy=("install a CPU build of vllm into a new environment (make bootstrap)",),
    )


def owner(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The one distribution that the module belongs to; None: there is none.

    Raises when the module is not there, or more than one distribution claims it.
    """
    found = document["distributions"]
    if not document["module"]["origin"]:
        raise refuse("the module vllm is not there", "metadata cannot stand in for files")
    if len(found) > 1:
        names = ", ".join(identity.spell(d) for d in found)
        raise refuse(
            f"{len(found)} distributions claim the module vllm: {names}",
            "it must be clear whose files they are before metadata can say so",
        )
    return found[0] if found else None


def recorded(dist: Mapping[str, Any] | None) -> bool:
    """Whether a distribution has the record of vllm's files that true metadata starts from."""
    if dist is None:
        return False
    holds = "record" in dist["claims"] or dist["editable"]
    return bool(str(dist["folder"]).endswith(".dist-info") and dist.get("record") and holds)


def cpu_library(document: Mapping[str, Any]) -> Path:
    """The kernel library, proved to be a CPU build by what it is linked to and what it holds."""
    root = Path(document["module"]["origin"]).parent
    names: list[str] = document["module"]["libraries"]
    libraries = [root / n for n in names if KERNEL.match(n)]
    if not libraries:
        raise refuse(f"{root} has no kernel library", "there is nothing that could be a CPU build")
    for library in libraries:
        try:
            with elf.opened(library) as opened:
                needed, _ = elf.needed(opened)
        except Exception as error:
            raise refuse(f"{library} cannot be read: {error}", "it may be damaged") from error
        foreign = [n for n in needed if FOREIGN.search(n)]
        if foreign:
            raise refuse(
                f"{library.name} is linked to {', '.join(foreign)}",
                "a build for GPUs stays one, whatever its metadata says",
            )
        if not holds_text(library, OF_CPU):
            raise refuse(
                f"{library.name} holds none of the CPU backend's operators",
                "only a CPU build may be called one",
            )
    return libraries[0]


def holds_text(path: Path, text: bytes) -> bool:
    """Whether a file holds ``text``; read in pieces."""
    kept = b""
    with path.open("rb") as source:
        while piece := source.read(1 << 24):
            if text in kept + piece:
                return True
            kept = piece[-len(text) :]
    return False
