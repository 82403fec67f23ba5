"""A host, a release and a plan's inputs for the tests of the core, each with its own changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cpubuild import jsonio
from cpubuild.calls import Call
from cpubuild.facts.collect import replay
from cpubuild.facts.model import HostFacts
from cpubuild.plan import Inputs, environment_inputs
from cpubuild.release import Release, known_release
from cpubuild.state import State

HOSTS = Path(__file__).parents[2] / "hosts"
WHEEL = {
    "vllm": "0.32.0",
    "source": "sdist:abc",
    "arch": "x86_64",
    "isa": [],
    "targets": "_C_AVX512",
    "python": "3.11",
    "torch": "2.13.0+cpu",
    "torch_sha256": "0" * 64,
    "build_requirements": ["setuptools", "ninja"],
    "patches": ["one:aaaa", "two:bbbb"],
    "profile": "text",
    "tcmalloc": None,
}


@pytest.fixture
def make_facts() -> Callable[..., HostFacts]:
    """A recorded host; ``cpu`` and ``memory`` take changes of their parts."""
    recorded = replay(HOSTS / "avx512--ice-lake")

    def make(
        *, cpu: dict[str, Any] | None = None, memory: dict[str, Any] | None = None, **changes: Any
    ) -> HostFacts:
        return dataclasses.replace(
            recorded,
            cpu=dataclasses.replace(recorded.cpu, **(cpu or {})),
            memory=dataclasses.replace(recorded.memory, **(memory or {})),
            **changes,
        )

    return make


@pytest.fixture
def release() -> Release:
    known = known_release("0.32.0", "x86_64")
    assert known is not None
    return known


@pytest.fixture
def make_inputs(release: Release) -> Callable[..., Inputs]:
    """Inputs of a plan; changes are those of the wheel's inputs."""

    def make(*, requirements: tuple[str, ...] = ("numpy",), **changes: Any) -> Inputs:
        return Inputs(
            release=release,
            tree=Path("/nowhere"),
            choices=(),
            warnings=(),
            wheel={**WHEEL, **changes},
            env=environment_inputs(
                python="/usr/bin/python3.11 3.11.2", profile="text", requirements=requirements
            ),
        )

    return make


@pytest.fixture
def state(tmp_path: Path) -> State:
    made = State(root=tmp_path / "state")
    made.prepare()
    (made.root / "lock").touch()
    return made


@pytest.fixture
def make_environment(state: State) -> Callable[..., Path]:
    """An environment below the state root; without a verdict it is incomplete."""

    def make(
        name: str, created: str = "2026-01-01T00:00:00Z", verdict: str | None = "pass"
    ) -> Path:
        env = state.envs / name
        (env / "bin").mkdir(parents=True)
        (env / "bin" / "python").touch()
        (state.locks / f"{name}.txt").write_text("numpy==2\n")
        if verdict is not None:
            kept = {"created": created, "verify": {"verdict": verdict}, "vllm": {"version": name}}
            jsonio.write(env / "receipt.json", kept)
        return env

    return make


@pytest.fixture
def call(state: State) -> Callable[..., Call]:
    """A call of a verb on the state root of the test."""

    def make(**options: Any) -> Call:
        return Call(flags={"state": str(state.root)}, options=options, verbose=False, environ={})

    return make
