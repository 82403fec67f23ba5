"""Judge which platform vLLM takes, from the document of the stage ``platform``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cpubuild.verify.model import Check, PlatformAnswer

Document = Mapping[str, Any]
UNRECOGNISED = "cpubuild repair --target {python}"


def answer(doc: Document | None) -> PlatformAnswer:
    """The class and whether it is a CPU platform."""
    resolved = (doc or {}).get("resolved") or {}
    return PlatformAnswer(cls=resolved.get("class"), is_cpu=bool(resolved.get("is_cpu")))


def layers_in_words(doc: Document) -> tuple[str, ...]:
    """Each layer's own verdict, one line each."""
    version = doc["version"]
    value = version["value"]
    lines = [
        f'version string: {value!r} {"contains" if "cpu" in value else "does not contain"} "cpu"'
        if value
        else f"version string: none ({version['error']})"
    ]
    if doc.get("target_device"):
        lines.append(f"VLLM_TARGET_DEVICE={doc['target_device']}")
    for kind in ("builtin", "external"):
        for plugin in doc.get(kind) or ():
            said = "; ".join(s.partition(" ")[2] for s in plugin["said"])
            verdict = plugin["verdict"] or "no"
            reason = plugin["error"] or said or "said nothing"
            origin = f" of {plugin['distribution']}" if plugin.get("distribution") else ""
            lines.append(f"{kind} plugin {plugin['name']}{origin}: {verdict} ({reason})")
    if not doc.get("builtin"):
        lines.append("this release has no list of platform plugins; it asks in one sequence")
    return tuple(lines)


def why_not(doc: Document) -> str:
    """Why no CPU platform was taken, in a sentence."""
    resolved = doc.get("resolved") or {}
    value = doc["version"]["value"]
    if resolved.get("error"):
        return f"vLLM could not decide: {resolved['error']}"
    active = [
        p["name"] for p in (*doc.get("builtin", ()), *doc.get("external", ())) if p["verdict"]
    ]
    if resolved.get("unspecified"):
        if value is None:
            return 'no plugin recognised it: there is no metadata for vllm to find "cpu" in'
        if "cpu" not in value:
            return f'no plugin recognised it: the version {value} does not contain "cpu"'
        return "no plugin recognised it"
    return f"taken by {', '.join(active) or resolved.get('class')}"


def klass(doc: Document, python: str) -> Check:
    """platform.class."""
    id_ = "platform.class"
    if doc.get("import_error"):
        return Check(
            id=id_,
            status="fail",
            summary=f"vllm.platforms cannot be imported: {doc['import_error']}",
            evidence=(str(doc["torch"].get("error") or f"torch {doc['torch'].get('version')}"),),
            remedy=("install what is missing, or vllm again, into this environment",),
        )
    resolved = doc["resolved"]
    name = resolved.get("class")
    evidence = (
        *(f"resolved: {s}" for s in resolved.get("said", ())),
        f"{resolved.get('qualname')}, is_cpu() = {resolved.get('is_cpu')}, "
        f"device_type = {resolved.get('device_type')!r}",
    )
    if resolved.get("is_cpu"):
        return Check(id=id_, status="pass", summary=str(name), evidence=evidence)
    return Check(
        id=id_,
        status="fail",
        summary=f"{name or 'no platform'}: {why_not(doc)}",
        evidence=evidence + layers_in_words(doc),
        remedy=(
            UNRECOGNISED.format(python=python) + "   (if the libraries are CPU builds)",
            "install a CPU build of vllm",
        ),
    )


def layers(doc: Document) -> Check:
    """platform.layers."""
    id_ = "platform.layers"
    if doc.get("import_error"):
        return Check(id=id_, status="unknown", summary="vllm.platforms cannot be imported")
    active = [
        p["name"] for p in (*doc.get("builtin", ()), *doc.get("external", ())) if p["verdict"]
    ]
    raised = [p["name"] for p in doc.get("external", ()) if p["error"]]
    summary = f"plugins that claim this host: {', '.join(active) or 'none'}"
    if raised or len(active) > 1:
        return Check(
            id=id_,
            status="warn",
            summary=summary + (f"; failed: {', '.join(raised)}" if raised else ""),
            evidence=layers_in_words(doc),
            remedy=("uninstall the platform plugin that is not for this host",),
        )
    return Check(id=id_, status="pass", summary=summary, evidence=layers_in_words(doc))


def environment(
    clean: Document, caller: Document | None, names: Mapping[str, str], failure: str = ""
) -> Check:
    """platform.environment: the clean answer against the caller's."""
    id_ = "platform.environment"
    spelled = tuple(f"{n}={v}" for n, v in sorted(names.items()))
    if not names:
        return Check(
            id=id_, status="pass", summary="the caller sets nothing that could change the platform"
        )
    here = answer(clean)
    if caller is None:
        return Check(
            id=id_,
            status="warn",
            summary=f"in the caller's environment vLLM could not be asked: {failure}",
            evidence=spelled,
            remedy=("unset " + " ".join(sorted(names)),),
        )
    there = answer(caller)
    if here == there:
        return Check(
            id=id_,
            status="pass",
            summary=f"{there.cls}, with and without {', '.join(sorted(names))}",
            evidence=spelled,
        )
    if there.is_cpu and not here.is_cpu and names.get("VLLM_TARGET_DEVICE") == "cpu":
        summary = (
            f"CPU only because VLLM_TARGET_DEVICE is set: {there.cls} with it, "
            f"{here.cls or 'no platform'} without"
        )
    else:
        summary = (
            f"{there.cls or 'no platform'} in the caller's environment, {here.cls} in a clean one"
        )
    return Check(
        id=id_,
        status="fail" if not there.is_cpu else "warn",
        summary=summary,
        evidence=(*spelled, *layers_in_words(caller)),
        remedy=("unset " + " ".join(sorted(names)) + ", or make the installation right by itself",),
    )
