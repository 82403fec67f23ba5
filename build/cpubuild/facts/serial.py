"""Host facts as a JSON document and back (for ``--host FILE`` and receipts)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from cpubuild.errors import CpuBuildError, ExitCode, Problem
from cpubuild.facts.model import HostFacts
from cpubuild.jsonio import plain

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")
WORDS: dict[type, str] = {str: "a string", int: "a whole number", bool: "true or false"}


@cache
def _converter() -> Converter:
    """Build a converter that takes JSON's types for what they are and turns none into another."""
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True)

    def exact(value: Any, kind: type[T]) -> T:
        if type(value) is kind:
            return value
        raise TypeError(f"{_said(value)} is not {WORDS[kind]}")

    def number(value: Any, _: type[float]) -> float:
        if type(value) in (int, float):
            return float(value)
        raise TypeError(f"{_said(value)} is not a number")

    def items(value: Any, kind: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise TypeError(f"{_said(value)} is not a list")
        inner = get_args(kind)
        if len(inner) != 2 or inner[1] is not Ellipsis:
            if len(inner) != len(value):
                raise ValueError(f"{_said(value)} does not have {len(inner)} parts")
            return tuple(converter.structure(v, t) for v, t in zip(value, inner, strict=True))
        return tuple(converter.structure(each, inner[0]) for each in value)

    def words(value: Any, _: Any) -> frozenset[str]:
        return frozenset(items(value, tuple[str, ...]))

    for kind in WORDS:
        converter.register_structure_hook(kind, exact)
    converter.register_structure_hook(float, number)
    converter.register_structure_hook_func(_is_tuple, items)
    converter.register_structure_hook_func(lambda kind: kind == frozenset[str], words)
    return converter


def _is_tuple(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) is tuple


def _reason(error: BaseException, kind: type | None) -> str:
    from cattrs.v import format_exception

    if type(error) in (TypeError, ValueError):
        return str(error)
    return format_exception(error, kind)


def _said(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def facts_to_json(facts: HostFacts) -> dict[str, Any]:
    """Return the facts as what JSON knows; sets are sorted lists."""
    document: dict[str, Any] = plain(facts)
    return document


def facts_from_json(document: Any) -> HostFacts:
    """Build the facts from a document; all that is wrong with it is one SETTINGS error."""
    return structure(document, HostFacts)


def structure(document: Any, kind: type[T], *, source: str = "the host facts") -> T:
    """Build ``kind`` from plain data, strictly: unknown keys and missing ones are errors."""
    from cattrs import BaseValidationError, transform_error

    try:
        _refuse_nonsense(document)
        return _converter().structure(document, kind)
    except BaseValidationError as error:
        reasons = tuple(transform_error(error, format_exception=_reason))
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        reasons = (f"{type(error).__name__}: {error}",)
    raise CpuBuildError(
        *(
            Problem(
                what=f"{source}: {reason}",
                why="a document of another version, or one changed by hand",
                remedy=("record it again with this version: cpubuild check --json --verbose",),
                exit_code=ExitCode.SETTINGS,
            )
            for reason in reasons
        )
    )


def _refuse_nonsense(document: Any) -> None:
    if not isinstance(document, dict):
        raise TypeError(f"an object is expected, this is a {type(document).__name__}")


def read_facts(path: Path) -> HostFacts:
    """Read facts from a JSON file; a file that cannot be used is a SETTINGS error."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CpuBuildError(
            Problem(
                what=f"{path} cannot be read: {error}",
                why="host facts are a JSON document",
                remedy=("cpubuild check --json > host.json   # on that host",),
                exit_code=ExitCode.SETTINGS,
            )
        ) from error
    return structure(document, HostFacts, source=str(path))
