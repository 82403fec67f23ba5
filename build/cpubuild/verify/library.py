"""A kernel library as a file: which one vLLM would load, what it is linked to, what is in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cpubuild.verify import elf
from cpubuild.verify.knowledge import table

KERNEL = re.compile(r"^_C(_AVX\w+)?\.(abi3|cpython-[\w-]+)\.so$|^_C(_AVX\w+)?\.so$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Static:
    """What was read from a library file without running it; ``error`` when it could not be."""

    path: Path
    linkage: elf.Linkage | None
    instructions: tuple[tuple[str, int], ...]
    error: str = ""

    def has(self, isa: str) -> bool:
        """Whether the library holds instructions of ``isa`` in earnest."""
        least = {row["isa"]: row["least"] for row in table()["instructions"]}
        return dict(self.instructions).get(isa, 0) >= int(least[isa])

    def may_have(self, isa: str) -> bool:
        """Like ``has``, true where nothing could be counted."""
        return not self.instructions or self.has(isa)


def candidate(folder: Path, flags: frozenset[str]) -> Path | None:
    """The library vLLM's loader would take by this CPU's flags: for reading before loading."""
    names = ["_C"]
    if "avx512f" not in flags:
        names = ["_C_AVX2", "_C"]
    elif "avx512_bf16" not in flags:
        names = ["_C_AVX512", "_C"]
    for name in names:
        found = sorted(p for p in folder.glob(f"{name}.*so") if KERNEL.match(p.name))
        if found:
            return found[0]
    return None


def read_static(library: Path, torch_folder: Path | None, machine: str) -> Static:
    """Linkage and instruction counts of ``library``."""
    loaded_first = [torch_folder / "lib"] if torch_folder else []
    try:
        linkage = elf.analyse(library, loaded_first, elf.system_folders())
        code = elf.machine_code(library) if machine == "x86_64" else b""
    except Exception as error:  # a file that is no library at all is an answer too
        return Static(path=library, linkage=None, instructions=(), error=f"{library.name}: {error}")
    counted = tuple(
        (row["isa"], elf.count(code, row["pattern"])) for row in table()["instructions"] if code
    )
    return Static(path=library, linkage=linkage, instructions=counted)
