"""The verb ``model``: get, list, check, rm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cpubuild import ui
from cpubuild.calls import Call, Outcome
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.models import fetching, gitlfs, given, hubs, judge, keeping, names, store
from cpubuild.models.hubs import Client, HubFile
from cpubuild.models.names import Reference
from cpubuild.state import State


def model(call: Call) -> Outcome:
    """Get, list, check or remove models."""
    acts: dict[str, Callable[[Call, State], Outcome]]
    acts = {"get": get, "list": listing, "check": check, "rm": remove}
    action = call.options["action"] or "list"
    if action not in acts:
        raise fail(
            ExitCode.SETTINGS,
            f"model {action}: there is no such action",
            remedy=tuple(f"cpubuild model {word}" for word in ("get ID", "list", "check", "rm ID")),
        )
    name = call.options["name"]
    if action != "list" and not name:
        raise fail(
            ExitCode.SETTINGS,
            f"model {action} needs a name: an id of a hub, a short name, or a path",
            remedy=(f"cpubuild model {action} qwen2.5-0.5b-instruct",),
        )
    return acts[action](call, State(root=call.resolved().settings.state))


def get(call: Call, state: State) -> Outcome:
    """Fetch a model, or register one that is here."""
    name, offline = str(call.options["name"]), call.resolved().settings.offline
    revision, source = call.options["revision"], call.options["from_"]
    if problems := state.problems():
        raise CpuBuildError(*problems)
    if gitlfs.ADDRESS.fullmatch(name) and source is None:
        source = hubs.GIT
    hub_name = hubs.preferred(source, call.environ)
    if source is None and revision is None and given.is_given(name):
        got = given.get(name, state, probe(call, state))
    elif hub_name == hubs.GIT:
        ask = probe(call, state)
        got = gitlfs.from_git(name, revision, state, call.environ, ask, offline=offline)
    else:
        asked = names.reference(name)
        asked = Reference(id=asked.id, revision=revision or asked.revision)
        got = fetching.from_hub(
            asked, hub_name, state, call.environ, lambda: client(call, state), offline=offline
        )
    findings = got.judged.findings if got.judged else ()
    shown = got.stored.to_json()
    lines = [
        *(finding_line(f) for f in findings),
        f"{'stored' if got.changed else 'nothing to do'}: {got.stored.id} "
        f"{got.stored.revision[:12]}, {size(got.stored.size)}, {got.stored.dtype}",
        f"{got.stored.path}",
    ]
    document = {"changed": got.changed, "model": shown, "findings": findings}
    return Outcome(document=document, lines=lines)


def client(call: Call, state: State) -> Client:
    """The hubs' clients for this call."""
    offline = call.resolved().settings.offline
    return hubs.open_client(state, call.environ, folder=state.new_run("model"), offline=offline)


def probe(call: Call, state: State) -> judge.Ask | None:
    """The tokenizer probe: in the clients' environment, else in the current one; None: nowhere."""
    here = hubs.existing_client(state, call.environ)
    env = state.current_env()
    if here is None and env is not None:
        folder = state.new_run("model") / "hub"
        here = Client(python=env / "bin" / "python", environ=call.environ, folder=folder)
    if here is None:
        try:
            here = client(call, state)
        except CpuBuildError as error:
            ui.note(f"the tokenizer is not tried: {error.problems[0].what}")
            return None
    return fetching.tokenizer(here)


def listing(call: Call, state: State) -> Outcome:
    """List what is stored, what was begun, and the short names."""
    del call
    kept, begun = store.stored(state), keeping.unfinished(state)
    broken = store.damaged(state)
    document = {
        "models": [s.to_json() for s in kept],
        "unfinished": begun,
        "damaged": broken,
        "known": names.known(),
    }
    lines = [stored_line(s) for s in kept] or [f"no model is stored under {state.models}"]
    lines += [
        f"  unfinished: {row['id']} {str(row['revision'])[:12]}, {size(row['size'])} are there; "
        f"go on with: cpubuild model get {row['id']}"
        for row in begun
    ]
    lines += [f"  damaged receipt: {path}" for path in broken]
    lines += ["", "short names (cpubuild model get NAME; any owner/name of a hub works as well):"]
    lines += known_lines()
    return Outcome(document=document, lines=lines)


def stored_line(kept: store.Stored) -> str:
    """One stored model as a line."""
    state = "" if not kept.missing() else "  NOT WHOLE"
    return (
        f"{kept.id:<36} {kept.hub:<10} {kept.revision[:12]:<12} {size(kept.size):>9}  "
        f"{kept.dtype}  {kept.kind}{state}"
    )


def known_lines() -> list[str]:
    """The short names: one line for each size, its variants and what they take."""
    rows: dict[str, list[names.Known]] = {}
    for known in names.known():
        rows.setdefault(known.name.partition("-instruct")[0], []).append(known)
    return [
        f"  {base:<22} "
        + ", ".join(f"{k.name.removeprefix(base) or '(base)'} {size(k.size)}" for k in members)
        for base, members in rows.items()
    ]


def size(count: int) -> str:
    """Bytes in gigabytes, small ones in megabytes."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def finding_line(finding: Any) -> str:
    """A finding as a line: its mark, what it is about, what was found."""
    return f"{ui.MARKS[finding.status]} {finding.id}: {finding.found}"


def check(call: Call, state: State) -> Outcome:
    """Check a folder or a stored model: every hash, header and shape, and its tokenizer."""
    name = str(call.options["name"])
    folder, files = subject(name, state, call.environ)
    judged = judge.judge(folder, files=files, ask=probe(call, state))
    document = {
        "path": folder,
        "verdict": "pass" if judged.good else "fail",
        "architecture": judged.architecture,
        "dtype": judged.dtype,
        "parameters": judged.parameters,
        "size": judged.size,
        "context": judged.context,
        "findings": judged.findings,
    }
    lines = [*(finding_line(f) for f in judged.findings)]
    lines += [f"     why: {f.why}" for f in judged.findings if f.why and f.status == "blocker"]
    about = f", {judged.parameters / 1e6:.0f} million parameters, {judged.dtype}"
    lines.append(f"{'good' if judged.good else 'NOT GOOD'}: {folder}{about if judged.size else ''}")
    code = ExitCode.OK if judged.good else ExitCode.VERIFY
    return Outcome(document=document, lines=lines, exit_code=code)


def subject(
    name: str, state: State, environ: Mapping[str, str]
) -> tuple[Path, tuple[HubFile, ...]]:
    """The folder to check, and what its receipt says of its files; SETTINGS if there is none."""
    path = Path(name).expanduser()
    if path.is_dir():
        return path.absolute(), ()
    kept = store.matching(name, state)
    if kept:
        newest = max(kept, key=lambda s: s.created)
        files = tuple(HubFile(path=f.path, size=f.size, sha256=f.sha256) for f in newest.files)
        return newest.path, files
    return store.find(name, state, environ), ()


def remove(call: Call, state: State) -> Outcome:
    """Remove a stored model; a folder that was only linked stays as it is."""
    name = str(call.options["name"])
    here = str(Path(name).expanduser().absolute())
    kept = store.matching(name, state) or tuple(
        s for s in store.stored(state) if s.kind == "linked" and s.source == here
    )
    begun = fetching.drop_partial(state, name)
    if not kept and not begun:
        raise store.not_there(name, state)
    if len(kept) > 1:
        raise fail(
            ExitCode.SETTINGS,
            f"{name} means {len(kept)} stored models",
            remedy=tuple(f"cpubuild model rm {s.id}@{s.revision[:12]}" for s in kept),
        )
    freed = sum(store.remove(s, state) for s in kept)
    said = [f"removed {s.id} {s.revision[:12]}" for s in kept]
    said += [f"the folder {s.source} stays as it is" for s in kept if s.kind == "linked"]
    said += [f"removed what was begun: {path.name}" for path in begun]
    removed = [*(s.entry for s in kept), *begun]
    return Outcome(
        document={"removed": removed, "bytes": freed}, lines=[*said, f"{freed / 1e6:.1f} MB"]
    )
