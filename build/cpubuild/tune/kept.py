"""A measurement that is kept: beside the environment, for one model on one host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cpubuild import jsonio
from cpubuild.facts.model import HostFacts
from cpubuild.findings import Finding, Status
from cpubuild.tune.model import Option, Tuning, Variable

FOLDER = "tuned"
ANY = "any"
SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """What a measurement chose: ``variables`` (None: not set) and ``options``, with ``said``."""

    variables: tuple[tuple[str, str | None], ...]
    options: tuple[tuple[str, str], ...]
    said: str
    measured: dict[str, Any]


def place(env: Path, facts: HostFacts, model: Path | None) -> Path:
    """The file for a model on this host; its name changes when either does."""
    cpu = facts.cpu
    host = {
        "cpu": [cpu.arch, cpu.model, cpu.flags, cpu.allowed, cpu.quota, cpu.siblings],
        "nodes": [(n.id, n.cpus) for n in facts.numa],
        "memory": [facts.memory.total, facts.memory.limit],
    }
    return env / FOLDER / f"{jsonio.fingerprint([identity(model), host])[:16]}.json"


def identity(model: Path | None) -> Any:
    """What tells one model from another: its configuration and its files' sizes."""
    if model is None:
        return ANY
    config = model / "config.json"
    sizes = {p.name: p.stat().st_size for p in sorted(model.glob("*.safetensors"))}
    return [jsonio.sha256_of(config) if config.is_file() else None, sizes]


def load(env: Path, facts: HostFacts, model: Path | None) -> Kept | None:
    """The measurement for a model here, None without one."""
    found = jsonio.read(place(env, facts, model))
    if found is None or found.get("schema") != SCHEMA:
        return None
    return Kept(
        variables=tuple((str(n), v) for n, v in found["variables"].items()),
        options=tuple((str(n), str(v)) for n, v in found["options"].items()),
        said=str(found["said"]),
        measured=found["measured"],
    )


def save(env: Path, facts: HostFacts, model: Path | None, kept: Kept) -> Path:
    """Write a measurement; returns its file."""
    path = place(env, facts, model)
    document = {
        "schema": SCHEMA,
        "model": model,
        "variables": dict(kept.variables),
        "options": dict(kept.options),
        "said": kept.said,
        "measured": kept.measured,
    }
    jsonio.write(path, document)
    return path


def apply(tuning: Tuning, kept: Kept) -> Tuning:
    """A tuning with what was measured in the place of what was computed."""
    changed = dict(kept.variables)
    variables = [v for v in tuning.variables if v.name not in changed]
    variables += [
        Variable(name=n, value=v, reason=kept.said) for n, v in kept.variables if v is not None
    ]
    switched = dict(kept.options)
    options = [o for o in tuning.options if o.name not in switched]
    options += [Option(name=n, value=v, reason=kept.said) for n, v in kept.options]
    found = Finding(id="tune.measured", status=Status.OK, title=kept.said)
    return replace(
        tuning,
        variables=tuple(variables),
        options=tuple(options),
        findings=(*tuning.findings, found),
    )
