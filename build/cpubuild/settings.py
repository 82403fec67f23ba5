"""Settings in layers (defaults < file < environment < flags), each with where it came from."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cpubuild.errors import CpuBuildError, ExitCode, Problem

APP = "vllm-cpu-build"
PREFIX = "CPUBUILD_"
DEFAULT_VLLM = "0.32.0"
EXACT = re.compile(r"v?\d+(\.\d+)+(\.post\d+)?")
LOCAL = re.compile(r"(v?\d[\w.]*)\+([\w.]+)")
SEPARATORS = frozenset(":;")
# Of a file system's names, of Linux' paths; and what lies below a state root is up to 300 bytes
# longer, while CMake is sure of object files up to 1000.
NAME_BYTES, PATH_BYTES, STATE_BYTES = 255, 4095, 700
SECRET = re.compile(r"(?<=://)[^/\s]+@")
TRUE = frozenset({"1", "true", "yes", "on"})
SHOWN = 200  # characters of a bad value that a message repeats
FALSE = frozenset({"0", "false", "no", "off", ""})

Profile = Literal["text", "full"]
Targets = Literal["host", "all"]
CacheMode = Literal["read", "read-write"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What was asked for.

    ``vllm`` is a version, ``latest``, a git ref or a path. ``python`` is an interpreter or a
    version, None to choose one. ``jobs`` is the number of compilers at once, None to compute it.
    ``targets``: ``host`` builds the one extension this host loads, ``all`` every one of them.
    ``no_system``: never touch OS packages. ``yes``: agree to what needs consent (sudo).
    ``wheel_cache`` is a shared store of wheels, ``wheel_cache_trust`` says whose are taken.
    ``origins`` pairs each name with what gave it its value.
    """

    vllm: str
    state: Path
    python: str | None
    cxx: str | None
    jobs: int | None
    profile: Profile
    targets: Targets
    onednn: Path | None
    offline: bool
    no_system: bool
    yes: bool
    wheel_cache: str | None
    wheel_cache_mode: CacheMode
    wheel_cache_trust: Path | None
    wheel_cache_key: Path | None
    origins: tuple[tuple[str, str], ...] = ()

    def origin(self, name: str) -> str:
        """What gave a setting its value: ``default``, an option, a variable, the settings file."""
        return dict(self.origins).get(name, _origin("flag", name))


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """Settings with the origin of each value, in words, and what was ignored."""

    settings: Settings
    origins: tuple[tuple[str, str, str], ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One option: how its text becomes a value, its default, and the line of help."""

    name: str
    parse: Callable[[str], Any]
    default: Callable[[], Any]
    help: str


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    if any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise ValueError("it holds a control character")
    return text.strip()


def _vllm(text: str) -> str:
    """What to build; a release in one spelling: ``v0.32.0`` and ``0.32.0+cpu`` are 0.32.0."""
    text = _text(text)
    local = LOCAL.fullmatch(text)
    if local is not None:
        if local[2] != "cpu":
            raise ValueError(f"+{local[2]} names a build for something else than CPUs")
        text = local[1]
    return text.removeprefix("v") if EXACT.fullmatch(text) else text


def _path(text: str) -> Path:
    try:
        path = Path(_text(text)).expanduser()
    except RuntimeError as error:
        raise ValueError(f"there is no such home folder: {error}") from None
    path = Path(os.path.abspath(path))  # noqa: PTH100 - keeps symlinks as they are
    longest = max(len(os.fsencode(part)) for part in path.parts)
    if longest > NAME_BYTES:
        raise ValueError(
            f"a name in it takes {longest} bytes, and no file system takes more than {NAME_BYTES}"
        )
    _no_longer(path, PATH_BYTES, "Linux takes no longer path")
    return path


def _no_longer(path: Path, limit: int, why: str) -> None:
    size = len(os.fsencode(path))
    if size > limit:
        raise ValueError(f"it takes {size} bytes, at most {limit} are possible: {why}")


def _program(text: str) -> str:
    """A program: a name or a command stays as it is, a path becomes absolute."""
    text = _text(text)
    return str(_path(text)) if "/" in text and not any(c.isspace() for c in text) else text


def _state(text: str) -> Path:
    path = _path(text)
    if any(c.isspace() for c in str(path)):
        raise ValueError("vLLM's build splits its CMake arguments at spaces, so it must hold none")
    if held := sorted(set(str(path)) & SEPARATORS):
        raise ValueError(
            f"it holds {' and '.join(held)}, where PATH, LD_PRELOAD or a list of CMake is split"
        )
    _no_longer(path, STATE_BYTES, "what is built below it would not fit into CMake's limit of 1000")
    return path


def _jobs(text: str) -> int:
    try:
        jobs = int(text)
    except ValueError:
        raise ValueError("a whole number of at least 1 is needed") from None
    if not 1 <= jobs <= 4096:
        raise ValueError("a whole number from 1 to 4096 is needed")
    return jobs


def _flag(text: str) -> bool:
    low = text.strip().lower()
    if low in TRUE:
        return True
    if low in FALSE:
        return False
    raise ValueError("one of 1, 0, true, false, yes, no, on, off is needed")


def _choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text in allowed:
            return text
        raise ValueError(f"one of {', '.join(allowed)} is needed")

    return parse


def _default_state() -> Path:
    import platformdirs

    text = str(platformdirs.user_state_path(APP))
    try:
        return _state(text)
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from None


def _nothing() -> None:
    return None


OPTIONS: tuple[Option, ...] = (
    Option(
        name="vllm",
        parse=_vllm,
        default=lambda: DEFAULT_VLLM,
        help="version, 'latest', git ref, or path of a source tree",
    ),
    Option(name="state", parse=_state, default=_default_state, help="folder of all state"),
    Option(
        name="python", parse=_program, default=_nothing, help="interpreter or version to build for"
    ),
    Option(name="cxx", parse=_program, default=_nothing, help="C++ compiler to use"),
    Option(name="jobs", parse=_jobs, default=_nothing, help="compilers at once"),
    Option(
        name="profile",
        parse=_choice("text", "full"),
        default=lambda: "text",
        help="text: what text models need; full: all of vLLM's requirements",
    ),
    Option(
        name="targets",
        parse=_choice("host", "all"),
        default=lambda: "host",
        help="host: the kernels this host loads; all: a wheel for mixed hosts",
    ),
    Option(name="onednn", parse=_path, default=_nothing, help="folder of a oneDNN source tree"),
    Option(name="offline", parse=_flag, default=lambda: False, help="use only what is cached"),
    Option(name="no_system", parse=_flag, default=lambda: False, help="never touch OS packages"),
    Option(
        name="wheel_cache",
        parse=_text,
        default=_nothing,
        help="shared wheel cache: folder, http(s) or s3 URL",
    ),
    Option(
        name="wheel_cache_mode",
        parse=_choice("read", "read-write"),
        default=lambda: "read",
        help="read, or read-write to publish verified wheels",
    ),
    Option(
        name="wheel_cache_trust",
        parse=_path,
        default=_nothing,
        help="file that says whose wheels are taken",
    ),
    Option(
        name="wheel_cache_key",
        parse=_path,
        default=_nothing,
        help="SSH key to sign published wheels with",
    ),
    Option(name="yes", parse=_flag, default=lambda: False, help="agree to the use of sudo"),
)
# CPUBUILD_ variables that are no settings; CPUBUILD_TEST_ ones belong to the tests.
OTHER_VARIABLES = frozenset({"config", "json", "verbose", "cache_token", "web_password"})
NAMES = tuple(option.name for option in OPTIONS)


def config_file(environ: Mapping[str, str]) -> Path:
    """The settings file: ``CPUBUILD_CONFIG``, else ``config.toml`` in the user's config folder."""
    named = environ.get(PREFIX + "CONFIG")
    if named:
        return _path(named)
    import platformdirs

    return Path(platformdirs.user_config_path(APP)) / "config.toml"


def resolve(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Resolved:
    """Merge all layers; raise one SETTINGS error that names every bad value.

    ``flags`` holds what the command line gave (None and False mean not given).
    """
    problems: list[Problem] = []
    warnings: list[str] = []
    layers = (
        _file_layer(environ, problems),
        (_environment_layer(environ, warnings), "environment"),
        ({k: v for k, v in flags.items() if v is not None and v is not False}, "flag"),
    )
    values: dict[str, Any] = {}
    origins: list[tuple[str, str, str]] = []
    for option in OPTIONS:
        raw, origin = None, "default"
        for layer, name in layers:
            if option.name in layer:
                raw, origin = layer[option.name], _origin(name, option.name)
        try:
            values[option.name] = option.default() if raw is None else option.parse(_as_text(raw))
        except ValueError as error:
            problems.append(_bad(option, raw, origin, str(error)))
            continue
        origins.append((option.name, _shown(values[option.name]), origin))
    if problems:
        raise CpuBuildError(*problems)
    values["origins"] = tuple((name, origin) for name, _, origin in origins)
    return Resolved(settings=Settings(**values), origins=tuple(origins), warnings=tuple(warnings))


def _origin(layer: str, name: str) -> str:
    if layer == "environment":
        return PREFIX + name.upper()
    if layer == "flag":
        return "--" + name.replace("_", "-")
    return layer


def _as_text(raw: Any) -> str:
    if isinstance(raw, bool):
        return "1" if raw else "0"
    if isinstance(raw, (str, int)):
        return str(raw)
    # A number with a point loses digits: 3.10 would be 3.1.
    raise ValueError("a text in quotes, a whole number, true or false is needed")


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return SECRET.sub("***@", str(value))


def _bad(option: Option, raw: Any, origin: str, reason: str) -> Problem:
    shown = SECRET.sub("***@", repr(raw))
    if len(shown) > SHOWN:
        shown = f"{shown[: SHOWN // 2]}...{shown[-SHOWN // 2 :]}"
    given = "the default" if raw is None else f"{origin} = {shown}"
    return Problem(
        what=f"{given} is not usable: {reason}",
        why=f"{option.name}: {option.help}",
        remedy=(
            f"give a valid value to {_origin('flag', option.name)} "
            f"or {_origin('environment', option.name)}",
        ),
        exit_code=ExitCode.SETTINGS,
    )


def _file_layer(environ: Mapping[str, str], problems: list[Problem]) -> tuple[dict[str, Any], str]:
    """The values of the settings file, and the name of the file."""
    try:
        path = config_file(environ)
    except ValueError as error:
        name = PREFIX + "CONFIG"
        what = f"{name} = {environ[name]!r} is not usable: {error}"
        remedy = ("name a TOML file, or unset it",)
        problems.append(Problem(what=what, remedy=remedy, exit_code=ExitCode.SETTINGS))
        return {}, ""
    return _read_file(path, bool(environ.get(PREFIX + "CONFIG")), problems), str(path)


def _read_file(path: Path, required: bool, problems: list[Problem]) -> dict[str, Any]:
    def problem(what: str, *remedy: str) -> dict[str, Any]:
        problems.append(Problem(what=what, remedy=remedy, exit_code=ExitCode.SETTINGS))
        return {}

    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if required:
            return problem(
                f"settings file {path} does not exist", f"create it or unset {PREFIX}CONFIG"
            )
        return {}
    except (OSError, UnicodeError) as error:
        return problem(f"settings file {path} cannot be read: {error}", "mend or remove the file")
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return problem(f"settings file {path} is not TOML: {error}", "mend or remove the file")
    for key in sorted(set(table) - set(NAMES)):
        near = difflib.get_close_matches(key, NAMES, n=1)
        problem(
            f"settings file {path} holds the unknown name {key!r}",
            f"did you mean {near[0]}?" if near else "known names: " + ", ".join(NAMES),
        )
    return {k: v for k, v in table.items() if k in NAMES}


def _environment_layer(environ: Mapping[str, str], warnings: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in environ.items():
        if not key.startswith(PREFIX):
            continue
        name = key.removeprefix(PREFIX).lower()
        if name in NAMES:
            found[name] = value
        elif name not in OTHER_VARIABLES and not name.startswith("test_"):
            near = difflib.get_close_matches(name, NAMES, n=1)
            hint = f"; did you mean {PREFIX}{near[0].upper()}?" if near else ""
            warnings.append(f"the environment variable {key} is not a setting and is ignored{hint}")
    return found
