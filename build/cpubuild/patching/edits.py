"""The rules that make a diff from the tree itself: they find the construct, never a line number.

Every rule is pure: text in, text out. A rule that finds its construct neither unchanged nor
changed answers ``absent`` and says what it looked for; the patch decides whether that is a refusal.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from packaging.utils import canonicalize_name

from cpubuild.patching.model import Edit, Selected

SETUP = "setup.py"
CMAKE = "cmake/cpu_extension.cmake"
OPTION_FILES = ("CMakeLists.txt", "cmake/**/*.cmake")


class Tree(Protocol):
    """Read access to a tree: text of a file (None: no such file), and paths by pattern."""

    def read(self, path: str) -> str | None: ...  # noqa: D102
    def glob(self, pattern: str) -> tuple[str, ...]: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """The text of one file before and after."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """What a rule made of a tree; ``expected`` says what it looked for and where."""

    state: Literal["change", "already", "absent"]
    expected: str
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a rule works on: one edit of a selected patch, and the tree."""

    edit: Edit
    selected: Selected
    tree: Tree


def render(request: Request) -> Rendered:
    """Apply the rule of the request's edit to the text of its tree."""
    return RULES[request.edit.kind](request)


def substitute(request: Request) -> Rendered:
    """Replace every match of ``find``; ``@floor@`` and ``@gcc@`` stand for the two versions."""
    edit, selected = request.edit, request.selected
    values = {
        "@floor@": selected.release.gcc_floor or "",
        "@gcc@": selected.context.gcc_version or "",
    }
    path, find = edit.path or "", _fill(edit.find or "", values)
    before = request.tree.read(path)
    if before is None:
        return Rendered(state="absent", expected=f"{path} must be there")
    expected = f"{path} must hold what {find!r} matches"
    after = re.sub(find, _fill(edit.replace or "", values, escape=False), before)
    if after != before:
        change = Change(path=path, before=before, after=after)
        return Rendered(state="change", expected=expected, changes=(change,))
    done = edit.done is not None and re.search(_fill(edit.done, values), before)
    return Rendered(state="already" if done else "absent", expected=expected)


def _fill(text: str, values: dict[str, str], *, escape: bool = True) -> str:
    for name, value in values.items():
        text = text.replace(name, re.escape(value) if escape else value)
    return text


def requirements(request: Request) -> Rendered:
    """Take the lines out of the run-time requirement files that this profile does not need."""
    edit, selected, tree = request.edit, request.selected, request.tree
    first = selected.release.runtime_requirements
    expected = f"{first} must list a requirement that profile {selected.context.profile} drops"
    changes = []
    for path in _requirement_files(first, tree):
        before = tree.read(path)
        if before is None:
            return Rendered(state="absent", expected=f"{path} must be there")
        kept = [line for line in lines(before) if not _dropped(line, edit, selected)]
        if (after := "".join(kept)) != before:
            changes.append(Change(path=path, before=before, after=after))
    return Rendered(
        state="change" if changes else "absent", expected=expected, changes=tuple(changes)
    )


def _requirement_files(first: str, tree: Tree) -> tuple[str, ...]:
    found: list[str] = []
    waiting = [first]
    while waiting:
        path = waiting.pop(0)
        if path in found:
            continue
        found.append(path)
        folder = path.rpartition("/")[0]
        included = re.findall(r"(?m)^-r\s+(\S+)", tree.read(path) or "")
        waiting += [f"{folder}/{name}" if folder else name for name in included]
    return tuple(found)


def _dropped(line: str, edit: Edit, selected: Selected) -> bool:
    match = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^]]*\])?\s*(@?)", line)
    if match is None:
        return False
    context = selected.context
    name = canonicalize_name(match[1])
    if match[2]:  # by URL: an index that is not GitHub can never answer it
        return not context.triton if name == "triton" else context.profile == "text"
    unwanted = (*edit.drop.get(context.profile, ()), *context.drop_requirements)
    return name in {canonicalize_name(n) for n in unwanted}


def host_target(request: Request) -> Rendered:
    """Leave one x86 extension in setup.py's list and take the others out of CMake's ``all``."""
    selected, tree = request.selected, request.tree
    wanted = selected.context.x86_target
    others = tuple(t for t in selected.release.targets if t != wanted)
    if wanted not in selected.release.targets:
        return Rendered(state="absent", expected=f"{CMAKE} must define the target {wanted}")
    for path in (SETUP, CMAKE):
        if tree.read(path) is None:
            return Rendered(state="absent", expected=f"{path} must be there")
    setup, cmake = tree.read(SETUP) or "", tree.read(CMAKE) or ""
    for name in others:
        if not re.search(rf"(?m)^\s*define_\w*extension_target\(\s*{name}\s", cmake):
            return Rendered(state="absent", expected=f"{CMAKE} must define the target {name}")
    tail = _excluded(str(wanted), others)
    if cmake.endswith(tail):
        return Rendered(state="already", expected="")
    shorter = without_extensions(setup, str(wanted), others)
    if shorter is None:
        return Rendered(
            state="absent",
            expected=f"{SETUP} must append CMakeExtension for {', '.join(others)} in one branch",
        )
    changes = (
        Change(path=SETUP, before=setup, after=shorter),
        Change(path=CMAKE, before=cmake, after=cmake + tail),
    )
    return Rendered(state="change", expected="", changes=changes)


def _excluded(wanted: str, others: tuple[str, ...]) -> str:
    return (
        f"\n# Built for one host: its loader takes {wanted} and no other.\n"
        f"foreach(_vllm_other {' '.join(others)})\n"
        "    if(TARGET ${_vllm_other})\n"
        "        set_target_properties(${_vllm_other} PROPERTIES EXCLUDE_FROM_ALL ON)\n"
        "    endif()\n"
        "endforeach()\n"
    )


def without_extensions(setup: str, wanted: str, others: tuple[str, ...]) -> str | None:
    """setup.py without the ``others`` in the branch that lists them all; None: no such branch."""
    for node in ast.walk(ast.parse(setup)):
        if not isinstance(node, ast.If):
            continue
        found = {name: statement for statement in node.body for name in _extensions(statement)}
        if {wanted, *others} <= found.keys():
            text = list(lines(setup))
            for name in others:
                statement = found[name]
                for number in range(statement.lineno, (statement.end_lineno or 0) + 1):
                    text[number - 1] = ""
            return "".join(text)
    return None


def _extensions(statement: ast.stmt) -> Iterator[str]:
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return
    for call in statement.value.args:
        if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "CMakeExtension"):
            continue
        for keyword in call.keywords:
            if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                yield str(keyword.value.value).rpartition(".")[2]


def options(request: Request) -> Rendered:
    """Take compiler options that g++ does not know, and ``find`` matches, out of the CMake files.

    An option that its file asks the compiler about (``check_cxx_compiler_flag``) is left to it.
    """
    tree = request.tree
    may_go = re.compile(request.edit.find or "")
    rejected = tuple(o for o in request.selected.context.rejected_options if may_go.match(o))
    changes = []
    for path in (path for pattern in OPTION_FILES for path in tree.glob(pattern)):
        before = tree.read(path) or ""
        after = before
        for option in rejected:
            if option in after and not re.search(_asked(option), after):
                after = _without_option(after, option)
        if after != before:
            changes.append(Change(path=path, before=before, after=after))
    expected = f"a CMake file must use {' or '.join(rejected) or 'an option that may go'}"
    return Rendered(
        state="change" if changes else "absent", expected=expected, changes=tuple(changes)
    )


def _asked(option: str) -> str:
    return rf'(?i)check_\w+_compiler_flag\w*\(\s*"?{re.escape(option)}"?\s'


def _without_option(text: str, option: str) -> str:
    quoted = re.compile(rf'[ \t]*"{re.escape(option)}"')
    bare = re.compile(rf"[ \t]*(?<![\w=.+-]){re.escape(option)}(?![\w=.+-])")
    kept = []
    for line in lines(text):
        shorter = line
        if not line.lstrip().startswith(("#", "message(")):
            shorter = bare.sub("", quoted.sub("", line))
        kept.append("" if shorter != line and not shorter.strip() else shorter)
    return "".join(kept)


def lines(text: str) -> Iterator[str]:
    """The lines of ``text`` with their line feeds; only a line feed ends a line."""
    return (line for line in re.split(r"(?<=\n)", text) if line)


RULES: dict[str, Callable[[Request], Rendered]] = {
    "substitute": substitute,
    "requirements": requirements,
    "host-target": host_target,
    "options": options,
}
