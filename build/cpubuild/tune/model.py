"""What a tuning holds: variables, options of ``vllm serve``, what fits, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cpubuild.findings import Finding, Status


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """One variable, its value and why it is set."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One option of ``vllm serve`` as this release spells it.

    ``value`` None: a switch, or one with several ``values``.
    """

    name: str
    value: str | None
    reason: str
    values: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """The option as words of a command line."""
        return [self.name, *([] if self.value is None else [self.value]), *self.values]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """The settings for one environment on one host, for one model or (None) for any.

    ``variables`` are set and ``removed`` (name and reason) taken out of the surroundings;
    ``launcher`` goes before the command line (numactl and its options), empty for none;
    ``findings`` say what fits, what does not, and by how many bytes; ``other_dtype`` is a type
    that could be faster here, which only a measurement tells. ``cache_tokens`` is what the cache
    keeps in this type, ``memory`` the bytes that a server with these settings takes in all, as
    planned; both None where no model is known.
    """

    env: Path
    release: str
    model: Path | None
    variables: tuple[Variable, ...]
    options: tuple[Option, ...]
    removed: tuple[tuple[str, str], ...] = ()
    launcher: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    other_dtype: str | None = None
    cache_tokens: int | None = None
    memory: int | None = None

    @property
    def fits(self) -> bool:
        """Whether nothing stands against a start with these settings."""
        return all(f.status is not Status.BLOCKER for f in self.findings)

    def environ(self, base: Mapping[str, str]) -> dict[str, str]:
        """The surroundings ``base`` with this tuning's variables."""
        gone = {name for name, _ in self.removed}
        kept = {name: value for name, value in base.items() if name not in gone}
        return kept | {v.name: v.value for v in self.variables}

    def arguments(self) -> list[str]:
        """The options as words of a command line."""
        return [word for option in self.options for word in option.words()]
