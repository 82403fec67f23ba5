"""Write the section "Modules" of docs/architecture.md from the docstrings of the package.

python tests/unit/docs/make_modules.py
"""

from __future__ import annotations

import ast
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "build" / "cpubuild"
PAGE = ROOT / "docs" / "architecture.md"
HEAD, TAIL = "\n## Modules\n", "\n## Decisions, and why\n"
PREFACE = """
The first sentence of each module's docstring, written here by `tests/unit/docs/make_modules.py`.
`__init__.py` holds what a package offers.
"""


def sentence(path: Path) -> str:
    """The first paragraph of a module's docstring, for a cell of a table."""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    line = " ".join(doc.split("\n\n")[0].split()).rstrip(".")
    return line.replace("|", "\\|").replace("``", "`")


def modules() -> list[Path]:
    """Every module but the packages' own files, by folder."""
    found = (p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py")
    return sorted(found, key=lambda p: (p.parent.relative_to(PACKAGE).as_posix(), p.name))


def section() -> str:
    """The text between the heading of this section and the next."""
    parts = [PREFACE]
    for folder, members in groupby(modules(), key=lambda p: p.parent):
        name = folder.relative_to(PACKAGE).as_posix()
        title = "The package itself" if name == "." else f"{name}/"
        parts.append(f"\n### {title}\n")
        if name != ".":
            parts.append(f"\n{sentence(folder / '__init__.py')}.\n")
        parts.append("\n| module | |\n|---|---|\n")
        parts += [f"| `{p.relative_to(PACKAGE).as_posix()}` | {sentence(p)} |\n" for p in members]
    return "".join(parts)


def page(text: str) -> str:
    """The page with the section made anew."""
    before, _, rest = text.partition(HEAD)
    return before + HEAD + section() + TAIL + rest.partition(TAIL)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
