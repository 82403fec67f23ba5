"""Judge the kernels, from the document of the stage ``kernels`` and the library file itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cpubuild.verify.knowledge import bound, expected_operators, table
from cpubuild.verify.library import KERNEL, Static
from cpubuild.verify.model import Check, KernelAnswer

Document = Mapping[str, Any]
OPENMP = re.compile(r"^lib(gomp|iomp5|omp)[-.]")
REBUILD = "rebuild vllm for this host (make bootstrap)"


def loaded(doc: Document | None) -> str | None:
    """The kernel library in the process's map."""
    for path in (doc or {}).get("mapped", ()):
        if KERNEL.match(path.rsplit("/", 1)[-1]):
            return str(path)
    return None


def isa(static: Static | None, library: str | None) -> str | None:
    """The ISA of a library in words: what its machine code holds, else what its name says."""
    if library is None:
        return None
    if static is not None and static.instructions:
        found = [name for name, _ in static.instructions if static.has(name)]
        return "+".join(dict.fromkeys(found)) if found else "avx2"
    name = library.rsplit("/", 1)[-1]
    return "avx2" if "AVX2" in name else "avx512" if "AVX512" in name else "native"


def answer(doc: Document | None, static: Static | None) -> KernelAnswer:
    """Library and ISA; nothing when none was loaded."""
    path = loaded(doc)
    if path is None:
        return KernelAnswer()
    return KernelAnswer(library=path.rsplit("/", 1)[-1], isa=isa(static, path))


def library(doc: Document, static: Static | None) -> Check:
    """kernels.library."""
    id_ = "kernels.library"
    loader, cpu = doc["loader"], doc["cpu"]
    has = [name for name, value in cpu.items() if value]
    evidence = (
        f"loaded by {loader['how']}",
        f"torch says this CPU has: {', '.join(has) or 'none of the x86 extensions asked for'}",
        *(f"vLLM warned: {w}" for w in loader["warnings"]),
    )
    path = loaded(doc)
    if loader["error"] or path is None:
        said = loader["error"] or "; ".join(w for w in loader["warnings"] if "import" in w.lower())
        linkage = static.linkage if static else None
        nowhere = [n for n, p in linkage.needed if p is None] if linkage else []
        hints = tuple(library_remedy(n) for n in nowhere) or (REBUILD,)
        return Check(
            id=id_,
            status="fail",
            summary=f"no kernel library was loaded: {said or 'the folder has none'}",
            evidence=evidence,
            remedy=hints,
        )
    name = path.rsplit("/", 1)[-1]
    return Check(
        id=id_,
        status="pass",
        summary=f"{name}: {why_this(name, cpu)}",
        evidence=(*evidence, path),
    )


def why_this(name: str, cpu: Mapping[str, Any]) -> str:
    """Why vLLM's loader took this library, as its rule has it since 0.20 on x86."""
    if "AVX2" in name:
        return "taken because this CPU has no AVX512"
    if "AVX512" in name:
        return "taken because this CPU has AVX512 but not AVX512_BF16"
    if cpu.get("avx512_bf16"):
        return "taken because this CPU has AVX512_BF16"
    return "the one library of this build"


def isa_unused(static: Static | None, flags: frozenset[str], used: str | None) -> Check:
    """kernels.isa_unused."""
    id_ = "kernels.isa_unused"
    if static is None or not static.instructions:
        return Check(id=id_, status="unknown", summary="no machine code of x86 to look into")
    evidence = tuple(
        f"{row['name']}: {dict(static.instructions)[row['isa']]} times in {static.path.name}; "
        f"this CPU {'has' if row['flag'] in flags else 'does not have'} {row['flag']}"
        for row in table()["instructions"]
    )
    unused = [
        row["isa"]
        for row in table()["instructions"]
        if row["flag"] in flags and not static.has(row["isa"])
    ]
    foreign = [
        row["isa"]
        for row in table()["instructions"]
        if row["flag"] not in flags and static.has(row["isa"])
    ]
    if foreign:
        return Check(
            id=id_,
            status="warn",
            summary=f"{static.path.name} has instructions this CPU lacks: {', '.join(foreign)}",
            evidence=evidence,
            remedy=(REBUILD,),
        )
    if unused:
        return Check(
            id=id_,
            status="warn",
            summary=f"this CPU has {', '.join(unused)}, the build does not use it",
            evidence=evidence,
            remedy=("rebuild for this host's CPU with a compiler that knows it",),
        )
    what = f"everything is used ({used})" if used else "the library has everything this CPU has"
    return Check(id=id_, status="pass", summary=what, evidence=evidence)


def compiled_for(name: str, cpu: Mapping[str, Any], static: Static | None) -> frozenset[str]:
    """The conditions under which the operators of the library ``name`` were compiled."""
    wide = static is None or static.may_have("avx512")
    bf16 = static is None or static.may_have("avx512_bf16")
    if "AVX2" in name or not cpu.get("avx512") or not wide:
        return frozenset()
    if "AVX512" in name or not bf16:
        return frozenset({"avx512"})
    return frozenset({"avx512", "avx512bf16"})


def operators(doc: Document, version: str | None, static: Static | None) -> Check:
    """kernels.operators."""
    id_ = "kernels.operators"
    names = frozenset(doc["operators"])
    isas = compiled_for((loaded(doc) or "").rsplit("/", 1)[-1], doc["cpu"], static)
    expected = expected_operators(version or "", isas)
    if expected is None:
        return Check(
            id=id_,
            status="fail" if not names else "unknown",
            summary=f"{len(names)} operators; release {version} is not known",
        )
    lost = sorted(expected.core - names)
    absent = sorted(expected.names - names)
    evidence = (f"{len(names)} registered", *(f"missing: {n}" for n in absent))
    if lost or (absent and expected.exact):
        return Check(
            id=id_,
            status="fail",
            summary=f"missing: {', '.join((lost or absent)[:6])}",
            evidence=evidence,
            remedy=(REBUILD,),
        )
    if absent:
        return Check(
            id=id_,
            status="warn",
            summary=f"missing of what neighbouring releases have: {', '.join(absent[:6])}",
            evidence=evidence,
        )
    return Check(
        id=id_,
        status="pass",
        summary=f"{len(names)} operators, all {len(expected.names)} expected are there",
        evidence=evidence,
    )


def arithmetic(doc: Document) -> Check:
    """kernels.arithmetic."""
    id_ = "kernels.arithmetic"
    rows = doc["arithmetic"]
    if not rows:
        return Check(id=id_, status="unknown", summary="none of the operators is registered")
    wrong, unasked, evidence = [], [], []
    for row in rows:
        name, limit = f"{row['operator']} {row['type']}", bound("operator_" + row["type"])
        if row["error"]:
            unasked.append(f"{name}: {row['error']}")
            continue
        evidence.append(f"{name}: differs by {row['difference']} (bound {limit})")
        if not isinstance(row["difference"], float) or not row["difference"] <= limit:
            wrong.append(name)
    if wrong:
        return Check(
            id=id_,
            status="fail",
            summary=f"wrong results: {', '.join(wrong)}",
            evidence=(*evidence, *unasked),
            remedy=(REBUILD,),
        )
    if unasked:
        return Check(
            id=id_,
            status="unknown" if not evidence else "warn",
            summary=f"could not be called: {', '.join(u.split(':')[0] for u in unasked)}",
            evidence=(*evidence, *unasked),
        )
    return Check(
        id=id_, status="pass", summary=f"{len(rows)} computations agree", evidence=tuple(evidence)
    )


def symbols(static: Static | None, torch: str | None) -> Check:
    """kernels.symbols."""
    id_ = "kernels.symbols"
    if static is None:
        return Check(id=id_, status="fail", summary="there is no kernel library to look into")
    linkage = static.linkage
    if linkage is None:
        return Check(
            id=id_,
            status="fail",
            summary=f"the library cannot be read: {static.error}",
            remedy=("reinstall vllm",),
        )
    evidence = tuple(f"{n} => {p or 'not found'}" for n, p in linkage.needed) + tuple(
        f"needs {name}" for _, name in linkage.versions
    )
    nowhere = [n for n, p in linkage.needed if p is None]
    if nowhere:
        return Check(
            id=id_,
            status="fail",
            summary=f"libraries not found: {', '.join(nowhere)}",
            evidence=evidence,
            remedy=tuple(library_remedy(n) for n in nowhere),
        )
    if linkage.missing_versions:
        return Check(
            id=id_,
            status="fail",
            summary=f"this host's libraries are too old: {', '.join(linkage.missing_versions)}",
            evidence=evidence,
            remedy=("build vllm on this host (make bootstrap)",),
        )
    if linkage.undefined:
        return Check(
            id=id_,
            status="fail",
            summary=f"{len(linkage.undefined)} undefined symbols, such as {linkage.undefined[0]}: "
            f"built against another torch than {torch}",
            evidence=(*linkage.undefined[:20], *evidence),
            remedy=("install the torch it was built against, or rebuild vllm",),
        )
    if linkage.unreadable:
        return Check(
            id=id_,
            status="unknown",
            summary="a library it needs could not be read",
            evidence=linkage.unreadable,
        )
    return Check(
        id=id_,
        status="pass",
        summary=f"{len(linkage.needed)} libraries and every symbol found",
        evidence=evidence,
    )


def library_remedy(name: str) -> str:
    """What to install for a missing library."""
    if name.startswith("libnuma"):
        return "apt-get install libnuma1 (dnf install numactl-libs; zypper install libnuma1)"
    if name.startswith(("libtorch", "libc10")):
        return "reinstall torch (+cpu) into this environment"
    if "cuda" in name or name.startswith(("libcu", "libnv")):
        return f"{name} belongs to a CUDA build; install a CPU build of vllm"
    return f"install the package that brings {name}"


def numa(doc: Document) -> Check:
    """kernels.numa."""
    id_, answer = "kernels.numa", doc["numa"]
    if not answer["loads"]:
        return Check(
            id=id_,
            status="fail",
            summary=f"libnuma does not load: {answer['error']}",
            remedy=(library_remedy("libnuma"),),
        )
    if not answer["available"]:
        return Check(
            id=id_,
            status="warn",
            summary="libnuma is there, but NUMA calls are not allowed or not supported here",
            remedy=("in a container: --cap-add SYS_NICE --security-opt seccomp=unconfined",),
        )
    return Check(id=id_, status="pass", summary="libnuma loads, NUMA calls work")


def openmp(doc: Document) -> Check:
    """kernels.openmp."""
    id_ = "kernels.openmp"
    paths = [p for p in doc["watched"] if OPENMP.match(p.rsplit("/", 1)[-1])]
    if len(paths) > 1:
        return Check(
            id=id_,
            status="fail",
            summary=f"{len(paths)} OpenMP runtimes in one process",
            evidence=tuple(paths),
            remedy=("preload one of them only, and keep other OpenMP libraries out",),
        )
    if not paths:
        return Check(id=id_, status="warn", summary="no OpenMP runtime is loaded")
    return Check(id=id_, status="pass", summary=paths[0])


def tcmalloc(doc: Document) -> Check:
    """kernels.tcmalloc."""
    id_ = "kernels.tcmalloc"
    bundled = [n for n in doc["bundled"] if n.startswith("libtcmalloc")]
    if bundled:
        return Check(id=id_, status="pass", summary=f"bundled: {', '.join(bundled)}")
    in_use = [p for p in doc["watched"] if "libtcmalloc" in p]
    if in_use:
        return Check(id=id_, status="pass", summary=in_use[0])
    return Check(
        id=id_,
        status="warn",
        summary="not bundled in this build, and not preloaded: slower allocation",
        remedy=("apt-get install libtcmalloc-minimal4, and name it in LD_PRELOAD",),
    )


def triton(doc: Document) -> Check:
    """kernels.triton."""
    id_, answer = "kernels.triton", doc["triton"]
    if answer["used"]:
        return Check(id=id_, status="pass", summary=f"triton {answer['version']} is used")
    if answer["version"] is None:
        return Check(
            id=id_,
            status="pass",
            summary="no triton: vLLM uses its first model runner and C++ stand-ins",
        )
    return Check(
        id=id_,
        status="warn",
        summary=f"triton {answer['version']} has no CPU backend and is not used",
        remedy=("pip uninstall triton (saves disk; vLLM runs without)",),
    )


def judge(
    doc: Document,
    *,
    static: Static | None,
    flags: frozenset[str],
    version: str | None,
    torch: str | None,
) -> list[Check]:
    """All kernel checks; what a library would compute is not asked when none was loaded."""
    computed = [operators(doc, version, static), arithmetic(doc)]
    if loaded(doc) is None and not doc["operators"]:
        said = "no kernel library was loaded"
        computed = [Check(id=c.id, status="skip", summary=said) for c in computed]
    return [
        library(doc, static),
        isa_unused(static, flags, answer(doc, static).isa),
        *computed,
        symbols(static, torch),
        numa(doc),
        openmp(doc),
        tcmalloc(doc),
        triton(doc),
    ]
