"""What a wheel's name, metadata and content say: for which interpreter, and CPU or CUDA."""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from cpubuild.sources.index import IndexFile
from cpubuild.sources.pipconfig import PipConfig
from cpubuild.sources.session import limits, open_session

# The oldest glibc a manylinux wheel of that architecture can name (PEP 600, auditwheel).
OLDEST_GLIBC_MINOR = {"x86_64": 5, "i686": 5}
LEGACY = {"manylinux2014": 17, "manylinux2010": 12, "manylinux1": 5}
# No CUDA exists for these, so an unmarked wheel can only be a CPU build.
NEVER_CUDA = frozenset({"s390x", "riscv64"})
# The default index's CPU wheels for Linux are below 250 MB, its CUDA wheels above 500 MB.
CUDA_BYTES = 400_000_000
CUDA_REQUIREMENT = re.compile(
    r"^Requires-Dist:\s*(nvidia-|cuda-|pytorch-triton)", re.IGNORECASE | re.MULTILINE
)


class Build(StrEnum):
    """What a wheel was built for, as far as it can be shown before it is downloaded."""

    CPU = "cpu"
    CUDA = "cuda"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A build and the evidence for it, in words that fit after "because"."""

    build: Build
    evidence: str


def supported(python_tag: str, arch: str, glibc: str | None) -> dict[str, int]:
    """The tags that the *target* interpreter takes, best first, each with its rank."""
    match = re.fullmatch(r"cp(\d)(\d+)(t?)", python_tag)
    if match is None:
        return {}
    version = (int(match[1]), int(match[2]))
    places = platforms(arch, glibc)
    tags = [
        *cpython_tags(python_version=version, abis=[python_tag], platforms=places),
        *compatible_tags(
            python_version=version, interpreter=f"cp{match[1]}{match[2]}", platforms=places
        ),
    ]
    return {str(tag): rank for rank, tag in reversed(list(enumerate(tags)))}


def platforms(arch: str, glibc: str | None) -> list[str]:
    """The platform tags of a Linux host, newest first; without glibc only the plain one."""
    found: list[str] = []
    if glibc is not None:
        version = Version(glibc)
        oldest = OLDEST_GLIBC_MINOR.get(arch, 17)
        for minor in range(version.minor, oldest - 1, -1):
            found.append(f"manylinux_2_{minor}_{arch}")
            found += [f"{name}_{arch}" for name, at in LEGACY.items() if at == minor]
    return [*found, f"linux_{arch}"]


def why_not_tagged(
    filename: str, tags: dict[str, int], python_tag: str, arch: str, glibc: str | None
) -> str:
    """Say why the target interpreter cannot take this wheel; ``""`` if it can."""
    try:
        own = parse_wheel_filename(filename)[3]
    except InvalidWheelFilename as error:
        return f"its name cannot be read ({error})"
    if any(str(tag) in tags for tag in own):
        return ""
    names = {tag.platform for tag in own}
    if not any(name.endswith("_" + arch) or name == "any" for name in names):
        return f"it is for another system than Linux on {arch}"
    if not any(name in platforms(arch, glibc) or name == "any" for name in names):
        return f"it is for {', '.join(sorted(names))}; this host has glibc {glibc or '(none)'}"
    return f"it is for another Python than {python_tag}"


def build_of(file: IndexFile, arch: str, config: PipConfig) -> Shown:
    """Decide CPU or CUDA from what can be seen without downloading the wheel."""
    if file.path is not None and file.path.is_file():
        return _local_build(file.path)
    local = Version(file.version).local
    if local == "cpu":
        return Shown(build=Build.CPU, evidence="its version says +cpu")
    if local is not None:
        return Shown(build=Build.CUDA, evidence=f"it is the {local} build")
    if "download.pytorch.org/whl/cpu" in file.url or "/whl/cpu" in file.origin:
        return Shown(build=Build.CPU, evidence="it lies on PyTorch's CPU index")
    if arch in NEVER_CUDA:
        return Shown(build=Build.CPU, evidence=f"there is no CUDA for {arch}")
    metadata = _metadata(file, config)
    if metadata is not None:
        return metadata_build(metadata)
    return _by_size(file, arch)


def metadata_build(metadata: str) -> Shown:
    """Decide from the wheel's METADATA: a CUDA build of torch requires NVIDIA's packages."""
    match = CUDA_REQUIREMENT.search(metadata)
    if match:
        line = metadata[match.start() :].splitlines()[0]
        return Shown(build=Build.CUDA, evidence=f"it is a CUDA build: its metadata has {line!r}")
    return Shown(build=Build.CPU, evidence="its metadata requires nothing of NVIDIA's")


def _by_size(file: IndexFile, arch: str) -> Shown:
    size = f" of {file.size / 1e6:.0f} MB" if file.size else ""
    if arch == "x86_64" or (file.size or 0) > CUDA_BYTES:
        evidence = f"it is a CUDA build: the unmarked Linux wheel{size} of {file.origin}"
        return Shown(build=Build.CUDA, evidence=evidence)
    if file.size:
        evidence = f"at {file.size / 1e6:.0f} MB it cannot hold CUDA's kernels"
        return Shown(build=Build.CPU, evidence=evidence)
    evidence = "nothing shows before the download that it is a CPU build"
    return Shown(build=Build.UNKNOWN, evidence=evidence)


def _local_build(path: Path) -> Shown:
    try:
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            cuda = next((n for n in names if re.search(r"lib/lib(torch|c10)_cuda", n)), None)
            if cuda:
                return Shown(build=Build.CUDA, evidence=f"it is a CUDA build: it holds {cuda}")
            metadata = next((n for n in names if n.endswith(".dist-info/METADATA")), None)
            text = wheel.read(metadata).decode("utf-8", "replace") if metadata else ""
    except (OSError, zipfile.BadZipFile) as error:
        return Shown(build=Build.UNKNOWN, evidence=f"the file cannot be read as a wheel ({error})")
    shown = metadata_build(text)
    if shown.build is Build.CPU:
        return Shown(build=Build.CPU, evidence="the wheel holds no CUDA library")
    return shown


def _metadata(file: IndexFile, config: PipConfig) -> str | None:
    if not file.metadata:
        return None
    session = open_session(config)
    try:
        answer = session.get(file.url + ".metadata", timeout=limits(config, 10.0))
        return answer.text if answer.ok else None
    except OSError:
        return None
    finally:
        session.close()
