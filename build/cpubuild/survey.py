"""Look and judge: the host, the release that was asked for, and what is in the way."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import platformdirs

from cpubuild import run, system, ui
from cpubuild.assess import assess, look_around
from cpubuild.choose.needs import Needs
from cpubuild.errors import CpuBuildError, ExitCode, Problem, fail
from cpubuild.facts.collect import collect
from cpubuild.facts.model import HostFacts
from cpubuild.findings import Finding, Status
from cpubuild.gather import Gathered, gather
from cpubuild.picks import pick
from cpubuild.release import Release, read_release
from cpubuild.release.known import known_release
from cpubuild.settings import EXACT, Settings
from cpubuild.sources import trees
from cpubuild.sources.pipconfig import PipConfig, read_pip_config
from cpubuild.sources.torch import TorchChoice, pythons_with_torch
from cpubuild.sources.vllm import VllmChoice, choose_vllm, fetch_vllm, recorded
from cpubuild.sources.vllm_errors import refuse_ancient
from cpubuild.state import State
from cpubuild.system import Package

# What cannot be mended on this host comes first, then what must be asked for otherwise.
GRAVEST = (ExitCode.UNSUPPORTED, ExitCode.SETTINGS, ExitCode.PREREQUISITE)
# What installing the missing packages mends; anything else stops before they are installed.
MENDED_BY_PACKAGES = ("toolchain.", "libraries.", "python.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What was seen and judged before anything is built.

    ``tree`` is None until the source is fetched; until then ``release`` comes from the table of
    known releases (None: it is not there). ``missing`` are packages the host lacks, ``installs``
    whether this run may install them, ``installed`` whether it has.
    """

    facts: HostFacts
    config: PipConfig
    vllm: VllmChoice
    release: Release | None
    tree: Path | None
    findings: tuple[Finding, ...]
    missing: tuple[Package, ...]
    installs: bool
    installed: bool = False


def observe(settings: Settings, state: State) -> HostFacts:
    """The facts of this host, with the disks that a build here would use."""
    cache = state.cache / "compilers.json"
    return collect(
        disks={
            "state": state.root,
            "tmp": Path(tempfile.gettempdir()),
            "cache": Path(platformdirs.user_cache_dir()),
        },
        cxx=settings.cxx,
        python=settings.python,
        cache=cache if cache.parent.is_dir() else None,
    )


def look(settings: Settings, state: State) -> Survey:
    """Observe the host, choose the source, judge by what is known of the release without it."""
    facts = observe(settings, state)
    config = read_pip_config()
    vllm = choose_source(settings, facts, config, state)
    known = known_release(vllm.version, facts.cpu.arch) if vllm.version else None
    return judged(
        Survey(
            facts=facts,
            config=config,
            vllm=vllm,
            release=known,
            tree=None,
            findings=(),
            missing=(),
            installs=False,
        ),
        settings,
    )


def choose_source(
    settings: Settings, facts: HostFacts, config: PipConfig, state: State
) -> VllmChoice:
    """Decide where vLLM comes from; ``latest`` is the newest whose CPU torch can be had here."""

    def pin_of(version: str) -> str | None:
        known = known_release(version, facts.cpu.arch)
        return known.torch if known else None

    def available(pin: str) -> bool:
        answers = pythons_with_torch(
            pin,
            facts.interpreters,
            arch=facts.cpu.arch,
            glibc=facts.libc.version,
            config=config,
            offline=settings.offline,
        )
        return any(isinstance(answer, TorchChoice) for _, answer in answers)

    if EXACT.fullmatch(settings.vllm):
        refuse_ancient(settings.vllm)
        kept = recorded(settings.vllm, state.sources)
        if kept is not None:
            return kept
    return choose_vllm(
        settings.vllm,
        config=config,
        folder=state.sources,
        offline=settings.offline,
        torch_pin_of=pin_of,
        torch_available=available,
    )


def judged(survey: Survey, settings: Settings) -> Survey:
    """The survey with its findings and missing packages, if the release is known."""
    if survey.release is None:
        return survey
    missing = system.missing_packages(survey.facts, survey.release)
    around = look_around(survey.facts)
    wants = needs(settings, survey.release)
    findings = assess(survey.facts, survey.release, needs=wants, around=around)
    return replace(
        survey, findings=findings, missing=missing, installs=bool(missing) and may(settings, survey)
    )


def needs(settings: Settings, release: Release | None) -> Needs:
    """What the settings ask of the host; debug information is left out where CMAKE_ARGS count."""
    return Needs(
        jobs=settings.jobs,
        state=str(settings.state),
        offline=settings.offline,
        profile=settings.profile,
        python=settings.python,
        cxx=settings.cxx,
        cxx_from=settings.origin("cxx"),
        debug_info=not (release is None or release.cmake_args),
        single_target=settings.targets == "host",
    )


def may(settings: Settings, survey: Survey) -> bool:
    """Whether this run may install packages: root, or sudo that was agreed to with --yes."""
    if settings.no_system or settings.offline:
        return False
    container = survey.facts.container
    return container.can_install and (container.root or settings.yes)


def blockers(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that stop a build."""
    return tuple(f for f in findings if f.status is Status.BLOCKER)


def refuse_early(survey: Survey, state: State) -> None:
    """Refuse what packages will not mend, before anything is touched; all problems at once."""
    found = blockers(survey.findings)
    if survey.installs:
        # What was asked for by name and does not do is a wrong setting, not a missing package.
        found = tuple(
            f
            for f in found
            if f.exit_code is ExitCode.SETTINGS or not f.id.startswith(MENDED_BY_PACKAGES)
        )
    unusable = state.problems()
    found = tuple(f for f in found if not (unusable and f.id == "disk.state"))
    refuse((*unusable, *map(as_problem, found)))


def refuse(problems: Sequence[Problem]) -> None:
    """Raise all problems as one error; the gravest class of failure gives the exit code."""
    if not problems:
        return
    codes = {p.exit_code for p in problems}
    raise CpuBuildError(
        *problems, exit_code=next(code for code in (*GRAVEST, *codes) if code in codes)
    )


def as_problem(finding: Finding) -> Problem:
    """A blocker as a problem: value found, value needed, why, remedy."""
    needed = f"; needed: {finding.needed}" if finding.needed else ""
    return Problem(
        what=f"{finding.id}: {finding.title}: found {finding.found or 'nothing'}{needed}",
        why=finding.why,
        remedy=finding.remedy,
        exit_code=finding.exit_code,
    )


def with_packages(survey: Survey, settings: Settings, state: State, folder: Path) -> Survey:
    """Install what is missing if that is allowed, fetch the tree, and judge again by the tree.

    What can only be looked at with a compiler shows as missing when one is there: so again.
    """
    if survey.release is None:
        survey = judged(with_tree(survey, settings, state), settings)
        refuse_early(survey, state)
    tried: set[str] = set()
    while survey.installs and {p.need for p in survey.missing} - tried:
        tried |= {p.need for p in survey.missing}
        install(survey, folder)
        facts = observe(settings, state)
        survey = judged(replace(survey, facts=facts, installed=True), settings)
    if survey.tree is None:
        survey = judged(with_tree(survey, settings, state), settings)
    return survey


def with_tree(survey: Survey, settings: Settings, state: State) -> Survey:
    """Fetch the source tree into the state root and read the release from it."""
    ui.say(f"     vLLM {survey.vllm.version or survey.vllm.spec}: {survey.vllm.reason}")
    wrong: list[str] = []
    tree = fetch_vllm(
        survey.vllm,
        state.sources,
        downloads=state.downloads,
        config=survey.config,
        offline=settings.offline,
        tell=wrong.append,
    )
    for line in wrong:
        trees.warn(line)
    release = read_release(tree, arch=survey.facts.cpu.arch, version=survey.vllm.version)
    vllm = replace(survey.vllm, warning="; ".join(wrong) or None)
    return replace(survey, tree=tree, release=release, vllm=vllm)


def install(survey: Survey, folder: Path) -> None:
    """Install the missing packages; the optional ones are left out if they cannot be had."""
    root = survey.facts.container.root
    for wanted in (survey.missing, tuple(p for p in survey.missing if p.required)):
        commands = system.install_command(survey.facts.distro, wanted, root=root)
        if not commands:
            return
        ui.say(f"     {system.one_line(commands)}")
        done = None
        for argv in commands:
            env = dict(os.environ) | {"DEBIAN_FRONTEND": "noninteractive"}
            done = run.logged(argv, folder=folder / "packages", env=env, timeout=1800)
            if not done.ok:
                break
        if done is not None and done.ok:
            return
    assert done is not None  # noqa: S101 - the loop ran at least once
    raise run.failed(
        done, ExitCode.PREREQUISITE, "packages cannot be installed", why="the build needs them"
    )


def choose(survey: Survey, settings: Settings, state: State) -> Gathered:
    """Make the remaining choices for a survey whose tree is there."""
    if survey.tree is None or survey.release is None:
        raise fail(ExitCode.BUG, "the tree was not fetched before the choices were made")
    picks = pick(
        survey.vllm,
        survey.tree,
        survey.release,
        settings=settings,
        facts=survey.facts,
        config=survey.config,
        state=state,
    )
    return gather(picks, settings, survey.facts, survey.config)
