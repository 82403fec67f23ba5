"""Why a shared cache has no wheel for this build: the nearest entry, and what differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cpubuild import jsonio
from cpubuild.wheelcache.manifest import differences, read
from cpubuild.wheelcache.model import (
    MANIFEST,
    MANIFEST_LIMIT,
    RefusalError,
    Store,
    StoreError,
)

MOST = 200


def explain_miss(store: Store, inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """Say which entry of ``store`` is nearest and which inputs differ, in lines.

    Reads at most ``MOST`` manifests. Nothing read here is verified: it is only shown.
    """
    best: tuple[int, str, list[str]] | None = None
    unread = 0
    try:
        keys = store.keys()
        for key in keys[:MOST]:
            theirs = _inputs(store, key)
            if theirs is None:
                unread += 1
                continue
            rows = differences(theirs, inputs)
            if best is None or len(rows) < best[0]:
                best = (len(rows), key, rows)
    except StoreError as error:
        return (f"the shared cache {store.name} cannot be looked through: {error}",)
    notes = [f"{unread} entries could not be read"] if unread else []
    if len(keys) > MOST:
        notes.append(f"only {MOST} of {len(keys)} entries were compared")
    if best is None:
        return (f"the shared cache {store.name} lists no wheel", *notes)
    if best[0] == 0:
        return (f"{best[1]} in the shared cache {store.name} has the same inputs", *notes)
    count = f"{best[0]} inputs differ"
    nearest = f"nearest wheel of the shared cache {store.name}: {best[1]}; {count}"
    return (nearest, *best[2], *notes)


def _inputs(store: Store, key: str) -> Mapping[str, Any] | None:
    raw = store.read(f"{key}/{MANIFEST}", MANIFEST_LIMIT)
    try:
        theirs = read(raw).get("inputs") if raw is not None else None
        if not isinstance(theirs, dict):
            return None
        jsonio.fingerprint(theirs)
    except (RefusalError, ValueError, RecursionError):
        return None
    return theirs
