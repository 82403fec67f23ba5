"""The plan: what was chosen, the ordered steps, and which of them are left; nothing here acts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cpubuild import __version__, jsonio
from cpubuild.release import Release
from cpubuild.state import State, receipt_of, whole

KEY_LENGTH = 12
# The target's packages wait for the build environment, so that torch is fetched and unpacked once.
NEEDS = {
    "compile": ("buildenv", "patch"),
    "dependencies": ("lock", "buildenv"),
    "environment": ("dependencies", "compile"),
    "verify": ("environment",),
    "activate": ("verify",),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One choice among sources: what was taken, why, and what was not, each with why not.

    ``record`` holds what identifies the content (version, URL or path, sha256 or commit).
    """

    what: str
    taken: str
    reason: str
    rejected: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """Everything a build depends on, chosen and named by content.

    ``wheel`` shapes the wheel, ``env`` beside it the environment; both are flat name -> value
    tables so that two of them can be compared (``explain_miss``).
    """

    release: Release
    tree: Path
    choices: tuple[Choice, ...]
    warnings: tuple[str, ...]
    wheel: Mapping[str, Any]
    env: Mapping[str, Any]

    @property
    def wheel_key(self) -> str:
        """Name of the wheel by content."""
        return jsonio.fingerprint(self.wheel)[:KEY_LENGTH]

    @property
    def buildenv_key(self) -> str:
        """Name of the build environment by content."""
        names = ("python", "torch", "torch_sha256", "build_requirements", "arch")
        return jsonio.fingerprint({n: self.wheel[n] for n in names})[:KEY_LENGTH]

    @property
    def plan_id(self) -> str:
        """Name of the plan: release version and content."""
        key = jsonio.fingerprint({"wheel": self.wheel, "env": self.env})[:KEY_LENGTH]
        return f"{self.release.version}-{key}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step: why it is there, the fingerprint of its inputs, whether it is done already.

    ``needs`` names the steps that must be done before it starts.
    """

    id: str
    title: str
    reason: str
    fingerprint: str
    done: bool
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Ordered steps for one environment; no step left means there is nothing to do."""

    id: str
    steps: tuple[Step, ...]

    @property
    def left(self) -> tuple[Step, ...]:
        """The steps that still have to run."""
        return tuple(step for step in self.steps if not step.done)


def wheel_of(folder: Path) -> Path | None:
    """The finished wheel in ``folder`` (one of the state root's wheel folders), if it is whole."""
    manifest = jsonio.read(folder / "manifest.json")
    if manifest is None:
        return None
    wheel = folder / str(manifest.get("file"))
    return wheel if wheel.is_file() and wheel.stat().st_size == manifest.get("size") else None


def make_plan(inputs: Inputs, state: State) -> Plan:
    """Lay out the steps for ``inputs``; what ``state`` already holds is marked done."""
    env, key, version = state.envs / inputs.plan_id, inputs.wheel_key, inputs.release.version
    torch, patches = inputs.wheel["torch"], inputs.wheel["patches"]
    names = ", ".join(p.split(":")[0] for p in patches) or "nothing to patch"
    wheel = wheel_of(state.wheels / key) is not None
    buildenv = (state.buildenvs / inputs.buildenv_key / "complete.json").is_file()
    patched = (state.builds / key / "patched.json").is_file()
    lock = state.locks / f"{inputs.plan_id}.txt"
    installed = (env / "installed.json").is_file() and whole(env)
    locked = lock.is_file() or installed
    receipt = receipt_of(env) or {}
    verified = installed and receipt.get("verify", {}).get("verdict") == "pass"
    active = verified and state.current_env() == env.resolve()
    # id, what it does, why, whether it is done, the content it depends on
    rows = (
        ("lock", "resolve run-time requirements into a lock with hashes",
         f"profile {inputs.env['profile']}, torch {torch}", locked, inputs.plan_id),
        ("buildenv", "make the build environment",
         f"torch {torch} and the tree's own build requirements, no build isolation",
         buildenv or wheel or installed, inputs.buildenv_key),
        ("patch", f"copy the tree and apply {len(patches)} patches", names,
         patched or wheel or installed, key),
        ("compile", f"compile vLLM {version} for {inputs.wheel['targets']}",
         f"wheel {key} is in the cache" if wheel else f"no wheel {key} in the cache",
         wheel or installed, key),
        ("dependencies", "make the target environment from the lock",
         "a new environment for each plan; beside the compile",
         installed or depends(env, lock), inputs.plan_id),
        ("environment", "install the wheel and check that all packages agree",
         "nothing but what is in the lock and the wheel", installed, inputs.plan_id),
        ("verify", "prove it from outside: platform, kernels, words",
         "only what was proved becomes current", verified, inputs.plan_id),
        ("activate", "let current point to it",
         "in one atomic step; the old environment stays", active, inputs.plan_id),
    )  # fmt: skip
    return Plan(
        id=inputs.plan_id,
        steps=tuple(
            Step(
                id=name,
                title=title,
                reason=reason,
                done=done,
                fingerprint=jsonio.fingerprint([name, content]),
                needs=NEEDS.get(name, ()),
            )
            for name, title, reason, done, content in rows
        ),
    )


def depends(env: Path, lock: Path) -> bool:
    """Whether ``env`` holds the packages of ``lock`` and waits for its wheel."""
    made = jsonio.read(env / "dependencies.json")
    if made is None or not lock.is_file() or (env / "installed.json").exists():
        return False
    return bool(made["lock_sha256"] == jsonio.sha256_of(lock))


def explain_miss(inputs: Inputs, state: State) -> tuple[str, ...]:
    """Say why no cached wheel fits: the nearest one and exactly which inputs differ."""
    if wheel_of(state.wheels / inputs.wheel_key) is not None:
        return (f"wheel {inputs.wheel_key} is in the cache",)
    if (state.wheels / inputs.wheel_key / "manifest.json").is_file():
        return (f"wheel {inputs.wheel_key} is in the cache, but its file is missing or damaged",)
    folders = sorted(state.wheels.iterdir()) if state.wheels.is_dir() else []
    finished = [folder for folder in folders if wheel_of(folder) is not None]
    if not finished:
        return ("the wheel cache is empty",)
    here = jsonio.plain(inputs.wheel)
    compared = [(differences(recorded_inputs(folder), here), folder.name) for folder in finished]
    rows, nearest = min(compared, key=lambda pair: (len(pair[0]), pair[1]))
    return (f"nearest cached wheel: {nearest}; {len(rows)} inputs differ", *rows)


def recorded_inputs(folder: Path) -> dict[str, Any]:
    """The inputs that a cached wheel was made from."""
    return dict((jsonio.read(folder / "manifest.json") or {}).get("inputs") or {})


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """The inputs that differ, one a line, by name."""

    def shown(values: Mapping[str, Any], name: str) -> str:
        return repr(values[name]) if name in values else "nothing"

    names = sorted({*there, *here})
    pairs = [(name, shown(there, name), shown(here, name)) for name in names]
    return [f"{name}: {old} there, {new} here" for name, old, new in pairs if old != new]


def environment_inputs(
    *, python: str, profile: str, requirements: tuple[str, ...]
) -> dict[str, Any]:
    """The inputs that shape an environment beside its wheel."""
    return {
        "python": python,
        "profile": profile,
        "requirements": list(requirements),
        "tool": __version__,
    }
