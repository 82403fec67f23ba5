"""The series as frozen data, and what became of a patch in one tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from cpubuild.release import Release

Phase = Literal["source", "installed"]
Kind = Literal["diff", "substitute", "requirements", "host-target", "options"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchContext:
    """What the predicates and the generated edits may ask about this host and this run.

    ``gcc_version`` is the host's g++ in words (None: no GNU compiler), ``gcc_probe_ok`` whether
    it compiled the probes, ``rejected_options`` the compiler options it does not know.
    ``x86_target`` is the one extension target vLLM's loader will take here; None builds all.
    ``triton`` is whether triton-cpu will be in the target environment, ``drop_requirements``
    names projects the wheel's metadata shall not ask for, beside those of the profile.
    """

    arch: str
    gcc_version: str | None
    gcc_probe_ok: bool
    rejected_options: tuple[str, ...] = ()
    x86_target: str | None = None
    nvidia_library: bool = False
    triton: bool = False
    profile: Literal["text", "full"] = "text"
    drop_requirements: tuple[str, ...] = ()
    python_version: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class When:
    """One set of conditions that must all hold; what is None or empty is not asked.

    ``releases`` is a version specifier set; ``gcc_below`` a version, ``gcc_below_floor`` asks for
    the tree's own floor. The booleans ask for exactly that answer.
    """

    releases: str | None = None
    arch: tuple[str, ...] = ()
    gcc_below: str | None = None
    gcc_below_floor: bool | None = None
    gcc_probe_ok: bool | None = None
    options_rejected: bool | None = None
    several_targets: bool | None = None
    x86_target_known: bool | None = None
    triton: bool | None = None
    url_requirements: bool | None = None
    profile: tuple[str, ...] = ()
    drops: bool | None = None
    cuda_yields_to_cpu: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """One change to a tree: a diff beside the series, or the rule that makes one from the tree.

    ``diff``: ``file`` is the diff, relative to the series. ``substitute``: in ``path`` every match
    of ``find`` becomes ``replace``; ``done`` matches where that has happened. ``requirements``:
    ``drop`` maps a profile to project names. ``options``: ``find`` matches the options that may go.
    ``host-target`` has no parameters.
    ``releases`` narrows the edit to some of the patch's releases.
    """

    kind: Kind
    releases: str | None = None
    file: str | None = None
    path: str | None = None
    find: str | None = None
    replace: str | None = None
    done: str | None = None
    drop: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Patch:
    """One entry of the series.

    ``phases`` says where it belongs: a ``source`` tree before the build, or an ``installed``
    package. ``absent`` says what a tree without the code in question means: ``refuse`` (the series
    does not know this release) or ``nothing-to-do``.
    """

    id: str
    phases: tuple[Phase, ...]
    why: str
    upstream: str
    drop_when: str
    absent: Literal["refuse", "nothing-to-do"]
    when: tuple[When, ...]
    edits: tuple[Edit, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Selected:
    """A patch whose predicate holds, the sentence that says why, and what its edits may ask."""

    patch: Patch
    reason: str
    release: Release
    context: PatchContext

    @property
    def id(self) -> str:
        """The patch's name in the series."""
        return self.patch.id


class Outcome(StrEnum):
    """What a check found: the patch applies, it is in the tree already, or it has nothing to do."""

    APPLIES = "applies"
    ALREADY = "already applied"
    NOT_NEEDED = "nothing to do"


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """The answer for one patch: ``diff`` is what git would apply, ``source`` where it came from."""

    id: str
    outcome: Outcome
    reason: str
    source: str
    diff: str = ""
    files: tuple[Touched, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Touched:
    """A file (relative to the tree) and the sha256 of its content before and after."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """The record of one patch, enough to undo it: the diff, its sha256 and the files' hashes.

    ``diff`` is empty where nothing had to be done or the tree held the patch already.
    """

    id: str
    outcome: Outcome
    reason: str
    source: str
    diff: str
    diff_sha256: str
    files: tuple[Touched, ...] = ()
