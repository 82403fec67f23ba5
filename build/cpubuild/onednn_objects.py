"""Maintainer's tool: list the oneDNN sources that the linker keeps, from a link map.

    python -m cpubuild.onednn_objects MAP COMPILE_COMMANDS SOURCE > data/onednn/<version>.txt

MAP is the linker's map (-Wl,-Map=FILE) of vLLM's dnnl_helper.cpp, the only object that calls
oneDNN, linked against a full libdnnl.a; COMPILE_COMMANDS is CMake's compile_commands.json of that
build; SOURCE the oneDNN tree. Where two sources share an object's name, both are listed.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

MEMBER = re.compile(r"libdnnl\.a\(([^()]+)\.o\)")


def kept_sources(link_map: str, commands: list[dict[str, str]], source: Path) -> tuple[str, ...]:
    """The sources below ``source``, relative to it, whose objects the map names."""
    members = set(MEMBER.findall(link_map))
    files = {Path(command["file"]) for command in commands}
    inside = {file.relative_to(source) for file in files if file.is_relative_to(source)}
    return tuple(sorted(str(name) for name in inside if name.name in members))


def main(argv: list[str]) -> None:
    """Print the list with where it comes from."""
    link_map, commands, source = (Path(word) for word in argv)
    text = link_map.read_text(encoding="utf-8", errors="replace")
    rows = json.loads(commands.read_text(encoding="utf-8"))
    names = kept_sources(text, rows, source)
    total = sum(row["file"].startswith(f"{source}/") for row in rows)
    sys.stdout.write(f"# {len(names)} of {total} oneDNN sources are kept by the linker\n")
    sys.stdout.write("".join(f"{name}\n" for name in names))


if __name__ == "__main__":
    main(sys.argv[1:])
