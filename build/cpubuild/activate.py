"""The environment that vLLM should run in on this host, computed and written as files."""

from __future__ import annotations

import os
from pathlib import Path

from cpubuild import __version__, jsonio
from cpubuild.facts.model import HostFacts
from cpubuild.render import render
from cpubuild.tune import Variable, compute

PLAIN_GXX = frozenset({"/usr/bin/g++", "/usr/local/bin/g++", "/bin/g++"})
FILES = (("env.sh.j2", "env.sh"), ("env.systemd.j2", "env.systemd"))


def compiler_variables(facts: HostFacts, compiler: str) -> tuple[Variable, ...]:
    """CXX for vLLM at run time (it compiles C++ when it starts), where no plain g++ is on PATH."""
    if any(c.path in PLAIN_GXX and c.works for c in facts.compilers):
        return ()
    reason = "vLLM compiles C++ when it starts, and this host has no program called g++"
    return (Variable(name="CXX", value=compiler, reason=reason),)


def variables(
    env: Path, facts: HostFacts, *, compiler: str, vllm: str = ""
) -> tuple[Variable, ...]:
    """The variables for the environment ``env`` on this host, for whatever model."""
    tuning = compute(env, facts, release=vllm, model=None, environ=os.environ)
    return (*tuning.variables, *compiler_variables(facts, compiler))


def write_files(env: Path, facts: HostFacts, *, vllm: str, compiler: str) -> tuple[Variable, ...]:
    """Write ``env.sh`` and ``env.systemd`` into ``env``; return what they set."""
    chosen = variables(env, facts, compiler=compiler, vllm=vllm)
    written(env, env, vllm=vllm, chosen=chosen)
    return chosen


def written(
    folder: Path,
    env: Path,
    *,
    vllm: str,
    chosen: tuple[Variable, ...],
    removed: tuple[str, ...] = (),
    command: list[str] | None = None,
) -> tuple[Path, ...]:
    """Render both files into ``folder``; return their paths."""
    paths = []
    for template, name in FILES:
        path = folder / name
        values = {"vllm": vllm, "tool": __version__, "path": str(path), "env": env}
        values |= {"variables": chosen, "removed": removed, "command": command or []}
        jsonio.write_text(path, render(template, values))
        paths.append(path)
    return tuple(paths)
