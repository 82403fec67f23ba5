"""Find torch exactly as pinned and as a CPU build; refuse a CUDA build before it is downloaded."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from cpubuild.facts.model import Interpreter
from cpubuild.sources import Rejected
from cpubuild.sources.constraints import Excluded, excluded_by
from cpubuild.sources.fetch import file_sha256
from cpubuild.sources.index import IndexFile, index_files, listing
from cpubuild.sources.pipconfig import PipConfig
from cpubuild.sources.session import reason
from cpubuild.sources.wheels import Build, build_of, supported, why_not_tagged

PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PROBE_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchChoice:
    """The wheel to install: ``path`` when it lies on this host, ``size`` in bytes.

    ``sha256`` is the index's; for a local file ``torch_sha256`` computes it when it is needed.
    """

    project: str
    pin: str
    version: str
    filename: str
    url: str
    origin: str
    reason: str
    path: str | None = None
    size: int | None = None
    sha256: str | None = None
    rejected: tuple[Rejected, ...] = ()

    @property
    def file(self) -> IndexFile:
        """The wheel in the shape that ``fetch.download`` takes."""
        return IndexFile(
            project=self.project,
            version=self.version,
            filename=self.filename,
            url=self.url,
            kind="wheel",
            origin=self.origin,
            sha256=self.sha256,
            size=self.size,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchMissing:
    """The pin cannot be had for this interpreter: ``why`` in a sentence, and what was refused."""

    project: str
    pin: str
    why: str
    rejected: tuple[Rejected, ...] = ()
    remedy: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """All wheels anywhere whose version has the pin's public part, and who did not answer."""

    project: str
    pin: str
    files: tuple[IndexFile, ...]
    failed: tuple[Rejected, ...]
    excluded: Excluded | None = None


def find_torch(
    pin: str,
    *,
    python_tag: str,
    arch: str,
    glibc: str | None,
    config: PipConfig,
    project: str = "torch",
    offline: bool = False,
    cpu_index: str = PYTORCH_CPU_INDEX,
) -> TorchChoice | TorchMissing:
    """Find ``project`` at exactly ``pin`` (``2.13.0+cpu``) for one interpreter.

    ``python_tag`` is that of the target (``cp311``, ``cp313t``), ``glibc`` its version (None: no
    glibc). A pin without local part is met by ``+cpu``, or by a wheel shown to be a CPU build.
    """
    found = candidates(pin, config=config, project=project, offline=offline, cpu_index=cpu_index)
    return select(found, python_tag=python_tag, arch=arch, glibc=glibc, config=config)


def pythons_with_torch(
    pin: str,
    interpreters: Sequence[Interpreter],
    *,
    arch: str,
    glibc: str | None,
    config: PipConfig,
    project: str = "torch",
    offline: bool = False,
    cpu_index: str = PYTORCH_CPU_INDEX,
) -> tuple[tuple[Interpreter, TorchChoice | TorchMissing], ...]:
    """Say for each interpreter whether the pin can be had; every place is asked only once."""
    found = candidates(pin, config=config, project=project, offline=offline, cpu_index=cpu_index)
    answers: dict[str, TorchChoice | TorchMissing] = {}
    for interpreter in interpreters:
        tag = python_tag_of(interpreter)
        if tag not in answers:
            answers[tag] = select(found, python_tag=tag, arch=arch, glibc=glibc, config=config)
    return tuple((i, answers[python_tag_of(i)]) for i in interpreters)


def python_tag_of(interpreter: Interpreter) -> str:
    """The wheel tag of an interpreter: ``cp311``, ``cp313t`` when free-threaded, ``pp310``."""
    major, minor = interpreter.version.split(".")[:2]
    short = "cp" if interpreter.implementation.lower() == "cpython" else "pp"
    return f"{short}{major}{minor}" + ("t" if interpreter.free_threaded else "")


def candidates(
    pin: str,
    *,
    config: PipConfig,
    project: str = "torch",
    offline: bool = False,
    cpu_index: str = PYTORCH_CPU_INDEX,
) -> Candidates:
    """Collect the wheels of the pin from pip's places and, in seconds, PyTorch's CPU index."""
    everything = listing(project, config, offline=offline)
    failed = list(everything.failed)
    files = [f for r in everything.releases for f in r.files]
    if config.no_index:
        failed.append(Rejected(what=cpu_index, why="pip's configuration says no-index"))
    elif offline:
        failed.append(Rejected(what=cpu_index, why="not asked: this run is offline"))
    elif cpu_index.rstrip("/") not in [u.rstrip("/") for u in config.index_urls]:
        try:
            files += index_files(project, cpu_index, config, seconds=PROBE_SECONDS)
        except (OSError, ValueError) as error:
            failed.append(Rejected(what=cpu_index, why=reason(error)))
    public = Version(pin).public
    return Candidates(
        project=project,
        pin=pin,
        files=tuple(f for f in files if f.kind == "wheel" and _public(f) == public),
        failed=tuple(failed),
        excluded=excluded_by(project, pin, config, offline=offline),
    )


def select(
    found: Candidates, *, python_tag: str, arch: str, glibc: str | None, config: PipConfig
) -> TorchChoice | TorchMissing:
    """Pick the wheel for one interpreter: a local file first, then PyTorch's index, then others."""
    if found.excluded is not None:
        return _excluded(found, found.excluded)
    tags = supported(python_tag, arch, glibc)
    rejected: list[Rejected] = []
    mismatched: list[Rejected] = []
    fitting: list[tuple[IndexFile, str]] = []
    for file in found.files:
        why = why_not_tagged(file.filename, tags, python_tag, arch, glibc)
        if why:
            mismatched.append(Rejected(what=f"{file.filename} ({file.origin})", why=why))
            continue
        why, shown = judge(file, found.pin, arch, config)
        if why:
            rejected.append(Rejected(what=f"{file.filename} ({file.origin})", why=why))
        else:
            fitting.append((file, shown))
    rejected += [*found.failed, *mismatched]
    if not fitting:
        return _missing(found, rejected, python_tag, arch)
    fitting.sort(key=lambda pair: _rank(pair[0], tags))
    file, shown = fitting[0]
    others = [
        Rejected(what=f"{f.filename} ({f.origin})", why="the one that was taken comes first")
        for f, _ in fitting[1:]
    ]
    return TorchChoice(
        project=found.project,
        pin=found.pin,
        version=file.version,
        filename=file.filename,
        url=file.url,
        origin=file.origin,
        reason=f"{shown}, for {python_tag} on {arch}, from {file.origin}"
        + (" (on this host, nothing to download)" if file.path else ""),
        path=str(file.path) if file.path else None,
        size=file.size,
        sha256=file.sha256,
        rejected=(*others, *summed(rejected)),
    )


def judge(file: IndexFile, pin: str, arch: str, config: PipConfig) -> tuple[str, str]:
    """Say why ``file`` is not the pinned CPU build (``""`` if it is), and what shows that it is."""
    version, wanted = Version(file.version), Version(pin)
    if wanted.local and version.local is None:
        kind = build_of(file, arch, config)
        if kind.build is not Build.CPU:
            return kind.evidence, ""
        return f"the pin asks for {pin}, and its version carries no +{wanted.local}", ""
    if version.local not in (None, "cpu", wanted.local):
        return f"it is the {version.local} build, not the CPU build", ""
    if wanted.local and version.local != wanted.local:
        return f"it is {version}, the pin asks for {pin}", ""
    kind = build_of(file, arch, config)
    if kind.build is not Build.CPU:
        return kind.evidence, ""
    return "", f"exactly {version}: {kind.evidence}"


def torch_sha256(choice: TorchChoice) -> str | None:
    """The wheel's sha256: the index's, or that of the local file; None for an unhashed URL."""
    if choice.sha256 is None and choice.path is not None:
        return file_sha256(Path(choice.path))
    return choice.sha256


def summed(rejected: Iterable[Rejected]) -> tuple[Rejected, ...]:
    """Fold refusals with the same reason into one line, so that a long index stays readable."""
    by_why: dict[str, list[str]] = {}
    for one in rejected:
        by_why.setdefault(one.why, []).append(one.what)
    return tuple(
        Rejected(what=what[0] if len(what) == 1 else f"{what[0]} and {len(what) - 1} more", why=why)
        for why, what in by_why.items()
    )


def _public(file: IndexFile) -> str | None:
    try:
        return Version(file.version).public
    except InvalidVersion:
        return None


def _rank(file: IndexFile, tags: dict[str, int]) -> tuple[bool, bool, bool, int]:
    best = len(tags)
    with contextlib.suppress(InvalidWheelFilename):
        best = min(tags.get(str(t), best) for t in parse_wheel_filename(file.filename)[3])
    return file.path is None, file.sha256 is None, "download.pytorch.org" not in file.url, best


def _excluded(found: Candidates, excluded: Excluded) -> TorchMissing:
    return TorchMissing(
        project=found.project,
        pin=found.pin,
        why=f"pip's constraint {excluded.line!r} ({excluded.file}, line {excluded.number}) "
        f"excludes {found.project} {found.pin}",
        remedy=(
            f"change that line so that it admits {found.pin}",
            "choose a vLLM release whose torch it admits: --vllm VERSION",
        ),
    )


def _missing(
    found: Candidates, rejected: list[Rejected], python_tag: str, arch: str
) -> TorchMissing:
    tags = sorted({t for f in found.files for t in re.findall(r"-(cp\d+t?)-", f.filename)})
    if not found.files:
        why = f"no place that this host reaches has {found.project} {found.pin}"
    else:
        why = (
            f"{found.project} {found.pin} cannot be had as a CPU build for {python_tag} on {arch}; "
            f"{len(found.files)} wheels of that version were seen (for {', '.join(tags)})"
        )
    return TorchMissing(
        project=found.project,
        pin=found.pin,
        why=why,
        rejected=summed(rejected),
        remedy=(
            f"make {PYTORCH_CPU_INDEX} or a mirror of it reachable: "
            "pip config set global.extra-index-url URL",
            f"put the wheel in a folder: pip config set global.find-links DIR "
            f"({found.project}-{found.pin}-{python_tag}-...-{arch}.whl)",
            "use another interpreter: --python PATH",
        ),
    )
