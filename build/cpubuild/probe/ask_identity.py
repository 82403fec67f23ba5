"""Say what is installed under the name vllm, without importing any of it.

Usage: ``python ask_identity.py OUT`` writes one JSON document to the file OUT. Only the standard
library, Python 3.8 and newer. A value that could not be read is null.
"""

from __future__ import annotations

import json
import platform
import re
import sys
import sysconfig
from importlib import metadata, util
from pathlib import Path
from typing import Any

RECORD_LINE = re.compile(r"^vllm/", re.MULTILINE)


def text(dist: metadata.Distribution, name: str) -> str:
    """The metadata file ``name`` of ``dist``, empty when it has none."""
    try:
        return dist.read_text(name) or ""
    except (OSError, UnicodeDecodeError):
        return ""


def folder_of(dist: metadata.Distribution) -> str:
    """The dist-info (or egg-info) folder of ``dist``."""
    return str(getattr(dist, "_path", "") or "")


def claims(dist: metadata.Distribution, name: str, record: str) -> list[str]:
    """By what this distribution claims the module vllm: its name, its record, its top level."""
    reasons = []
    if name == "vllm":
        reasons.append("name")
    if RECORD_LINE.search(record):
        reasons.append("record")
    if "vllm" in text(dist, "top_level.txt").split():
        reasons.append("top_level")
    if "__editable___vllm" in record or "__editable__.vllm" in record:
        reasons.append("editable")
    return reasons


def recorded(record: str, root: Path) -> dict[str, Any]:
    """What the record says about files: how many, which libraries and hashes, what is missing."""
    rows = [line.rsplit(",", 2) for line in record.splitlines() if line.count(",") >= 2]
    hashes = {row[0].strip('"'): row[1] for row in rows}
    paths = list(hashes)
    missing = [p for p in paths if not (root / p).exists()]
    libraries = [p for p in paths if re.match(r"vllm/[^/]*\.so$", p)]
    return {
        "files": len(paths),
        "missing": len(missing),
        "missing_examples": missing[:5],
        "libraries": libraries,
        "hashes": {p: hashes[p] for p in libraries},
    }


def describe(dist: metadata.Distribution, name: str, record: str, why: list[str]) -> dict[str, Any]:
    """One distribution that claims the module vllm."""
    folder = folder_of(dist)
    wheel = text(dist, "WHEEL")
    direct = text(dist, "direct_url.json")
    try:
        url = json.loads(direct) if direct else None
    except ValueError:
        url = None
    return {
        "name": name,
        "version": dist.version,
        "folder": folder,
        "claims": why,
        "tags": re.findall(r"^Tag: *(\S+)", wheel, re.MULTILINE),
        "installer": text(dist, "INSTALLER").strip() or None,
        "direct_url": url,
        "editable": bool(url and (url.get("dir_info") or {}).get("editable")),
        "requires_torch": [r for r in dist.requires or [] if re.match(r"torch\b(?![-_a-z])", r)],
        "record": recorded(record, Path(folder).parent) if record else None,
        "scripts": [
            e.value for e in dist.entry_points if e.group == "console_scripts" and e.name == "vllm"
        ],
    }


def distributions() -> tuple[list[dict[str, Any]], list[list[str]]]:
    """Those that claim vllm, and (name, version) of everything installed."""
    claiming, everything = [], []
    seen = set()
    for dist in metadata.distributions():
        name = (dist.metadata["Name"] or "").lower().replace("_", "-")
        if not name or folder_of(dist) in seen:
            continue
        seen.add(folder_of(dist))
        everything.append([name, dist.version or ""])
        record = text(dist, "RECORD")
        why = claims(dist, name, record)
        if why:
            claiming.append(describe(dist, name, record, why))
    return claiming, sorted(everything)


def places() -> list[str]:
    """Every folder on sys.path that holds a package vllm, in the order of the search."""
    found = []
    for entry in sys.path:
        package = Path(entry or ".") / "vllm"
        if (package / "__init__.py").is_file() and str(package) not in found:
            found.append(str(package))
    return found


def module() -> dict[str, Any]:
    """Where ``import vllm`` would go, found without importing it."""
    try:
        spec = util.find_spec("vllm")
    except (ImportError, ValueError) as error:
        return {"origin": None, "error": str(error), "places": places(), "libraries": []}
    origin = spec.origin if spec else None
    libraries = []
    if origin:
        libraries = sorted(p.name for p in Path(origin).parent.iterdir() if ".so" in p.name)
    return {"origin": origin, "places": places(), "libraries": libraries}


def torch() -> dict[str, Any]:
    """The version and build of torch as its own version.py says, read as text."""
    answer: dict[str, Any] = {"origin": None, "version": None, "cuda": None, "hip": None}
    try:
        spec = util.find_spec("torch")
        answer["distribution"] = metadata.version("torch")
    except (ImportError, ValueError):
        answer["distribution"] = None
        return answer
    if spec is None or not spec.origin:
        return answer
    answer["origin"] = spec.origin
    try:
        written = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return answer
    for key, name in (("version", "__version__"), ("cuda", "cuda"), ("hip", "hip"), ("xpu", "xpu")):
        match = re.search(rf"^{name}\b[^=\n]*= *['\"]([^'\"]*)['\"]", written, re.MULTILINE)
        answer[key] = match.group(1) if match else None
    return answer


def version_of_vllm() -> dict[str, Any]:
    """What ``importlib.metadata.version("vllm")`` answers; vLLM asks just this."""
    try:
        return {"value": metadata.version("vllm"), "error": None}
    except metadata.PackageNotFoundError as error:
        return {"value": None, "error": "PackageNotFoundError: " + str(error)}


def main() -> None:
    """Write the document."""
    claiming, everything = distributions()
    libc = platform.libc_ver()
    document = {
        "python": {
            "version": platform.python_version(),
            "executable": sys.executable,
            "prefix": sys.prefix,
            "implementation": platform.python_implementation(),
            "cache_tag": sys.implementation.cache_tag,
            "scripts": sysconfig.get_path("scripts"),
        },
        "machine": platform.machine(),
        "libc": list(libc),
        "version": version_of_vllm(),
        "module": module(),
        "torch": torch(),
        "distributions": claiming,
        "packages": everything,
    }
    Path(sys.argv[1]).write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main()
