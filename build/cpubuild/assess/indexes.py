"""Judgements about the package indexes that pip and uv are told to use."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cpubuild.assess.base import Context, fine, state
from cpubuild.findings import Finding, Status

TORCH_INDEX = re.compile(r"download\.pytorch\.org/whl(?:/(?P<flavour>[\w.]+))?")
CUDA = re.compile(r"\b(?:cu\d{2,3}|cuda|rocm[\d.]*|auto|xpu)\b", re.IGNORECASE)
FIRST_INDEX = ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX")
OTHER_INDEX = ("PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX", "UV_FIND_LINKS")


def index_settings(ctx: Context) -> tuple[list[str], list[str]]:
    """Settings that make PyTorch's index the first, and settings that bring a CUDA torch."""
    first: list[str] = []
    cuda: list[str] = []
    for name in (*FIRST_INDEX, *OTHER_INDEX):
        value = ctx.env(name) or ""
        match = TORCH_INDEX.search(value)
        if match and name in FIRST_INDEX:
            first.append(f"{name}={value}")
        if match and CUDA.search(match["flavour"] or ""):
            cuda.append(f"{name}={value}")
    backend = ctx.env("UV_TORCH_BACKEND") or ""
    if CUDA.search(backend):
        cuda.append(f"UV_TORCH_BACKEND={backend}")
    for line in ctx.around.pip_config or ():
        match = TORCH_INDEX.search(line)
        if match and re.search(r"(?<!extra-)(?<!extra_)index[-_]url\s*=", line):
            first.append(line)
        if match and CUDA.search(match["flavour"] or ""):
            cuda.append(line)
    return first, cuda


def pip(ctx: Context) -> Iterator[Finding]:
    """Indexes that lead a resolver astray."""
    first, cuda = index_settings(ctx)
    if cuda:
        yield state(
            "environment.pip",
            Status.WARN,
            "; ".join(cuda),
            needed="PyTorch's CPU index, or none",
            why="It brings a CUDA build of torch and gigabytes of nvidia packages; this tool "
            "refuses such a torch before it is downloaded.",
            remedy=("export UV_TORCH_BACKEND=cpu", "unset " + cuda[0].split("=")[0].split(":")[0]),
        )
    elif first:
        yield state(
            "environment.pip",
            Status.WARN,
            "; ".join(first),
            needed="PyTorch's index beside the usual one, not instead of it",
            why="It holds old copies of other packages (only cmake==3.25.0 is available).",
            remedy=(
                "pip: --extra-index-url instead of --index-url",
                "uv: --index-strategy unsafe-best-match",
            ),
        )
    elif any(ctx.env(name) for name in (*FIRST_INDEX, *OTHER_INDEX)):
        yield fine("environment.pip", "indexes are set; none that misleads")
