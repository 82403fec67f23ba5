"""What the vLLM installed in an environment knows: variables, options, methods; read as text."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cpubuild.errors import CpuBuildError
from cpubuild.release.python_facts import read_cpu_modules, read_env_names

ARGUMENTS = "vllm/engine/arg_utils.py"
FRONT_ENDS = ("vllm/entrypoints/**/cli_args.py", "vllm/entrypoints/cli/serve.py")
METHODS = "vllm/model_executor/layers/quantization/__init__.py"
BINDERS = ("vllm/utils/ompmultiprocessing.py", "vllm/v1/worker/cpu_worker.py")
OLD_BINDERS = ("vllm/worker/cpu_worker.py", "vllm/executor/cpu_executor.py")
UNBOUND = re.compile(r"""==\s*["'](nobind|all)["']|local_omp_cpuid = ["'](all)["']""")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tree:
    """The names of one installed vLLM; None: they could not be read, which is not none of them.

    ``site`` is the folder that holds the package. ``options`` are those of ``vllm serve``, with
    their dashes, ``methods`` those of quantisation, ``unbound`` the word for threads that are
    bound to no CPU.
    """

    site: Path | None
    variables: frozenset[str] | None = None
    options: frozenset[str] | None = None
    methods: frozenset[str] | None = None
    unbound: str | None = None

    def has(self, variable: str) -> bool:
        """Whether a variable may be set: it is read there, or nobody knows what is."""
        return self.variables is None or variable in self.variables

    def takes(self, option: str) -> bool:
        """Whether an option is known to be one; an unknown option would stop ``vllm serve``."""
        return self.options is not None and option in self.options

    def matches(self, pattern: str, text: str) -> bool:
        """Whether a file of the package that ``pattern`` names matches the expression ``text``."""
        if self.site is None:
            return False
        wanted = re.compile(text)
        return any(wanted.search(read(path)) for path in sorted(self.site.glob(pattern)))


def read(path: Path) -> str:
    """The text of a file, "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_tree(env: Path) -> Tree:
    """Read the vLLM that is installed in an environment; what is not there stays unknown."""
    found = sorted(env.glob("lib*/python3*/site-packages/vllm"))
    if not found:
        return Tree(site=None)
    return read_site(found[0].parent)


def read_site(site: Path) -> Tree:
    """Read the vLLM below a folder, be it site-packages or a source tree."""
    return Tree(
        site=site,
        variables=variables(site),
        options=options(site),
        methods=methods(site),
        unbound=unbound(site),
    )


def variables(site: Path) -> frozenset[str] | None:
    """The variables that the package reads; None when it cannot be read."""
    try:
        return read_env_names(site) | read_cpu_modules(site)
    except CpuBuildError:
        return None


def options(site: Path) -> frozenset[str] | None:
    """The options of ``vllm serve``: the engine's and the front end's."""
    module = parse(site / ARGUMENTS)
    if module is None:
        return None
    found = set(flags(module))
    for pattern in FRONT_ENDS:
        for path in sorted(site.glob(pattern)):
            front = parse(path)
            if front is not None:
                found |= {*flags(front), *fields(front)}
    return frozenset(found)


def parse(path: Path) -> ast.Module | None:
    """The syntax tree of a file, None when there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def flags(module: ast.Module) -> Iterator[str]:
    """The options that ``add_argument`` is called with, long and short."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            for given in node.args:
                if isinstance(given, ast.Constant) and str(given.value).startswith("-"):
                    yield str(given.value)


def fields(module: ast.Module) -> Iterator[str]:
    """The options that a front end makes of the fields of its argument classes."""
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("FrontendArgs"):
            for part in node.body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    yield "--" + part.target.id.replace("_", "-")


def methods(site: Path) -> frozenset[str] | None:
    """The methods of quantisation that the release names, on whatever platform."""
    module = parse(site / METHODS)
    if module is None:
        return None
    for node in module.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        name = getattr(target, "id", "")
        value = getattr(node, "value", None)
        if name not in ("QuantizationMethods", "QUANTIZATION_METHODS") or value is None:
            continue
        words = {
            n.value
            for n in ast.walk(value)
            if isinstance(n, ast.Constant) and isinstance(n.value, str)
        }
        if words:
            return frozenset(words)
    return None


def unbound(site: Path) -> str | None:
    """The word by which VLLM_CPU_OMP_THREADS_BIND leaves threads unbound here, None for none."""
    for name in (*BINDERS, *OLD_BINDERS):
        match = UNBOUND.search(read(site / name))
        if match:
            return match[1] or match[2]
    return None
