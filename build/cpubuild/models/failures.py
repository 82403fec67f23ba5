"""What a hub's client said, as this tool's errors: each cause with its own message and remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cpubuild.errors import CpuBuildError, ExitCode, Problem, fail
from cpubuild.models.names import Reference

INSTEAD = (
    "a folder or an archive that was copied here: cpubuild model get FOLDER, or FILE.tar.gz",
    "the tiny model that verify makes itself needs no hub: cpubuild verify",
)
MIRRORS = {
    "hf": "a mirror: HF_ENDPOINT=https://MIRROR; or the other hub: --from modelscope",
    "modelscope": "another endpoint: MODELSCOPE_ENDPOINT=https://HOST; or the other hub: --from hf",
    "git": "a mirror: HF_ENDPOINT=https://MIRROR, or the address of a repository as the name",
}
TOKENS = {
    "hf": "HF_TOKEN=... cpubuild model get {id}   # a token of an account that has access",
    "modelscope": "MODELSCOPE_API_TOKEN=... cpubuild model get {id} --from modelscope",
    "git": "git's own credentials (git credential-store, or an ssh address)",
}
AGAIN = "run the same command again: what has come is kept, the rest continues"
SECRET = re.compile(r"(hf_|ms-)[A-Za-z0-9-]{8,}|(?<=://)[^/\s@]+@|(?<=[?&])[^=\s]+=[^&\s]+")


def explained(
    error: Mapping[str, Any], hub: str, asked: Reference, endpoint: str, *, kept: int = 0
) -> CpuBuildError:
    """The error for a failure document of the probe; ``kept`` bytes lie ready to continue from."""
    kind, said = str(error.get("kind")), redact(f"{error.get('type')}: {error.get('message')}")
    revision = f", revision {asked.revision}" if asked.revision else ""
    name = f"{asked.id}{revision}"
    held = f"; {kept} bytes are kept to continue from" if kept else ""
    if kind == "network":
        return unreachable(hub, name, endpoint, said + held)
    if kind == "gated":
        return fail(
            ExitCode.DOWNLOAD,
            f"{endpoint} does not give {name}: access is refused",
            why=f"its owner asks for an agreement or a token; {said}",
            remedy=(
                f"agree to the terms at {endpoint}/{asked.id}",
                TOKENS[hub].format(id=asked.id),
            ),
        )
    if kind in ("absent", "revision"):
        what = f"revision {asked.revision} of {asked.id}" if kind == "revision" else name
        return fail(
            ExitCode.DOWNLOAD,
            f"{endpoint} has no {what}",
            why=f"or it is private, and no token of an account that may see it was given; {said}",
            remedy=(
                "look at the spelling: cpubuild model list shows the short names",
                TOKENS[hub].format(id=asked.id),
                MIRRORS[hub],
            ),
        )
    if kind in ("hash", "size"):
        wrong = "another content than" if kind == "hash" else "another size than"
        file = f"{error['file']} of {name}" if error.get("file") else name
        return fail(
            ExitCode.DOWNLOAD,
            f"{file} came with {wrong} {endpoint} announced; it was thrown away",
            why=said,
            remedy=(AGAIN, "if it stays so, a mirror or proxy changes files: ask its owner"),
        )
    if kind == "space":
        return fail(
            ExitCode.PREREQUISITE,
            f"the disk was full before all of {name} had come{held}",
            why=said,
            remedy=("make room, or give another --state", AGAIN),
        )
    return fail(
        ExitCode.DOWNLOAD,
        f"{name} could not be fetched from {endpoint}: {said}",
        why=held.lstrip("; "),
        remedy=(AGAIN, MIRRORS[hub]),
    )


def unreachable(hub: str, name: str, endpoint: str, said: str) -> CpuBuildError:
    """The error for a hub that does not answer, with everything that can be used instead."""
    return fail(
        ExitCode.DOWNLOAD,
        f"{name} cannot be fetched: {endpoint} does not answer",
        why=said,
        remedy=(MIRRORS[hub], *INSTEAD, AGAIN),
    )


def no_client(error: CpuBuildError, name: str, endpoint: str) -> CpuBuildError:
    """The error for a hub's client that cannot be installed, with what needs none."""
    first = error.problems[0]
    problem = Problem(
        what=f"{name} cannot be fetched from {endpoint}: {first.what}",
        why=first.why,
        remedy=(*first.remedy, *INSTEAD),
        exit_code=first.exit_code,
    )
    return CpuBuildError(problem, log=error.log, tail=error.tail)


def offline(name: str, endpoint: str, hub: str) -> CpuBuildError:
    """The error for a model that is not stored when this run may not use the network."""
    return fail(
        ExitCode.DOWNLOAD,
        f"{name} is not stored, and this run is offline: {endpoint} is not asked",
        remedy=("leave out --offline", *INSTEAD, MIRRORS[hub]),
    )


def redact(text: str) -> str:
    """``text`` without tokens, user names in addresses and signed queries."""
    return SECRET.sub("***", text)
