"""Judgements about the sources that were asked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cpubuild.assess.base import Context, fine, state
from cpubuild.facts.model import Reach
from cpubuild.findings import Finding, Status

KINDS = (
    ("network.onednn", re.compile(r"onednn", re.IGNORECASE)),
    ("network.torch", re.compile(r"download\.pytorch\.org")),
    ("network.github", re.compile(r"github", re.IGNORECASE)),
    ("network.hub", re.compile(r"huggingface|modelscope|hf-mirror", re.IGNORECASE)),
    ("network.packages", re.compile(r"^(apt|dnf|zypper|pacman)|packages of the", re.IGNORECASE)),
)
REST = "network.index"
IPV4 = "127.0.0.1"
MATTERS = {
    "network.onednn": (
        "oneDNN is cloned while CMake configures.",
        (
            "pass http_proxy and https_proxy into the build",
            "--onednn FOLDER  # a checkout of the pinned tag; used as "
            "FETCHCONTENT_SOURCE_DIR_ONEDNN",
            "the distribution's oneDNN source package is tried next",
        ),
    ),
    "network.torch": (
        "CPU builds of torch come from here unless the host's own index has them.",
        ("pip config set global.find-links FOLDER  # with torch's +cpu wheel in it",),
    ),
    "network.github": (
        "vLLM's tags come from here; its source distribution is tried next.",
        ("--vllm PATH  # a tree fetched elsewhere", "export https_proxy=http://HOST:PORT"),
    ),
    "network.hub": (
        "Only a real model is fetched from here; the smoke test makes its own.",
        ("export HF_ENDPOINT=URL  # a mirror", "--model FOLDER"),
    ),
    "network.packages": (
        "Packages of the operating system come from here.",
        ("--no-system  # and install by hand what is missing",),
    ),
    "network.index": (
        "Python packages come from here.",
        (
            "pip config set global.index-url URL  # the index that this host reaches",
            "--offline  # when everything is cached already",
        ),
    ),
}


def kind(reach: Reach) -> str:
    """The check that a source belongs to."""
    return next((check for check, pattern in KINDS if pattern.search(reach.name)), REST)


def sources(ctx: Context) -> Iterator[Finding]:
    """Each source that was asked; one of several of a kind is enough."""
    if ctx.needs.offline:
        yield fine("network.index", "offline was asked for: nothing is fetched")
        return
    by_kind: dict[str, list[Reach]] = {}
    for reach in ctx.facts.reach:
        by_kind.setdefault(kind(reach), []).append(reach)
    for check, answers in by_kind.items():
        evidence = tuple(
            f"{r.name}: {'answers' if r.ok else r.detail or 'no answer'} ({r.seconds:.1f} s)"
            for r in answers
        )
        good = [r.name for r in answers if r.ok]
        if good:
            yield fine(check, f"{good[0]} answers", evidence=evidence)
            continue
        why, remedy = MATTERS[check]
        yield state(
            check,
            Status.WARN,
            f"{answers[0].name}: {answers[0].detail or 'no answer'}",
            needed="an answer, or another source for the same",
            why=why,
            remedy=remedy,
            evidence=evidence,
        )


def loopback(ctx: Context) -> Iterator[Finding]:
    """Whether a connection over loopback comes about."""
    tried = ctx.facts.container.loopback
    evidence = tuple(f"{address}: {answer}" for address, answer in tried)
    good = [address for address, answer in tried if answer == "ok"]
    if not tried:
        yield state("network.loopback", Status.UNKNOWN, "not tried")
    elif IPV4 in good:
        yield fine("network.loopback", f"{IPV4} answers", evidence=evidence)
    else:
        yield state(
            "network.loopback",
            Status.WARN if good else Status.BLOCKER,
            "; ".join(evidence),
            needed=f"a connection to {IPV4}",
            why="vLLM's engine, its workers and torch.distributed (gloo) talk to each other over "
            "loopback sockets, so no engine starts and nothing could be proved."
            if not good
            else f"vLLM takes {good[0]} then, other programs may look for {IPV4} alone.",
            remedy=(
                "ip link set lo up   # as root; in a network namespace of its own it starts down",
                "docker run --network none   # has a loopback that is up, unshare --net has none",
            ),
            evidence=evidence,
        )


def urls(ctx: Context) -> Iterator[Finding]:
    """Requirements that name a URL, which no index can serve."""
    names = sorted({row.name for row in ctx.release.url_requirements})
    if not names:
        return
    github = [r for r in ctx.facts.reach if kind(r) == "network.github"]
    evidence = tuple(f"{r.name} @ {r.url} ; {r.marker}" for r in ctx.release.url_requirements)
    if ctx.needs.offline or (github and not any(r.ok for r in github)):
        yield state(
            "network.urls",
            Status.WARN,
            f"{', '.join(names)} by URL only, from a host that does not answer",
            why="uv and a firewall refuse it; the text profile leaves it out of the wheel's "
            "metadata, and vLLM takes its engine without Triton.",
            remedy=("--profile text",),
            evidence=evidence,
        )
    else:
        yield fine("network.urls", ", ".join(names), evidence=evidence)


JUDGES = (sources, loopback, urls)
