"""What is said when the vLLM that was asked for cannot be had: by version, by ref, offline."""

from __future__ import annotations

from bisect import bisect_left
from itertools import zip_longest
from pathlib import Path

from packaging.version import InvalidVersion, Version

from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.release.known import known_versions
from cpubuild.sources import trees
from cpubuild.sources.git import RemoteRefs


def unknown_version(spec: str, known: tuple[str, ...]) -> CpuBuildError:
    """Build the error for a version that does not exist: its neighbours in order are named."""
    near = nearest(spec.removeprefix("v"), known)
    return fail(
        ExitCode.SETTINGS,
        f"there is no vLLM {spec}; the nearest releases are {', '.join(near)}",
        why="neither the package index nor a git tag has it",
        remedy=(*(f"--vllm {v}" for v in near[:2]), "--vllm latest"),
    )


def nearest(version: str, known: tuple[str, ...], count: int = 4) -> tuple[str, ...]:
    """The ``count`` versions of ``known`` around ``version``, by turns the next below and above."""
    ordered = sorted({Version(v) for v in known})
    at = bisect_left(ordered, Version(version))
    turns = zip_longest(reversed(ordered[:at]), ordered[at:])
    return tuple(str(v) for pair in turns for v in pair if v is not None)[:count]


def unknown_ref(spec: str, refs: RemoteRefs) -> CpuBuildError:
    """Build the error for a name that the repository does not have; names near it are told."""
    from difflib import get_close_matches

    names = {name.split("/", 2)[-1] for name, _ in refs.refs if name.startswith("refs/")}
    near = get_close_matches(spec, sorted(names), n=4, cutoff=0.4)
    return fail(
        ExitCode.SETTINGS,
        f"--vllm {spec} is neither a version nor a branch, tag or full commit of {refs.repository}"
        + (f"; near it: {', '.join(near)}" if near else ""),
        remedy=(*(f"--vllm {n}" for n in near[:2]), "--vllm COMMIT (all 40 digits)"),
    )


def not_cached(spec: str, folder: Path) -> CpuBuildError:
    """Build the error for sources that are not here while nothing may be fetched."""
    kept = [record for _, record in trees.records(folder) if "spec" in record]
    held = sorted({str(record["version"]) for record in kept if record.get("version")})
    why = f"the cache holds: {', '.join(held) or 'none'}"
    known = known_versions()
    if (wanted := _version(spec)) is not None and wanted.public not in known:
        why += f"; releases near it that are known: {', '.join(nearest(wanted.public, known))}"
    return fail(
        ExitCode.DOWNLOAD,
        f"the sources of vLLM {spec} are not in the cache ({folder}) and this run is offline",
        why=why,
        remedy=("run once without --offline", "--vllm DIR (sources that lie on this host)"),
    )


def refuse_ancient(spec: str) -> None:
    """Raise a SETTINGS error for a version from before the releases that can be built here."""
    known = known_versions()
    wanted = _version(spec)
    if wanted is None or wanted.release >= Version(known[0]).release:
        return
    near = nearest(wanted.public, known)
    raise fail(
        ExitCode.SETTINGS,
        f"there is no vLLM {spec} that can be built here; the nearest releases that can: "
        + ", ".join(near),
        why=f"{known[0]} is the oldest release whose tree this tool can read",
        remedy=(f"--vllm {near[0]}", f"--vllm {known[-1]}", "--vllm latest"),
    )


def _version(spec: str) -> Version | None:
    try:
        return Version(spec)
    except InvalidVersion:
        return None
