"""Files that bring a tuned model to service: env files, unit, image, compose file, cloud-init."""

from __future__ import annotations

import math
import os
import pwd
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cpubuild import __version__, activate, jsonio, receipt
from cpubuild.choose.tables import MIB, needs_table, table
from cpubuild.errors import ExitCode, fail
from cpubuild.facts.model import Distro, HostFacts
from cpubuild.models import store
from cpubuild.origin import Origin
from cpubuild.render import render
from cpubuild.system import names_for, pythons_of
from cpubuild.tune import Tuning, Variable, threads
from cpubuild.tune.useroptions import Given

UNIT: Final = "vllm.service"
# Each output with its template, and what it is made of: a model that fits (SERVED), and a way to
# build this vLLM elsewhere (BUILT), and the folder that an image is built from (IMAGE).
SERVED, BUILT, IMAGE = "served", "built", "image"
OUTPUTS: Final = (
    ("vllm.service.j2", UNIT, SERVED),
    ("Dockerfile.j2", "Dockerfile", IMAGE),
    ("Dockerfile.dockerignore.j2", "Dockerfile.dockerignore", IMAGE),
    ("compose.yaml.j2", "compose.yaml", IMAGE),
    ("cloud-init.yaml.j2", "cloud-init.yaml", BUILT),
)
# Where things lie in an image and on a machine of cloud-init; on this host they lie where they do.
HOME: Final = "/opt/vllm-cpu-build"
BUILT_STATE: Final = "/srv/vllm"
RUN_STATE: Final = "/var/lib/vllm"
MODEL: Final = "/model"
USER: Final = 10001
PORT: Final = 8000
STOP_SECONDS: Final = 90
ABOVE_PLAN: Final = 1.2
LOOK = (
    "from urllib.request import ProxyHandler, build_opener as o; "
    f"o(ProxyHandler({{}})).open('http://127.0.0.1:{PORT}/health', timeout=4)"
)
HEALTH: Final[dict[str, Any]] = {
    "test": [f"{HOME}/.venv/bin/python", "-I", "-c", LOOK],
    "interval": "30s",
    "timeout": "5s",
    "start_period": "20m",
    "retries": 3,
}
# Options of `vllm serve` that this tool's own `serve` sets: not handed on, a key least of all.
KEY: Final = "--api-key"
OWN: Final = frozenset({"--host", "--port", KEY, "--served-model-name", "--model", "--uds"})
ENTRYPOINT: Final = [
    *(f"{HOME}/.venv/bin/cpubuild", "serve", "--foreground", "--host", "0.0.0.0"),  # noqa: S104
    *("--port", str(PORT), "--target", f"{BUILT_STATE}/current"),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What builds this vLLM again elsewhere, as settings; ``python``: the minor version it has."""

    vllm: str
    profile: str
    targets: str
    python: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What is to be written: a tuning and what it was made from.

    ``more`` are variables beside the tuning's, ``name`` is the model's name in requests (empty
    without a model), ``origin`` where the tool itself lies and comes from. ``own`` are the user's
    options, which a service has to be given again as it computes the others itself.
    """

    tuning: Tuning
    facts: HostFacts
    more: tuple[Variable, ...]
    state: Path
    name: str
    origin: Origin
    own: tuple[Given, ...] = ()

    @property
    def words(self) -> list[str]:
        """The user's options as words behind ``--``; none for no words."""
        kept = [option for option in self.own if option.name not in OWN]
        words = [word for option in kept for word in (option.name, *option.values)]
        return ["--", *words] if words else []

    @property
    def model(self) -> Path:
        """The folder of the model; for a tuning without one nothing asks."""
        return self.tuning.model or Path()


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """The files, those that were left out with the reason, and what is to be said of them."""

    files: tuple[Path, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def write(folder: Path, job: Job) -> Written:
    """Write all that a tuning is used through into ``folder``.

    The env files for whatever model; for one that fits the unit and, where this vLLM can be built
    elsewhere, what does so. SETTINGS for a name that no such file can hold; OSError goes through.
    """
    tuning = job.tuning
    speakable(folder=str(folder), model=str(tuning.model), name=job.name, state=str(job.state))
    for word in job.words:
        speakable(option=word)
    arguments = [w for o in tuning.options if o.name != KEY for w in o.words()]
    words = [*tuning.launcher, "vllm", "serve", str(tuning.model), *arguments]
    files = activate.written(
        folder,
        tuning.env,
        vllm=tuning.release,
        chosen=(*tuning.variables, *job.more),
        removed=tuple(name for name, _ in tuning.removed),
        command=words if tuning.model else [],
    )
    if tuning.model is None:
        return Written(files=files)
    request, against = obstacles(job)
    found = values(folder, job, request)
    left_out = []
    for template, name, needs in OUTPUTS:
        if needs in against:
            left_out.append((name, against[needs]))
            continue
        path = folder / name
        jsonio.write_text(path, render(template, found | {"path": str(path)}))
        files = (*files, path)
    return Written(files=files, left_out=tuple(left_out), notes=tuple(notes(job, against)))


def speakable(**texts: str) -> None:
    """SETTINGS for a text with what no line of a file can hold, whatever the quotes."""
    for what, text in texts.items():
        if not text.isprintable():
            raise fail(
                ExitCode.SETTINGS,
                f"{what} {text!r} cannot stand in a file that other programs read",
                why="it holds a line break, a control character or one that cannot be shown",
                remedy=("rename it, or reach it through a link with a plain name",),
            )


def obstacles(job: Job) -> tuple[Request | None, dict[str, str]]:
    """What builds this vLLM again, and why some outputs cannot be written, by what they need."""
    request, reason = request_of(job.tuning)
    against = {}
    if not job.tuning.fits:
        against = dict.fromkeys((SERVED, BUILT, IMAGE), "the model cannot be served here")
    elif request is None:
        against = dict.fromkeys((BUILT, IMAGE), reason)
    elif job.origin.checkout is None:
        against = {IMAGE: "an image is built from a checkout of this tool, and it runs installed"}
    elif mounted(job.model) is None:
        against = {IMAGE: "the model's files are links to places that lie far apart"}
    return request, against


def request_of(tuning: Tuning) -> tuple[Request | None, str]:
    """The settings that lead to the vLLM in use, by its receipt; None with the reason."""
    kept = receipt.load(tuning.env) or {}
    asked = {name: row["value"] for name, row in kept.get("settings", {}).items()}
    source = kept.get("sources", {}).get("vllm", {}).get("record", {})
    vllm = str(asked.get("vllm", tuning.release))
    if source.get("kind") == "path":
        return None, f"this vLLM was built from a path, {vllm}, which is not there elsewhere"
    if vllm == "latest":
        vllm = tuning.release
    if vllm == "unknown":
        return None, "the release of this vLLM is not known"
    speakable(vllm=vllm)
    site = next(tuning.env.glob("lib*/python3*"), None)
    return Request(
        vllm=vllm,
        profile=str(asked.get("profile", "text")),
        targets=str(asked.get("targets", "host")),
        python=site.name.removeprefix("python") if site else "",
    ), ""


def values(folder: Path, job: Job, request: Request | None) -> dict[str, Any]:
    """What the templates are filled with; each takes of it what it shows."""
    tuning = job.tuning
    limit = math.ceil(tuning.memory * ABOVE_PLAN / MIB) if tuning.memory else None
    shown = {
        "tool": __version__,
        "vllm": tuning.release,
        "model": tuning.model,
        "name": job.name,
        "words": job.words,
        "memory": tuning.memory,
        "limit_mib": limit,
        "stop_seconds": STOP_SECONDS,
        "state": job.state,
        "program": str(Path(sys.executable).parent / "cpubuild"),
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "hint": str(folder / UNIT),
        "private_tmp": not temporary(tuning.env, job.model, job.state, Path(sys.executable)),
    }
    if request is None:
        return shown
    return shown | elsewhere(job, request) | image(folder, job, request) | machine(job, shown)


def temporary(*paths: Path) -> bool:
    """Whether one of these lies where a service with a /tmp of its own cannot see it."""
    shared = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108
    seen = {p for path in paths for p in (path.absolute(), path.resolve())}
    return any(path.is_relative_to(place) for path in seen for place in shared)


def elsewhere(job: Job, request: Request) -> dict[str, Any]:
    """What an image and another machine have in common."""
    return {
        "request": request,
        "home": HOME,
        "built": BUILT_STATE,
        "before": table("packages.toml")["stage0"]["apt"],
        "repository": job.origin.repository,
        "commit": job.origin.commit,
    }


def image(folder: Path, job: Job, request: Request) -> dict[str, Any]:
    """What the image and its compose file are filled with."""
    facts = job.facts
    base, reason, packages = base_of(request.python)
    root, below = mounted(job.model) or (job.model, "")
    tag = re.sub(r"[^\w.-]", "-", request.vllm)[:128]
    return {
        "image": f"vllm-cpu:{tag}",
        "base": base,
        "base_reason": reason,
        "packages": packages,
        "run_state": RUN_STATE,
        "uid": USER,
        "port": PORT,
        "inside": MODEL,
        "health": HEALTH,
        "entrypoint": ENTRYPOINT,
        "checkout": str(job.origin.checkout),
        "dockerfile": str(folder / "Dockerfile"),
        "source": str(root),
        "served_from": f"{MODEL}/{below}" if below else MODEL,
        "pip_file": str(job.origin.pip) if job.origin.pip else None,
        "shm_mib": needs_table()["shm"]["least_mib"] * max(1, len(facts.numa)),
        "cpuset": threads.ranges(facts.cpu.allowed),
        "cpus": f"{facts.cpu.quota:g}" if facts.cpu.quota else None,
        "nice": nice(facts),
    }


def base_of(python: str) -> tuple[str, str, list[str]]:
    """The base image for an environment's Python, the reason, and what of it is needed to run."""
    tables = table("packages.toml")
    rows = [(row, distro_of(row)) for row in tables["image"]]
    same = [(row, distro) for row, distro in rows if python in pythons_of(distro)[:1]]
    row, distro = (same or rows)[0]
    minor = pythons_of(distro)[0]
    reason = (
        f"{row['name']} has the Python {python} that vLLM was built for here."
        if same
        else f"No base image has Python {python}: in {row['name']} vLLM is built for {minor}."
    )
    names = [
        name
        for need, wanted in tables["need"].items()
        if wanted.get("runs")
        for name in names_for(distro, need, python=minor)
    ]
    return row["name"], reason, names


def distro_of(row: dict[str, str]) -> Distro:
    """The distribution of a base image."""
    return Distro(
        id=row["distro"], version=row["release"], codename="", pretty=row["name"], family="apt"
    )


def nice(facts: HostFacts) -> str:
    """Why a container needs the capability SYS_NICE; empty where it does not."""
    around = facts.container
    if threads.denied(facts):
        return (
            f"Refused here: get_mempolicy: {around.get_mempolicy}, mbind: {around.mbind}; "
            "containers let them through with this capability."
        )
    if len(facts.numa) == 1:
        return ""
    count = str(len(facts.numa)) if facts.numa else "An unknown number of"
    return (
        f"{count} memory nodes: vLLM binds memory by get_mempolicy and mbind, which containers let "
        "through with this capability only."
    )


def mounted(model: Path) -> tuple[Path, str] | None:
    """The folder to mount for a model, and where below it the model lies; None for none.

    A hub's cache keeps links to files beside: they resolve if all of it is mounted.
    """
    folder = model.resolve()
    links = [p for p in folder.iterdir() if p.is_symlink()] if folder.is_dir() else []
    if any(p.readlink().is_absolute() for p in links):
        return None
    root = Path(os.path.commonpath([folder, *(p.resolve() for p in links)]))
    if len(folder.relative_to(root).parts) > 2:
        return None
    below = folder.relative_to(root).as_posix()
    return root, "" if below == "." else below


def machine(job: Job, shown: dict[str, Any]) -> dict[str, Any]:
    """What cloud-init is filled with: the model as it gets there, and the same unit for there."""
    model = job.model
    kept = store.read(model.parent / store.RECEIPT) if model.name == store.FILES else None
    fetched = kept is not None and kept.hub != store.LOCAL
    there = str(model)
    if kept is not None:
        there = kept.id if fetched else (kept.source if kept.kind == "linked" else str(model))
    speakable(model=there)
    unit = shown | {
        "model": there,
        "state": BUILT_STATE,
        "program": f"{HOME}/.venv/bin/cpubuild",
        "user": "root",
        "hint": "",
        "private_tmp": not temporary(Path(there)),
    }
    return {
        "machine_model": there,
        "hub": kept.hub if kept is not None and fetched else None,
        "revision": kept.revision if kept is not None else None,
        "unit": render(f"{UNIT}.j2", unit).rstrip("\n"),
    }


def notes(job: Job, against: dict[str, str]) -> list[str]:
    """What the user has to do for the files to work."""
    said = [
        f"{option.name} is not in the service's files: serve has its own option for it"
        for option in job.own
        if option.name in OWN
    ]
    if IMAGE not in against and (path := closed(job.model)) is not None:
        said.append(f"the container's user cannot read {path}: chmod -R o+rX on the model's folder")
    if BUILT not in against and job.origin.repository is None:
        said.append(f"cloud-init.yaml expects the tool in {HOME}: this checkout has no remote")
    return said


def closed(model: Path) -> Path | None:
    """The first of a model's files that only its owner can read; None if there is none."""
    folder = model.resolve()
    if folder.stat().st_mode & 0o005 != 0o005:
        return folder
    return next((p for p in sorted(folder.iterdir()) if not p.stat().st_mode & 0o004), None)
