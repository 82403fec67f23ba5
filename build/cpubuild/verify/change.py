"""Judge what has changed since the receipt was written: host, packages, libraries, words, speed."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from cpubuild.facts import cpu, libc, libraries
from cpubuild.jsonio import sha256_of
from cpubuild.verify import words
from cpubuild.verify.knowledge import bound
from cpubuild.verify.model import Check, Smoke

Document = Mapping[str, Any]
NONE = "there is no receipt to compare with"
SILENT = "the receipt does not say"
REBUILD = "cpubuild bootstrap   # builds and proves again what no longer fits"
DECISIVE = ("torch", "vllm")
SHOWN = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """What of a host can make an installed vLLM behave otherwise; libnuma is a path."""

    arch: str
    model: str
    flags: frozenset[str]
    logical: int
    kernel: str
    libc: str
    libnuma: str | None


def host_now(environ: Mapping[str, str]) -> Host:
    """What this host is now, found without compiling anything."""
    root = Path("/")
    texts = cpu.probe(root)
    found = cpu.parse(texts)
    library = libc.parse(libc.probe(root, environ))
    cache = libraries.parse_cache(libraries.probe(root, environ), found.arch)
    return Host(
        arch=found.arch,
        model=found.model,
        flags=found.flags,
        logical=found.logical,
        kernel=cpu.kernel(texts),
        libc=f"{library.name} {library.version}",
        libnuma=libraries.parse(cache, root, found.arch).numa_runtime,
    )


def host_then(receipt: Document) -> Host | None:
    """The host of the receipt, None when it has none that can be read."""
    try:
        kept = receipt["host"]
        return Host(
            arch=str(kept["arch"]),
            model=str(kept["model"]),
            flags=frozenset(str(f) for f in kept["flags"]),
            logical=int(kept["logical"]),
            kernel=str(kept["kernel"]),
            libc=str(kept["libc"]),
            libnuma=kept["libraries"]["numa_runtime"],
        )
    except (KeyError, TypeError, ValueError):
        return None


def some(names: Collection[str]) -> str:
    """The first few of a set of names, and how many more there are."""
    ordered = sorted(names)
    more = f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return ", ".join(ordered[:SHOWN]) + more


def older(now: str, then: str) -> bool:
    """Whether a C library in words (``glibc 2.36``) is older than another of the same name."""
    have, had = ([int(n) for n in re.findall(r"\d+", text)] for text in (now, then))
    return bool(have and had) and now.split()[0] == then.split()[0] and have < had


def host_rows(then: Host, now: Host) -> tuple[list[str], list[str]]:
    """What differs for the worse, and what differs otherwise, a sentence each."""
    grave: list[str] = []
    other: list[str] = []
    if then.arch != now.arch:
        grave.append(f"architecture {then.arch}, now {now.arch}")
    if then.libc != now.libc:
        rows = grave if older(now.libc, then.libc) else other
        rows.append(f"C library {then.libc}, now {now.libc}")
    if then.libnuma != now.libnuma:
        rows = grave if now.libnuma is None else other
        rows.append(f"libnuma {then.libnuma or 'not there'}, now {now.libnuma or 'not there'}")
    if lost := then.flags - now.flags:
        other.append(f"CPU flags gone: {some(lost)}")
    if gained := now.flags - then.flags:
        other.append(f"CPU flags new: {some(gained)}")
    for what in ("model", "logical", "kernel"):
        before, after = getattr(then, what), getattr(now, what)
        if before != after:
            name = {"model": "CPU", "logical": "number of CPUs"}.get(what, what)
            other.append(f"{name} {before}, now {after}")
    return grave, other


def host(receipt: Document | None, now: Host) -> Check:
    """change.host."""
    id_ = "change.host"
    if receipt is None:
        return Check(id=id_, status="skip", summary=NONE)
    then = host_then(receipt)
    if then is None:
        return Check(id=id_, status="unknown", summary=SILENT)
    grave, other = host_rows(then, now)
    rows = (*grave, *other)
    if not rows:
        return Check(id=id_, status="pass", summary=f"the same ({now.model}, kernel {now.kernel})")
    numa = "libnuma" in " ".join(grave)
    return Check(
        id=id_,
        status="fail" if grave else "warn",
        summary="; ".join(rows),
        evidence=rows,
        remedy=(*(("apt-get install libnuma1",) if numa else ()), REBUILD),
    )


def frozen(lines: Sequence[str]) -> dict[str, str | None]:
    """Version by project name, from lines as ``pip freeze`` has them; None: the line has none."""
    found: dict[str, str | None] = {}
    for line in lines:
        name, at, url = line.partition(" @ ")
        if at:
            found[canonicalize_name(name)] = version_in(url)
        elif "==" in line:
            name, _, version = line.partition("==")
            found[canonicalize_name(name)] = version.split(";")[0].strip()
    return found


def version_in(url: str) -> str | None:
    """The version in a wheel's URL."""
    try:
        return str(parse_wheel_filename(unquote(url.split("#")[0].rsplit("/", 1)[-1]))[1])
    except InvalidWheelFilename:
        return None


def packages(receipt: Document | None, installed: Sequence[Sequence[str]]) -> Check:
    """change.packages: ``installed`` holds (name, version) pairs."""
    id_ = "change.packages"
    if receipt is None:
        return Check(id=id_, status="skip", summary=NONE)
    if not receipt.get("packages"):
        return Check(id=id_, status="unknown", summary=SILENT)
    then = frozen([str(line) for line in receipt["packages"]])
    now: dict[str, str] = {canonicalize_name(name): version for name, version in installed}
    changed = {n: f"{n} {v}, now {now[n]}" for n, v in then.items() if v and now.get(n, v) != v}
    gone = {n: f"{n} {v or ''}, now not there" for n, v in then.items() if n not in now}
    new = {n: f"{n} {v} is new" for n, v in now.items() if n not in then}
    rows = tuple({**changed, **gone, **new}.values())
    if not rows:
        return Check(id=id_, status="pass", summary=f"{len(now)} packages, the same")
    decisive = [row for n, row in {**changed, **gone}.items() if n in DECISIVE]
    return Check(
        id=id_,
        status="fail" if decisive else "warn",
        summary="; ".join(decisive)
        or f"{len(changed)} of other versions, {len(gone)} gone, {len(new)} new: "
        + some([*changed, *gone, *new]),
        evidence=rows,
        remedy=(
            "the receipt proves nothing about them; "
            + REBUILD.replace("builds and proves again what", "installs again what"),
        ),
    )


def hashes(folder: Path, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(name, sha256) of the libraries of a folder that can be read."""
    found = []
    for name in names:
        try:
            found.append((name, sha256_of(folder / name)))
        except OSError:
            continue
    return tuple(found)


def from_record(text: str) -> str | None:
    """A hash of RECORD (``sha256=`` and base64) as hex digits, None when it is none."""
    kind, _, value = text.partition("=")
    if kind != "sha256":
        return None
    try:
        return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()
    except ValueError:
        return None


def library(
    receipt: Document | None, files: Sequence[tuple[str, str]], record: Mapping[str, str]
) -> Check:
    """change.library: ``files`` as they are, ``record`` the hashes by path of RECORD."""
    id_ = "change.library"
    now = dict(files)
    wanted = {p.rsplit("/", 1)[-1]: from_record(text) for p, text in record.items()}
    off = sorted(n for n, digest in now.items() if wanted.get(n) not in (None, digest))
    evidence = tuple(f"{name} sha256 {digest}" for name, digest in files)
    then = ((receipt or {}).get("verify") or {}).get("kernels", {}).get("files") or {}
    if then:
        changed = sorted(n for n, digest in then.items() if now.get(n) != digest)
        new = sorted(set(now) - set(then))
        if changed or new:
            gone = [n for n in changed if n not in now]
            said = [f"{n} is gone" if n in gone else f"{n} is another file" for n in changed]
            return Check(
                id=id_,
                status="fail" if changed else "warn",
                summary="; ".join((*said, *(f"{n} is new" for n in new))),
                evidence=(*evidence, *(f"{n} was sha256 {then[n]}" for n in changed)),
                remedy=(REBUILD,),
            )
    if off:
        return Check(
            id=id_,
            status="fail" if receipt is not None and not then else "warn",
            summary=f"not the file that RECORD names: {', '.join(off)}",
            evidence=evidence,
            remedy=("reinstall vllm, or keep in mind that it was changed after installation",),
        )
    if not then and not any(wanted.values()):
        return Check(id=id_, status="skip", summary=f"{NONE}, and RECORD holds no hash")
    by = "the receipt" if then else "RECORD"
    return Check(
        id=id_, status="pass", summary=f"{len(now)} libraries as {by} has them", evidence=evidence
    )


def smoke_then(receipt: Document | None) -> Document:
    """The smoke run of the receipt's verification, empty when it has none."""
    kept = ((receipt or {}).get("verify") or {}).get("smoke")
    return kept if isinstance(kept, Mapping) else {}


def answers(receipt: Document | None, smoke: Smoke) -> Check:
    """change.answers."""
    id_ = "change.answers"
    if receipt is None:
        return Check(id=id_, status="skip", summary=NONE)
    then = smoke_then(receipt)
    if not then.get("digest") or not smoke.digest:
        return Check(id=id_, status="unknown", summary=SILENT)
    if then.get("asked") != smoke.asked:
        return Check(
            id=id_,
            status="unknown",
            summary="the small model or its prompts were others then; the words are not comparable",
        )
    evidence = (f"then {then['digest']}", f"now {smoke.digest}")
    if then["digest"] != smoke.digest:
        return Check(
            id=id_,
            status="fail",
            summary="other words than then, from the same model and prompts",
            evidence=evidence,
            remedy=("see words.greedy_float32 for which are right", REBUILD),
        )
    return Check(
        id=id_, status="pass", summary=f"{smoke.tokens} tokens, the same", evidence=evidence
    )


def speed(receipt: Document | None, smoke: Smoke) -> Check:
    """change.speed."""
    id_ = "change.speed"
    if receipt is None:
        return Check(id=id_, status="skip", summary=NONE)
    then, now = words.speed(smoke_then(receipt).get("speed")), smoke.speed
    if then is None or now is None or then.tokens != now.tokens:
        return Check(id=id_, status="unknown", summary="not measured, or with another workload")
    allowed = bound("speed_slower") + 2 * (then.noise + now.noise)
    slower = then.best / now.best - 1
    evidence = tuple(
        f"{name}: {run.best:.0f} tokens/s in the fastest of {len(run.runs)} runs, noise "
        f"{run.noise:.0%}, {run.cpus} CPUs, others used "
        + ("an unknown part" if run.others is None else f"{run.others:.2f} CPUs")
        for name, run in (("then", then), ("now", now))
    )
    if then.cpus != now.cpus:
        said = f"measured with {then.cpus} CPUs then, {now.cpus} now: not comparable"
        return Check(id=id_, status="unknown", summary=said, evidence=evidence)
    if slower <= allowed:
        said = f"{now.best:.0f} tokens/s, then {then.best:.0f} (bound: {allowed:.0%} slower)"
        return Check(id=id_, status="pass", summary=said, evidence=evidence)
    said = f"{slower:.0%} slower: {now.best:.0f} tokens/s, then {then.best:.0f}"
    if now.others is not None and now.others > bound("speed_busy") * now.cpus:
        return Check(
            id=id_,
            status="unknown",
            summary=f"{said}; other processes kept {now.others:.1f} CPUs busy",
            evidence=evidence,
            remedy=("verify again when the host is quiet",),
        )
    return Check(
        id=id_,
        status="warn",
        summary=f"{said} (bound {allowed:.0%}, from the noise of both)",
        evidence=evidence,
        remedy=(
            "look for a power limit, another clock, less cache or a busier neighbour",
            "verify again; if it stays, compare change.host and change.packages",
        ),
    )
