"""The receipt: exactly what was built from what, on which host, and what was proved of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpubuild import __version__, jsonio
from cpubuild.state import RECEIPT, now, receipt_of

if TYPE_CHECKING:
    from cpubuild.facts.model import HostFacts
    from cpubuild.plan import Inputs
    from cpubuild.tune.model import Variable

SCHEMA = 1


def compose(
    *,
    inputs: Inputs,
    request: str,
    facts: HostFacts,
    manifest: Mapping[str, Any],
    installed: Mapping[str, Any],
    report: Mapping[str, Any],
    variables: Sequence[Variable],
    settings: Sequence[tuple[str, str, str]],
    steps: Sequence[Mapping[str, Any]],
    env: Path,
    lock: Path,
) -> dict[str, Any]:
    """Put together the receipt's document (data/schemas/receipt.json)."""
    return {
        "schema": SCHEMA,
        "tool": __version__,
        "created": now(),
        "requests": [request],
        "plan": inputs.plan_id,
        "environment": str(env),
        "vllm": {"version": f"{inputs.release.version}+cpu", "release": inputs.release},
        "sources": {c.what: c for c in inputs.choices},
        "warnings": list(inputs.warnings),
        "wheel": {
            "key": inputs.wheel_key,
            "file": manifest.get("file"),
            "sha256": manifest.get("sha256"),
            "inputs": dict(inputs.wheel),
            "patches": manifest.get("patches"),
            "compile_seconds": manifest.get("seconds"),
            "build_packages": manifest.get("build_packages"),
        },
        "lock": {"file": str(lock), "sha256": installed.get("lock_sha256")},
        "packages": installed.get("packages"),
        "environment_variables": {v.name: v.value for v in variables},
        "settings": {name: {"value": value, "from": origin} for name, value, origin in settings},
        "host": host(facts),
        "steps": list(steps),
        "verify": dict(report),
    }


def host(facts: HostFacts) -> dict[str, Any]:
    """What a receipt keeps of the host: no names, no addresses, no environment."""
    return {
        "arch": facts.cpu.arch,
        "vendor": facts.cpu.vendor,
        "model": facts.cpu.model,
        "flags": facts.cpu.flags,
        "logical": facts.cpu.logical,
        "memory_total": facts.memory.total,
        "kernel": facts.kernel,
        "libc": f"{facts.libc.name} {facts.libc.version}",
        "distro": facts.distro,
        "compilers": facts.compilers,
        "libraries": facts.libraries,
    }


def load(env: Path) -> dict[str, Any] | None:
    """The receipt of an environment, None if it has none."""
    return receipt_of(env)


def answered(env: Path, request: str) -> dict[str, Any]:
    """The receipt, which from now on also answers ``request``: another way to ask for the same."""
    kept = load(env) or {}
    if kept and request not in kept.get("requests", ()):
        kept["requests"] = [*kept.get("requests", ()), request]
        save(env, kept)
    return kept


def save(env: Path, receipt: Mapping[str, Any]) -> None:
    """Write the receipt; from then on the environment counts as verified."""
    jsonio.write(env / RECEIPT, receipt)


def release_of(env: Path) -> str:
    """The release of vLLM in an environment, without its build (``0.32.0``), else ``unknown``.

    By the receipt, and in an environment that somebody else made by the installed package.
    """
    version = (load(env) or {}).get("vllm", {}).get("version")
    if not version:
        info = next(env.glob("lib*/python3*/site-packages/vllm*.dist-info"), None)
        version = info.name.removesuffix(".dist-info").partition("-")[2] if info else "unknown"
    return str(version).partition("+")[0]
