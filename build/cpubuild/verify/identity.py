"""Judge what is installed under the name vllm, from the document of ask_identity.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from cpubuild.verify.knowledge import table
from cpubuild.verify.model import Check, VllmAnswer

REPAIR = "cpubuild repair --target {python}"
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
Document = Mapping[str, Any]


def owner(doc: Document) -> Mapping[str, Any] | None:
    """The distribution that owns the module: the one called vllm, else one that has the files."""
    found: list[Mapping[str, Any]] = list(doc["distributions"])
    named = [d for d in found if d["name"] == "vllm"]
    holding = [d for d in found if "record" in d["claims"] or "editable" in d["claims"]]
    return next(iter([*named, *holding, *found]), None)


def answer(doc: Document) -> VllmAnswer:
    """Which distribution, and the version string vLLM would see (None when it would see none)."""
    dist = owner(doc)
    if dist is None:
        return VllmAnswer()
    return VllmAnswer(distribution=dist["name"], version=doc["version"]["value"] or dist["version"])


def spell(dist: Mapping[str, Any]) -> str:
    """One distribution in words."""
    return f"{dist['name']} {dist['version']} ({dist['folder']}; by {', '.join(dist['claims'])})"


def distribution(doc: Document, python: str) -> Check:
    """identity.distribution."""
    id_ = "identity.distribution"
    evidence = (
        *(spell(d) for d in doc["distributions"]),
        f"module vllm: {doc['module']['origin']}",
        f"importlib.metadata.version('vllm'): {doc['version']['value'] or doc['version']['error']}",
    )
    dist = owner(doc)
    if dist is None or not doc["module"]["origin"]:
        what = (
            "vllm is not installed here"
            if dist is None
            else f"metadata of {dist['name']} {dist['version']} without the module's files"
        )
        return Check(
            id=id_,
            status="fail",
            summary=what,
            evidence=evidence,
            remedy=("install vllm into this environment (make bootstrap)",),
        )
    if dist["name"] != "vllm":
        return Check(
            id=id_,
            status="fail",
            summary=f"the files belong to {dist['name']} {dist['version']}; there is no metadata "
            "for vllm, so the vllm command ends with PackageNotFoundError",
            evidence=evidence,
            remedy=(REPAIR.format(python=python),),
        )
    record = dist.get("record") or {}
    gone = [p for p in record.get("libraries", ()) if p.split("/")[-1] not in library_names(doc)]
    holds = "record" in dist["claims"] or dist["editable"]
    if gone or not holds:
        others = [d["name"] for d in doc["distributions"] if d is not dist]
        return Check(
            id=id_,
            status="fail",
            summary=f"vllm {dist['version']} is metadata only: "
            + (f"{', '.join(gone)} are missing" if gone else "its record names no file of vllm")
            + (f"; the files are those of {', '.join(others)}" if others else ""),
            evidence=evidence,
            remedy=("remove that metadata (pip uninstall vllm) and install vllm again",),
        )
    return Check(id=id_, status="pass", summary=f"vllm {dist['version']}", evidence=evidence)


def library_names(doc: Document) -> frozenset[str]:
    """File names of the libraries in the module's folder."""
    return frozenset(doc["module"].get("libraries", ()))


def duplicates(doc: Document, cwd: Path | None, pythonpath: str) -> Check:
    """identity.duplicates: other distributions, other folders, a source tree in the way."""
    id_ = "identity.duplicates"
    places = list(doc["module"]["places"])
    several = [spell(d) for d in doc["distributions"]]
    if len(several) > 1 or len(places) > 1:
        return Check(
            id=id_,
            status="fail",
            summary=f"{len(several)} distributions and {len(places)} folders claim the module vllm",
            evidence=(*several, *places),
            remedy=(
                "uninstall all of them (pip uninstall "
                + " ".join(sorted({d["name"] for d in doc["distributions"]}))
                + ") and install one",
            ),
        )
    shadows = [p for p in source_trees(cwd, pythonpath) if p not in places]
    if shadows:
        return Check(
            id=id_,
            status="warn",
            summary="a source tree would be imported instead when Python starts from there: "
            + ", ".join(shadows),
            evidence=tuple(shadows),
            remedy=("start vLLM from another folder, and take the tree out of PYTHONPATH",),
        )
    return Check(id=id_, status="pass", summary="nothing else claims the module vllm")


def source_trees(cwd: Path | None, pythonpath: str) -> list[str]:
    """Folders of the caller that hold a package vllm: its working directory and PYTHONPATH."""
    entries = [cwd] if cwd is not None else []
    entries += [Path(p) for p in pythonpath.split(":") if p]
    return [str(e / "vllm") for e in entries if (e / "vllm" / "__init__.py").is_file()]


def version_cpu(doc: Document, python: str) -> Check:
    """identity.version_cpu."""
    id_ = "identity.version_cpu"
    value, error = doc["version"]["value"], doc["version"]["error"]
    if value is None:
        return Check(
            id=id_,
            status="fail",
            summary="there is no version of vllm to look into",
            evidence=(str(error),),
            remedy=(REPAIR.format(python=python),),
        )
    if "cpu" not in value:
        return Check(
            id=id_,
            status="fail",
            summary=f'the version {value} does not contain "cpu": vLLM takes no platform, or a '
            "GPU's, unless VLLM_TARGET_DEVICE=cpu hides it",
            evidence=(f"importlib.metadata.version('vllm') = {value}",),
            remedy=(
                REPAIR.format(python=python) + "   (only if the libraries are CPU builds)",
                "install a CPU build of vllm",
            ),
        )
    return Check(id=id_, status="pass", summary=value)


def wheel_tag(doc: Document) -> Check:
    """identity.wheel_tag."""
    id_ = "identity.wheel_tag"
    dist = owner(doc)
    tags = tuple(dist["tags"]) if dist else ()
    if not tags:
        editable = bool(dist and dist["editable"])
        return Check(
            id=id_,
            status="pass" if editable else "unknown",
            summary="an editable installation" if editable else "the metadata has no wheel tag",
        )
    machine, libc = str(doc["machine"]), str(doc["libc"][1] or "")
    python = "cp" + "".join(str(doc["python"]["version"]).split(".")[:2])
    problems = [p for p in (tag_problem(t, machine, libc, python) for t in tags) if p]
    if len(problems) == len(tags):
        return Check(
            id=id_,
            status="warn",
            summary=problems[0],
            evidence=tags,
            remedy=("install a wheel made for this machine (make bootstrap)",),
        )
    return Check(id=id_, status="pass", summary=", ".join(tags))


def tag_problem(tag: str, machine: str, libc: str, python: str) -> str | None:
    """What is wrong with a wheel tag on this machine, None when nothing is."""
    interpreter, abi, platform = [*tag.split("-"), "", ""][:3]
    if platform != "any" and not platform.endswith("_" + machine):
        return f"the wheel was made for {platform}, this machine is {machine}"
    if abi not in ("abi3", "none") and python not in interpreter.split("."):
        return f"the wheel was made for {interpreter}, this Python is {python}"
    match = re.search(r"manylinux_(\d+)_(\d+)", platform)
    if match and libc:
        have = tuple(int(n) for n in re.findall(r"\d+", libc)[:2])
        if have < (int(match[1]), int(match[2])):
            return f"the wheel needs glibc {match[1]}.{match[2]}, this host has {libc}"
    if "musllinux" in platform:
        return "the wheel was made for musl, vLLM has no such build"
    return None


def torch_build(doc: Document) -> Check:
    """identity.torch_build."""
    id_ = "identity.torch_build"
    torch = doc["torch"]
    version = torch.get("version") or torch.get("distribution")
    if not version:
        return Check(
            id=id_,
            status="fail",
            summary="torch is not installed here",
            remedy=("install the torch that vllm's metadata names, as a CPU build",),
        )
    kinds = [f"{k} {torch[k]}" for k in ("cuda", "hip", "xpu") if torch.get(k)]
    evidence = (f"{torch.get('origin')}: {version}", *kinds)
    if kinds:
        return Check(
            id=id_,
            status="fail",
            summary=f"torch {version} was built for {', '.join(kinds)}",
            evidence=evidence,
            remedy=(f"install torch=={str(version).split('+')[0]}+cpu",),
        )
    if torch.get("distribution") and torch["distribution"] != version:
        return Check(
            id=id_,
            status="warn",
            summary=f"torch says {version}, its metadata {torch['distribution']}",
            evidence=evidence,
            remedy=("reinstall torch",),
        )
    return Check(id=id_, status="pass", summary=f"torch {version}", evidence=evidence)


def torch_match(doc: Document, receipt: Mapping[str, Any] | None) -> Check:
    """identity.torch_match: the pin of the metadata, or the receipt's torch."""
    id_ = "identity.torch_match"
    version = doc["torch"].get("version") or doc["torch"].get("distribution")
    wanted = wanted_torch(doc, receipt)
    if not version or not wanted:
        return Check(
            id=id_,
            status="fail" if not version else "unknown",
            summary="torch is not installed here"
            if not version
            else "neither metadata nor receipt name the torch it was built against",
        )
    evidence = tuple(f"{source}: {spec}" for source, spec in wanted)
    try:
        found = Version(version)
        off = [
            spec for _, spec in wanted if not Requirement(f"torch{spec}").specifier.contains(found)
        ]
    except (InvalidVersion, InvalidRequirement) as error:
        return Check(id=id_, status="unknown", summary=str(error), evidence=evidence)
    if off:
        return Check(
            id=id_,
            status="fail",
            summary=f"torch {version} is installed, {', '.join(off)} is asked for",
            evidence=evidence,
            remedy=(f"pip install torch{off[0]}",),
        )
    return Check(id=id_, status="pass", summary=f"torch {version}", evidence=evidence)


def wanted_torch(doc: Document, receipt: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """(source, specifier) of every pin of torch that applies on this machine."""
    wanted = []
    for line in (owner(doc) or {}).get("requires_torch", ()):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        environment = {"platform_machine": str(doc["machine"]), "extra": ""}
        if requirement.marker is None or requirement.marker.evaluate(environment):
            wanted.append(("metadata", str(requirement.specifier)))
    wanted += [("receipt", line.removeprefix("torch")) for line in built_with(receipt)]
    return [w for w in wanted if w[1]]


def built_with(receipt: Mapping[str, Any] | None) -> list[str]:
    """The line ``torch==...`` of what the wheel was built with, as the receipt has it."""
    wheel = (receipt or {}).get("wheel")
    packages = wheel.get("build_packages") if isinstance(wheel, Mapping) else None
    lines = [str(line) for line in packages or ()]
    return [line for line in lines if line.startswith("torch==")]


def unwanted(doc: Document) -> Check:
    """identity.unwanted."""
    id_ = "identity.unwanted"
    found = [
        (name, version, row["why"])
        for name, version in doc["packages"]
        for row in table()["unwanted"]
        if re.match(row["pattern"], name)
    ]
    local = local_part(doc["torch"].get("version"))
    companions = [
        f"{name} {version}: torch is +{local}, this is not"
        for name, version in doc["packages"]
        if name in COMPANIONS and local and local_part(version) != local
    ]
    if not found and not companions:
        return Check(id=id_, status="pass", summary="no packages of other platforms")
    names = [n for n, _, _ in found] + [c.split()[0] for c in companions]
    return Check(
        id=id_,
        status="warn",
        summary=f"packages of other platforms: {', '.join(names)}",
        evidence=(*(f"{n} {v}: {why}" for n, v, why in found), *companions),
        remedy=(
            "pip uninstall " + " ".join(names),
            *((f"or take them from where torch's +{local} build is",) if companions else ()),
        ),
    )


def local_part(version: str | None) -> str | None:
    """The local part of a version (``cpu`` of 2.13.0+cpu)."""
    return version.partition("+")[2] or None if version else None


def judge(
    doc: Document,
    *,
    python: str,
    cwd: Path | None,
    pythonpath: str,
    receipt: Mapping[str, Any] | None,
) -> list[Check]:
    """All identity checks; only the first where there is no vllm to ask the others about."""
    if owner(doc) is None and not doc["module"]["origin"]:
        return [distribution(doc, python)]
    return [
        distribution(doc, python),
        duplicates(doc, cwd, pythonpath),
        version_cpu(doc, python),
        wheel_tag(doc),
        torch_build(doc),
        torch_match(doc, receipt),
        unwanted(doc),
    ]
