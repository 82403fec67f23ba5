"""What the CMake files of a tree say: compiler floor, oneDNN, targets, C++ standard, Pythons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from packaging.version import InvalidVersion, Version

from cpubuild.release.cmake import Command, environment_reads, parse
from cpubuild.release.files import read_text, unreadable
from cpubuild.release.walk import Walked, walk

EXTENSION = "cmake/cpu_extension.cmake"
UTILS = "cmake/utils.cmake"
LISTS = "CMakeLists.txt"
NEW_COMPILER = "9999"
LOCAL_ONEDNN = "FETCHCONTENT_SOURCE_DIR_ONEDNN"


@dataclass(frozen=True, kw_only=True, slots=True)
class CMakeFacts:
    """The CMake part of a Release; see there. ``env_names`` are the variables CMake reads."""

    gcc_floor: str | None
    gcc_fatal: bool
    cxx_standard: int
    onednn_tag: str | None
    onednn_local_source: bool
    targets: tuple[str, ...]
    arch_refusal: str | None
    pythons: tuple[str, ...]
    env_names: frozenset[str]


def read_cmake(tree: Path, arch: str) -> CMakeFacts:
    """Read the CMake files of ``tree`` for a Linux host of ``arch``."""
    extension, utils, lists = (
        parse(read_text(tree, name, what), name)
        for name, what in (
            (EXTENSION, "the CMake code of the CPU extension"),
            (UTILS, "the CMake functions that define extension targets"),
            (LISTS, "the CMake project"),
        )
    )
    walked = walk(extension, EXTENSION, arch=arch, gcc=NEW_COMPILER)
    floor, fatal = gcc_floor(extension, arch)
    return CMakeFacts(
        gcc_floor=floor,
        gcc_fatal=fatal,
        cxx_standard=cxx_standard(walked, utils, lists),
        onednn_tag=onednn_tag(walked),
        onednn_local_source=any(
            LOCAL_ONEDNN in environment_reads((r.command,)) for r in walked.reached
        ),
        targets=targets(walked, arch),
        arch_refusal=arch_refusal(walked),
        pythons=pythons(lists),
        env_names=environment_reads((*extension, *utils, *lists)),
    )


def gcc_floor(commands: tuple[Command, ...], arch: str) -> tuple[str | None, bool]:
    """The g++ version below which CMake stops (True) or only warns (False), for ``arch``.

    Each version the file compares the compiler with is tried: what is said just below it and not
    at it tells whether it is a floor.
    """
    warned: list[str] = []
    fatal: list[str] = []
    for floor, below in sorted(set(_compared_versions(commands)), key=lambda p: Version(p[0])):
        lost = _complaints(commands, arch, below) - _complaints(commands, arch, floor)
        if any(kind != "WARNING" for kind, _ in lost):
            fatal.append(floor)
        elif lost:
            warned.append(floor)
    floors = fatal or warned
    return (floors[-1], bool(fatal)) if floors else (None, False)


def onednn_tag(walked: Walked) -> str | None:
    """The oneDNN tag or commit fetched; None where oneDNN is not used."""
    tags: list[str] = []
    for reached in walked.named("fetchcontent_(declare|populate)"):
        command = reached.command
        if command.words[:1] and command.words[0].lower() == "onednn":
            if command.after("SOURCE_DIR") is not None or len(command.words) == 1:
                continue
            tag = dict(pairwise(reached.args)).get("GIT_TAG")
            if not tag:
                raise unreadable(
                    f"{EXTENSION}:{command.line}", "oneDNN is fetched from no known tag", "GIT_TAG"
                )
            tags.append(tag)
    if len(set(tags)) > 1:
        raise unreadable(
            EXTENSION, f"more than one oneDNN may be fetched: {', '.join(tags)}", "one GIT_TAG"
        )
    return tags[0] if tags else None


def targets(walked: Walked, arch: str) -> tuple[str, ...]:
    """The extension targets defined, in order."""
    reached = walked.named(r"define_\w*extension_target")
    names = tuple(dict.fromkeys(r.args[0] for r in reached if r.args and r.args[0]))
    if not names:
        raise unreadable(
            EXTENSION, f"no extension target is defined for {arch}", "define_extension_target(...)"
        )
    return names


def arch_refusal(walked: Walked) -> str | None:
    """The message of a stop that no CPU of the architecture gets past."""
    for reached in walked.named("message"):
        if reached.certain and reached.args[:1] == ("FATAL_ERROR",):
            return "".join(a or "" for a in reached.args[1:])
    return None


def cxx_standard(walked: Walked, utils: tuple[Command, ...], lists: tuple[Command, ...]) -> int:
    """The C++ standard of the extension: a target's own property goes before the variable."""
    candidates = [
        *(c.after("CXX_STANDARD") for c in utils if c.name.startswith("set_")),
        walked.values.get("CMAKE_CXX_STANDARD"),
        *(c.after("CMAKE_CXX_STANDARD") for c in lists if c.name == "set"),
    ]
    for value in candidates:
        if value is not None and value.isdecimal():
            return int(value)
    raise unreadable(
        f"{UTILS}, {EXTENSION}, {LISTS}",
        "no C++ standard is set",
        "CXX_STANDARD or CMAKE_CXX_STANDARD",
    )


def pythons(lists: tuple[Command, ...]) -> tuple[str, ...]:
    """The Python versions CMake accepts, as ``major.minor``."""
    for command in lists:
        if command.name == "set" and command.words[:1] == ("PYTHON_SUPPORTED_VERSIONS",):
            versions = command.words[1:]
            if versions and all(_is_version(v) for v in versions):
                return versions
            raise unreadable(
                f"{LISTS}:{command.line}", "the list of Python versions is not one", '"3.11" "3.12"'
            )
    raise unreadable(LISTS, "no Python versions are listed", "set(PYTHON_SUPPORTED_VERSIONS ...)")


def _compared_versions(commands: tuple[Command, ...]) -> Iterator[tuple[str, str]]:
    """The lowest versions that comparisons let through, each with one just below it."""
    for command in commands:
        if command.name in ("if", "elseif"):
            words = [w.removeprefix("${").removesuffix("}") for w in command.words]
            for left, how, right in zip(words, words[1:], words[2:], strict=False):
                if left == "CMAKE_CXX_COMPILER_VERSION" and _is_version(right):
                    if how in ("VERSION_GREATER_EQUAL", "VERSION_LESS"):
                        yield right, _just_below(right)
                    elif how in ("VERSION_GREATER", "VERSION_LESS_EQUAL"):
                        yield f"{right}.1", right


def _complaints(commands: tuple[Command, ...], arch: str, gcc: str) -> set[tuple[str, int]]:
    walked = walk(commands, EXTENSION, arch=arch, gcc=gcc)
    return {
        (r.args[0], r.command.line)
        for r in walked.named("message")
        if r.args and r.args[0] in ("FATAL_ERROR", "SEND_ERROR", "WARNING")
    }


def _just_below(version: str) -> str:
    parts = list(Version(version).release)
    while parts and parts[-1] == 0:
        parts.pop()
    if not parts:
        return "0"
    return ".".join(str(p) for p in [*parts[:-1], parts[-1] - 1, 99999])


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True
