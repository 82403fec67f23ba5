"""Walk through CMake commands as CMake would on one kind of host: which are reached there.

Variables that depend on the very machine stay unknown, and a branch that hangs on one counts as
reachable; so the walk tells what may happen on an architecture, not on one host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cpubuild.release.cmake import Arg, Command
from cpubuild.release.conditions import (
    MalformedConditionError,
    Truth,
    both,
    either,
    expand,
    judge,
    opposite,
)
from cpubuild.release.files import unreadable

BLOCKS = {"function": "endfunction", "macro": "endmacro"}
LOOPS = {"foreach": "endforeach", "while": "endwhile"}
WITHOUT_RESULT = {"include", "message", "include_directories", "add_compile_definitions"}
VARIABLE = re.compile(r"[A-Za-z_]\w*$")

# What find_isa() looks for in /proc/cpuinfo: the word's beginning, and where it may be found.
# True: every CPU of this architecture that vLLM supports has it.
ISA_WORDS: tuple[tuple[str, str, Truth], ...] = (
    ("avx", "x86_64", None),
    ("amx", "x86_64", None),
    ("asimd", "aarch64", True),
    ("bf16", "aarch64", None),
    ("i8mm", "aarch64", None),
    ("power", "ppc64le", None),
    ("s390", "s390x", True),
    ("zvf", "riscv64", None),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """A command that is reached: its arguments expanded (None: unknown), ``certain`` or may be."""

    command: Command
    args: tuple[str | None, ...]
    certain: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Walked:
    """The commands reached, in order, and the variables as they stand at the end."""

    reached: tuple[Reached, ...]
    values: Mapping[str, str | None]

    def named(self, pattern: str) -> tuple[Reached, ...]:
        """The reached commands whose whole name matches ``pattern``."""
        return tuple(r for r in self.reached if re.fullmatch(pattern, r.command.name))


def host_values(arch: str, gcc: str) -> dict[str, str | None]:
    """The variables of a Linux host of ``arch`` with GNU compilers of version ``gcc``."""
    return {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": arch,
        "CMAKE_HOST_SYSTEM_PROCESSOR": arch,
        "CMAKE_CXX_COMPILER_ID": "GNU",
        "CMAKE_CXX_COMPILER_VERSION": gcc,
        "CMAKE_CROSSCOMPILING": "FALSE",
        "VLLM_TARGET_DEVICE": "cpu",
        "APPLE": "",
        "WIN32": "",
        "UNIX": "1",
    }


def walk(commands: tuple[Command, ...], name: str, *, arch: str, gcc: str) -> Walked:
    """Walk the commands of file ``name`` on a Linux host of ``arch`` with g++ ``gcc``."""
    unset = dict.fromkeys(assigned(commands), "")
    walker = _Walker(name, arch, {**unset, **host_values(arch, gcc)})
    for command in commands:
        walker.step(command)
    if walker.frames or walker.skipping:
        raise walker.error(commands[-1], "a block is not closed before the file ends")
    return Walked(reached=tuple(walker.reached), values=walker.values)


def assigned(commands: tuple[Command, ...]) -> frozenset[str]:
    """The variables that set() or option() give a value anywhere."""
    names = (c.args[0].text for c in commands if c.name in ("set", "option") and c.args)
    return frozenset(name for name in names if VARIABLE.match(name))


@dataclass(slots=True)
class _Frame:
    closes: str
    outer: Truth
    before: Truth
    here: Truth


class _Walker:
    def __init__(self, name: str, arch: str, values: dict[str, str | None]) -> None:
        self.name = name
        self.arch = arch
        self.values = values
        self.frames: list[_Frame] = []
        self.skipping = ""
        self.reached: list[Reached] = []

    @property
    def here(self) -> Truth:
        return self.frames[-1].here if self.frames else True

    def step(self, command: Command) -> None:
        if self.skipping:
            self.skipping = "" if command.name == self.skipping else self.skipping
        elif command.name in BLOCKS:
            self.skipping = BLOCKS[command.name]
        elif command.name == "if":
            truth = self._judge(command) if self.here is not False else False
            here = both(self.here, truth)
            self.frames.append(_Frame("endif", outer=self.here, before=truth, here=here))
        elif command.name in LOOPS:
            self.frames.append(_Frame(LOOPS[command.name], self.here, None, both(self.here, None)))
        elif command.name in ("elseif", "else"):
            self._other_branch(command)
        elif command.name in ("endif", *LOOPS.values()):
            self._frame(command, command.name)
            self.frames.pop()
        elif self.here is not False:
            self._plain(command)

    def error(self, command: Command, what: str) -> Exception:
        expected = "balanced if(), foreach() and function() with conditions CMake understands"
        return unreadable(f"{self.name}:{command.line}", what, expected)

    def _frame(self, command: Command, closes: str) -> _Frame:
        if not self.frames or self.frames[-1].closes != closes:
            raise self.error(command, f"{command.name}() has no beginning")
        return self.frames[-1]

    def _other_branch(self, command: Command) -> None:
        frame = self._frame(command, "endif")
        open_ = both(frame.outer, opposite(frame.before))
        truth: Truth = True
        if command.name == "elseif":
            truth = self._judge(command) if open_ is not False else False
        frame.here = both(open_, truth)
        frame.before = either(frame.before, truth)

    def _judge(self, command: Command) -> Truth:
        try:
            return judge(command.args, self.values)
        except MalformedConditionError as error:
            raise self.error(command, f"the condition cannot be read: {error}") from None

    def _plain(self, command: Command) -> None:
        args = tuple(expand(a.text, self.values) for a in command.args)
        self.reached.append(Reached(command=command, args=args, certain=self.here is True))
        if command.name in ("set", "option"):
            self._assign(command, args)
        elif command.name == "find_isa" and len(args) == 3:
            self._find_isa(command.args)
        elif command.name not in WITHOUT_RESULT:
            for arg in command.args:
                if not arg.quoted and VARIABLE.match(arg.text) and arg.text in self.values:
                    self.values[arg.text] = None

    def _assign(self, command: Command, args: tuple[str | None, ...]) -> None:
        name = args[0] if args else None
        if name is None or not VARIABLE.match(name):
            return
        values = args[2:3] if command.name == "option" else _before_options(args[1:])
        known = [v for v in values if v is not None]
        new = ";".join(known) if len(known) == len(values) else None
        old = self.values.get(name)
        self.values[name] = new if self.here is True or new == old else None

    def _find_isa(self, args: tuple[Arg, ...]) -> None:
        word, variable = args[1].text.lower(), args[2].text
        for beginning, arch, there in ISA_WORDS:
            if word.startswith(beginning):
                found = there if arch == self.arch else False
                self.values[variable] = {True: "ON", False: "OFF", None: None}[found]
                return
        self.values[variable] = None


def _before_options(args: tuple[str | None, ...]) -> tuple[str | None, ...]:
    for index, arg in enumerate(args):
        if arg in ("CACHE", "PARENT_SCOPE"):
            return args[:index]
    return args
