"""From settings and facts to a plan's inputs, and to what the steps get."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpubuild import jsonio, patching
from cpubuild.choose import jobs, pythons
from cpubuild.choose.compilers import capable
from cpubuild.choose.needs import Needs
from cpubuild.facts.isa import x86_target
from cpubuild.facts.model import HostFacts
from cpubuild.installer import Installer
from cpubuild.patching import PatchContext, Selected
from cpubuild.picks import Picks, as_choices, content, kept_objects
from cpubuild.plan import Inputs, environment_inputs, wheel_of
from cpubuild.release.demands import build_requirements, profile_split, runtime_requirements
from cpubuild.settings import Settings
from cpubuild.sources.onednn import fetch_onednn
from cpubuild.sources.pipconfig import PipConfig, uv_arguments, uv_environment
from cpubuild.sources.torch import PYTORCH_CPU_INDEX, TorchChoice, torch_sha256
from cpubuild.state import State
from cpubuild.steps.compile import lean_text
from cpubuild.steps.context import Context

ARM_FLAGS = frozenset({"bf16", "i8mm"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """The picks of one run and what follows from them."""

    picks: Picks
    inputs: Inputs
    installer: Installer
    patches: tuple[Selected, ...]
    jobs: int
    jobs_reason: str
    runtime: tuple[str, ...]
    build: tuple[str, ...]

    def context(self, state: State, run: Path, *, offline: bool) -> Context:
        """What the steps get; fetches the oneDNN tree if it is not there and will be compiled."""
        onednn = self.picks.onednn
        compiles = wheel_of(state.wheels / self.inputs.wheel_key) is None
        return Context(
            state=state,
            run=run,
            inputs=self.inputs,
            installer=self.installer,
            compiler=self.picks.compiler,
            patches=self.patches,
            python=self.picks.interpreter.path,
            torch=f"torch=={self.picks.torch.version}",
            onednn=fetch_onednn(onednn, state.sources, offline=offline)
            if onednn and compiles
            else None,
            onednn_objects=kept_objects(onednn) if self.inputs.wheel["onednn_objects"] else None,
            jobs=self.jobs,
            runtime_requirements=self.runtime,
            build_requirements=self.build,
        )


def gather(picks: Picks, settings: Settings, facts: HostFacts, config: PipConfig) -> Gathered:
    """Derive patches, requirements, jobs and the content keys from the picks."""
    release = picks.release
    target = x86_target(facts.cpu) if settings.targets == "host" else None
    selected = patching.select(release, patch_context(picks, settings, facts, target))
    runtime, lost = runtime_wants(picks, settings)
    build = build_requirements(picks.tree, release)
    how_many, why = jobs.jobs_for(
        facts.memory,
        jobs.usable_cores(facts.cpu),
        Needs(
            jobs=settings.jobs, debug_info=not release.cmake_args, single_target=target is not None
        ),
        release,
    )
    inputs = Inputs(
        release=release,
        tree=picks.tree,
        choices=as_choices(picks),
        warnings=(*(w for c in as_choices(picks) for w in c.warnings), *lost),
        wheel=wheel_inputs(picks, settings, facts, target, selected, build),
        env=environment_inputs(
            python=f"{picks.interpreter.path} {picks.interpreter.version}",
            profile=settings.profile,
            requirements=runtime,
        ),
    )
    return Gathered(
        picks=picks,
        inputs=inputs,
        installer=installer_for(picks.torch, config, offline=settings.offline),
        patches=selected,
        jobs=how_many,
        jobs_reason=why,
        runtime=runtime,
        build=build,
    )


def patch_context(
    picks: Picks, settings: Settings, facts: HostFacts, target: str | None
) -> PatchContext:
    """What the patches' predicates may ask about this host and this run."""
    compiler = picks.compiler
    return PatchContext(
        arch=picks.release.arch,
        gcc_version=compiler.version if compiler.kind == "gnu" else None,
        gcc_probe_ok=capable(compiler, picks.release, facts.cpu),
        rejected_options=tuple(name for name, known in compiler.options if not known),
        x86_target=target,
        triton=any(u.name == "triton" for u in picks.release.url_requirements)
        and settings.profile == "full",
        profile=settings.profile,
        python_version=pythons.minor(picks.interpreter.version),
    )


def runtime_wants(picks: Picks, settings: Settings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The run-time requirements to resolve, torch exactly as picked, and what the profile loses."""
    listed = runtime_requirements(
        picks.tree, picks.release, python_version=pythons.minor(picks.interpreter.version)
    )
    split = profile_split(listed, settings.profile)
    wants = [str(entry.requirement) for entry in split.kept if entry.name != "torch"]
    lost = tuple(f"without {d.listed.name}: {d.lost}" for d in split.dropped)
    return (f"torch=={picks.torch.version}", *dict.fromkeys(wants)), lost


def wheel_inputs(
    picks: Picks,
    settings: Settings,
    facts: HostFacts,
    target: str | None,
    selected: tuple[Selected, ...],
    build: tuple[str, ...],
) -> dict[str, Any]:
    """Everything that shapes the wheel, by content."""
    release, compiler, onednn = picks.release, picks.compiler, picks.onednn
    arm = release.arch == "aarch64"
    checked = patching.check(picks.tree, selected)
    return {
        "vllm": release.version,
        "source": f"{picks.vllm.kind}:{picks.vllm.key}",
        "arch": release.arch,
        "isa": sorted(ARM_FLAGS & facts.cpu.flags) if arm else [],
        "targets": target or "every target",
        "python": pythons.minor(picks.interpreter.version),
        "torch": picks.torch.version,
        "torch_sha256": torch_sha256(picks.torch),
        "build_requirements": list(build),
        "patches": [f"{c.id}:{content(c.diff)}" for c in checked if c.diff],
        "onednn": f"{onednn.version}:{onednn.key}" if onednn else release.onednn_tag,
        # The lists were made on x86-64; other architectures keep other sources.
        "onednn_objects": content(kept_objects(onednn)) if release.arch == "x86_64" else None,
        "compiler": f"{compiler.kind} {compiler.version} {compiler.target}".strip(),
        "profile": settings.profile,
        "libc": f"{facts.libc.name} {facts.libc.version}",
        "lean": content(lean_text()),
        "tcmalloc": bundled_tcmalloc(facts),
    }


def bundled_tcmalloc(facts: HostFacts) -> str | None:
    """The content of the tcmalloc that setup.py will copy into the wheel, if it finds one."""
    path = facts.libraries.tcmalloc
    return jsonio.sha256_of(Path(path))[:16] if path and Path(path).is_file() else None


def installer_for(torch: TorchChoice, config: PipConfig, *, offline: bool) -> Installer:
    """Uv with pip's configuration, and PyTorch's CPU index where torch comes from there."""
    arguments = uv_arguments(config)
    if torch.origin == PYTORCH_CPU_INDEX and PYTORCH_CPU_INDEX not in arguments:
        arguments += ("--index", PYTORCH_CPU_INDEX)
    if "--index-strategy" not in arguments:
        arguments += ("--index-strategy", "unsafe-best-match")
    return Installer(arguments=arguments, environment=uv_environment(config), offline=offline)
