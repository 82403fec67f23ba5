"""LD_PRELOAD: tcmalloc and one OpenMP runtime, as resolved paths of files that are there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cpubuild.facts.model import HostFacts
from cpubuild.tune.model import Variable

NAME = "LD_PRELOAD"


def tcmalloc(env: Path, facts: HostFacts) -> Path | None:
    """The tcmalloc to preload: the one inside the wheel, else the host's."""
    inside = sorted(env.glob("lib/python3*/site-packages/vllm/libs/libtcmalloc*"))
    return first([*inside, facts.libraries.tcmalloc])


def openmp(env: Path, facts: HostFacts) -> Path | None:
    """Intel's OpenMP runtime, if the environment holds it; it is one of x86."""
    if facts.cpu.arch != "x86_64":
        return None
    inside = sorted(env.glob("lib/python3*/**/libiomp5.so"))
    return first([env / "lib" / "libiomp5.so", *inside])


def first(paths: Iterable[Path | str | None]) -> Path | None:
    """The first path that is a file."""
    return next((Path(p) for p in paths if p and Path(p).is_file()), None)


def variables(env: Path, facts: HostFacts) -> tuple[Variable, ...]:
    """LD_PRELOAD for an environment on this host, empty when there is nothing to preload."""
    allocator, runtime = tcmalloc(env, facts), openmp(env, facts)
    found = [path for path in (allocator, runtime) if path]
    if not found:
        return ()
    reason = "tcmalloc and libiomp5: a faster allocator and one OpenMP runtime, as vLLM asks"
    if not allocator:
        reason = "libiomp5: one OpenMP runtime; no tcmalloc is in the wheel or on the host"
    elif not runtime:
        reason = "tcmalloc: a faster allocator; vLLM takes torch's OpenMP runtime by itself"
    return (Variable(name=NAME, value=":".join(str(path) for path in found), reason=reason),)
