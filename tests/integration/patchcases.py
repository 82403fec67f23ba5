"""Small real trees for the patch tests: the part of an sdist that patches read or change."""

from __future__ import annotations

import ast
import functools
import hashlib
import shutil
from pathlib import Path

from cpubuild import patching
from cpubuild.patching import PatchContext
from cpubuild.release import Release, read_release

from .sdists import sdist_tree

READ = (
    "setup.py",
    "CMakeLists.txt",
    "cmake/**/*",
    "requirements*.txt",
    "requirements/**/*",
    "vllm/config.py",
    "vllm/platforms/*",
    "vllm/triton_utils/*",
    "vllm/utils/cpu_triton_utils.py",
    "csrc/cpu/sgl-kernels/flash_mla.cpp",
)


@functools.cache
def source_of(version: str) -> Path:
    """The unpacked sdist itself, for reading only."""
    return sdist_tree(version)


def copy_of(version: str, target: Path) -> Path:
    """A private copy of what the patches may touch in the sdist of ``version``."""
    tree = source_of(version)
    for path in sorted({p for pattern in READ for p in tree.glob(pattern) if p.is_file()}):
        copied = target / path.relative_to(tree)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copied)
    return target


@functools.cache
def release_of(version: str, arch: str = "x86_64") -> Release:
    return read_release(source_of(version), arch=arch, version=version)


def debian_12(**changes: object) -> PatchContext:
    """The context of a Debian 12 host with AMX and no triton."""
    values: dict[str, object] = {
        "arch": "x86_64",
        "gcc_version": "12.2.0",
        "gcc_probe_ok": True,
        "x86_target": "_C",
    }
    return PatchContext(**{**values, **changes})  # type: ignore[arg-type]


def patched(version: str, target: Path, name: str, **changes: object) -> Path:
    """A copy of the sdist with just the patch ``name`` applied, which must have applied."""
    tree = copy_of(version, target)
    release, context = release_of(version), debian_12(**changes)
    chosen = {
        one.id: one
        for phase in ("source", "installed")
        for one in patching.select(release, context, phase=phase)
    }
    (applied,) = patching.apply(tree, [chosen[name]])
    assert applied.outcome is patching.Outcome.APPLIES
    return tree


def hashes(tree: Path) -> dict[str, str]:
    """The sha256 of every file below ``tree``."""
    return {
        p.relative_to(tree).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(tree.rglob("*"))
        if p.is_file()
    }


def definition(path: Path, name: str, *, within: str | None = None) -> ast.FunctionDef:
    """The function ``name`` of a Python file (of its class ``within``), without decorators."""
    nodes: list[ast.stmt] = ast.parse(path.read_text()).body
    if within is not None:
        nodes = next(n for n in nodes if isinstance(n, ast.ClassDef) and n.name == within).body
    found = next(n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == name)
    found.decorator_list = []
    return found


def run_nodes(nodes: list[ast.stmt], names: dict[str, object]) -> dict[str, object]:
    """Execute statements taken from a tree with the given names; what they define comes back."""
    module = ast.Module(body=nodes, type_ignores=[])
    future = ast.parse("from __future__ import annotations").body
    module.body = [*future, *nodes]
    exec(compile(ast.fix_missing_locations(module), "<tree>", "exec"), names)
    return names
