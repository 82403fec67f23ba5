"""Get a model from a hub: asked, room made sure of, fetched, checked, stored once."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cpubuild import ui
from cpubuild.errors import CpuBuildError, ExitCode, Problem
from cpubuild.models import failures, hubs, judge, keeping, store
from cpubuild.models.hubs import Client, HubFile, Listing
from cpubuild.models.names import Reference
from cpubuild.models.store import FILES, Stored
from cpubuild.state import State

COMMIT = re.compile(r"[0-9a-f]{40}")
LOOK_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Got:
    """A model that is stored, whether this run did it, and what was found of it."""

    stored: Stored
    changed: bool
    judged: judge.Judgement | None = None


def stored_already(asked: Reference, hub_name: str, state: State, *, offline: bool) -> Got | None:
    """A stored model that answers without the network: by its commit, or when there is none."""
    pinned = asked.revision is not None and COMMIT.fullmatch(asked.revision)
    if not pinned and not offline:
        return None
    name = f"{asked.id}@{asked.revision or ''}"
    whole = [s for s in store.matching(name, state) if s.hub == hub_name and not s.missing()]
    return Got(stored=max(whole, key=lambda s: s.created), changed=False) if whole else None


def from_hub(
    asked: Reference,
    hub_name: str,
    state: State,
    environ: Mapping[str, str],
    open_client: Callable[[], Client],
    *,
    offline: bool,
) -> Got:
    """Get ``asked`` from Hugging Face or ModelScope through the hub's own client.

    ``open_client`` is only called when the hub has to be asked.
    """
    if found := stored_already(asked, hub_name, state, offline=offline):
        return found
    where = hubs.endpoint(hub_name, environ)
    if offline:
        raise failures.offline(asked.id, where, hub_name)
    try:
        client = open_client()
    except CpuBuildError as error:
        raise failures.no_client(error, asked.id, where) from error
    listing = hubs.listing(client, hub_name, asked)
    entry = store.place(state, hub_name, listing.id, revision_of(listing))
    kept = store.read(entry / store.RECEIPT)
    if kept is not None and not kept.missing():
        return Got(stored=kept, changed=False)
    return bring(client, listing, entry, state)


def bring(client: Client, listing: Listing, entry: Path, state: State) -> Got:
    """Fetch what is listed, check it, and move it to its place."""
    named = {"id": listing.id, "hub": listing.hub, "revision": revision_of(listing)}
    with keeping.gathering(state, entry, named) as work:
        files = work / FILES
        keeping.need_room(files, listing.size, hubs.bytes_in(files), listing.id)
        with watched(f"{listing.id} from {listing.endpoint}", files, listing.size):
            hubs.fetch(client, listing, files)
        compare(files, listing)
        judged = judge.judge(files, ask=tokenizer(client))
        judged.refuse(f"{listing.id} came as {listing.endpoint} has it and is not stored")
        done = keeping.settle(
            entry,
            work,
            judged,
            files=keeping.hashed(files, listing.files),
            extra={"endpoint": listing.endpoint, "asked": listing.asked},
            kind="fetched",
            source=f"{listing.endpoint}/{listing.id}",
            **named,
        )
    return Got(stored=done, changed=True, judged=judged)


def tokenizer(client: Client) -> judge.Ask:
    """The tokenizer probe in the clients' environment."""
    return lambda options: client.ask("tokenizer", options, hubs.TOKENIZER_SECONDS)


def revision_of(listing: Listing) -> str:
    """The commit; where the hub names none, the revision that was asked for."""
    return listing.commit or listing.asked or "master"


def compare(folder: Path, listing: Listing) -> None:
    """Hold the files against what the hub announced; a wrong one is thrown away (DOWNLOAD)."""
    problems = []
    for file in listing.files:
        said = judge.difference(folder / file.path, file)
        if said:
            discard(folder, file)
            problems.append(
                Problem(
                    what=f"{said}; it was thrown away",
                    why=f"it came from {failures.redact(listing.endpoint)}",
                    remedy=(failures.AGAIN, "if it stays so, a mirror or proxy changes files"),
                    exit_code=ExitCode.DOWNLOAD,
                )
            )
    if problems:
        raise CpuBuildError(*problems)


def discard(folder: Path, file: HubFile) -> None:
    """Remove a file and what the client knows of it, so that it comes anew."""
    (folder / file.path).unlink(missing_ok=True)
    for path in folder.glob(f".cache/huggingface/download/{file.path}*"):
        path.unlink(missing_ok=True)


@contextmanager
def watched(title: str, folder: Path, total: int) -> Iterator[None]:
    """Show how far a download is, in megabytes, by what lies in the folder."""
    ended = threading.Event()
    with ui.Progress(title) as progress:

        def look() -> None:
            while not ended.wait(LOOK_SECONDS):
                done = min(hubs.bytes_in(folder), total)
                progress.line(f"[{done // 1_000_000}/{max(1, total // 1_000_000)}]")

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def drop_partial(state: State, name: str) -> list[Path]:
    """Remove what was begun of a model and never finished."""
    gone = []
    for what in keeping.unfinished(state):
        if name.lower() in (
            str(what.get("id")).lower(),
            str(what.get("id")).lower().split("/")[-1],
        ):
            entry = store.place(state, str(what["hub"]), str(what["id"]), str(what["revision"]))
            path = keeping.partial(state, entry)
            shutil.rmtree(path, ignore_errors=True)
            path.with_name(path.name + ".lock").unlink(missing_ok=True)
            gone.append(path)
    return gone
