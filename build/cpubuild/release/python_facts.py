"""What the Python files of a tree say, by their syntax trees; nothing of the tree is imported."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cpubuild.release.files import read_text, unreadable

SETUP = "setup.py"
ENVS = "vllm/envs.py"
PLATFORMS = "vllm/platforms/__init__.py"
ARGUMENTS = "vllm/engine/arg_utils.py"
CPU_MODULES = (
    "vllm/platforms/cpu.py",
    "vllm/platforms/zen_cpu.py",
    "vllm/worker/cpu*.py",
    "vllm/v1/worker/cpu*.py",
    "vllm/utils/*.py",
)
TABLE = "environment_variables"
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*$")


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupFacts:
    """What setup.py says; ``python_requires`` is None where it leaves that to pyproject.toml."""

    python_requires: str | None
    imports_setuptools_rust: bool
    version_override: bool
    cmake_args: bool
    env_names: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlatformFacts:
    """How vllm.platforms recognises a CPU build, and whether CUDA yields to it."""

    detection: Literal["version", "env"]
    cuda_yields: bool


def syntax_tree(tree: Path, name: str, expected: str) -> ast.Module:
    """The syntax tree of a Python file of the tree."""
    text = read_text(tree, name, expected)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        where = f"{name}:{error.lineno or 1}"
        raise unreadable(where, f"not Python: {error.msg}", expected) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise unreadable(name, f"not Python: {error}", expected) from None


def read_setup(tree: Path) -> SetupFacts:
    """Read setup.py."""
    module = syntax_tree(tree, SETUP, "the build script with its setup() call")
    setup = next((c for c in _calls(module) if _dotted(c.func).endswith("setup")), None)
    if setup is None:
        raise unreadable(SETUP, "there is no setup() call", "setup(...)")
    names = environment_reads(module)
    return SetupFacts(
        python_requires=_text_keyword(setup, "python_requires"),
        imports_setuptools_rust=any(m.split(".")[0] == "setuptools_rust" for m in _imports(module)),
        version_override="VLLM_VERSION_OVERRIDE" in names,
        cmake_args="CMAKE_ARGS" in names,
        env_names=names,
    )


def read_platforms(tree: Path) -> PlatformFacts:
    """Read how the platform is detected."""
    module = syntax_tree(tree, PLATFORMS, "the detection of the platform")
    by_env = any(_compares_target_device(node) for node in ast.walk(module))
    if not by_env and not any(_asks_version_for_cpu(node) for node in ast.walk(module)):
        raise unreadable(
            PLATFORMS,
            "nothing tells a CPU build",
            '"cpu" looked for in the version, or VLLM_TARGET_DEVICE compared with "cpu"',
        )
    return PlatformFacts(
        detection="env" if by_env else "version",
        cuda_yields=any(_is_yielding_cuda_probe(node) for node in ast.walk(module)),
    )


def read_env_names(tree: Path) -> frozenset[str]:
    """The variables that vllm/envs.py lists."""
    module = syntax_tree(tree, ENVS, f"the table {TABLE}")
    tables = dict(_tables(module))
    if TABLE not in tables:
        raise unreadable(ENVS, f"there is no dict {TABLE}", f"{TABLE} = {{...}}")
    return frozenset(_keys(tables[TABLE], tables, depth=0))


def read_cpu_modules(tree: Path) -> frozenset[str]:
    """The variables that vLLM's CPU modules read from the environment themselves."""
    found: set[str] = set()
    for pattern in CPU_MODULES:
        for path in sorted(tree.glob(pattern)):
            name = path.relative_to(tree).as_posix()
            found |= environment_reads(syntax_tree(tree, name, "Python"))
    return frozenset(found)


def read_kv_cache_argument(tree: Path) -> bool:
    """Whether EngineArgs has ``kv_cache_memory_bytes``."""
    module = syntax_tree(tree, ARGUMENTS, "the class EngineArgs")
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and node.name == "EngineArgs":
            return any(
                isinstance(item, ast.AnnAssign)
                and isinstance(item.target, ast.Name)
                and item.target.id == "kv_cache_memory_bytes"
                for item in node.body
            )
    raise unreadable(ARGUMENTS, "there is no class EngineArgs", "class EngineArgs")


def environment_reads(module: ast.Module) -> frozenset[str]:
    """The variables read through os.environ or os.getenv, by name or by a constant's name."""
    found: set[str] = set()
    constants = _constants(module)
    for node in ast.walk(module):
        key: ast.expr | None = None
        if isinstance(node, ast.Subscript) and _dotted(node.value).endswith("environ"):
            key = node.slice
        elif isinstance(node, ast.Call) and _reads_environment(_dotted(node.func)):
            key = node.args[0] if node.args else None
        elif isinstance(node, ast.Compare) and _dotted(node.comparators[0]).endswith("environ"):
            key = node.left
        if key is None:
            continue
        name = _text(key) or constants.get(_last(key), "")
        if VARIABLE.match(name):
            found.add(name)
    return frozenset(found)


def _reads_environment(function: str) -> bool:
    return function.split(".")[-1] == "getenv" or ".environ." in f".{function}"


def _compares_target_device(node: ast.AST) -> bool:
    if not isinstance(node, ast.Compare) or len(node.comparators) != 1:
        return False
    sides = (node.left, node.comparators[0])
    return any(_text(s) == "cpu" for s in sides) and any(_names_target_device(s) for s in sides)


def _names_target_device(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return any(_text(a) == "VLLM_TARGET_DEVICE" for a in node.args)
    return _dotted(node).endswith("VLLM_TARGET_DEVICE")


def _asks_version_for_cpu(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return _text(node.left) == "cpu" and any(
            isinstance(c, ast.Call) and "version" in _dotted(c.func) for c in node.comparators
        )
    return (
        isinstance(node, ast.Call)
        and "version" in _dotted(node.func)
        and any(_text(a) == "cpu" for a in node.args)
    )


def _is_yielding_cuda_probe(node: ast.AST) -> bool:
    if not isinstance(node, ast.FunctionDef):
        return False
    inside = list(ast.walk(node))
    probes = any(isinstance(n, ast.Attribute) and n.attr.startswith("nvml") for n in inside)
    return probes and any(
        isinstance(n, ast.UnaryOp)
        and isinstance(n.op, ast.Not)
        and any(_asks_version_for_cpu(inner) for inner in ast.walk(n.operand))
        for n in inside
    )


def _tables(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in module.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if isinstance(node.value, ast.Dict):
                yield node.target.id, node.value
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value


def _keys(table: ast.expr, tables: dict[str, ast.expr], *, depth: int) -> Iterator[str]:
    if not isinstance(table, ast.Dict) or depth > 4:
        where = f"{ENVS}:{table.lineno}"
        raise unreadable(where, "a part of the table is no dict", f"{TABLE} = {{...}}")
    for key, value in zip(table.keys, table.values, strict=True):
        if key is None:
            inner = tables.get(_dotted(value), value)
            yield from _keys(inner, tables, depth=depth + 1)
        elif (name := _text(key)) is not None:
            yield name
        else:
            raise unreadable(f"{ENVS}:{key.lineno}", "a key is no string", "variable names")


def _constants(module: ast.Module) -> dict[str, str]:
    """String constants by the last part of their names, and the names that stand for them."""
    assigned: list[tuple[str, ast.expr]] = []
    for node in ast.walk(module):
        if isinstance(node, ast.Assign):
            assigned.extend((_last(target), node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            assigned.append((_last(node.target), node.value))
    assigned = [(name, value) for name, value in assigned if name]
    constants = {name: text for name, value in assigned if (text := _text(value)) is not None}
    aliases = {
        name: constants[_last(value)] for name, value in assigned if _last(value) in constants
    }
    return {**aliases, **constants}


def _last(node: ast.expr) -> str:
    return _dotted(node).split(".")[-1]


def _calls(module: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(module) if isinstance(node, ast.Call))


def _imports(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def _text_keyword(call: ast.Call, name: str) -> str | None:
    return next((_text(k.value) for k in call.keywords if k.arg == name), None)


def _text(node: ast.expr | None) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
