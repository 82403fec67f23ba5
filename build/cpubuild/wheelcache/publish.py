"""Give a finished wheel to a shared cache: contents first, the manifest that names them last."""

from __future__ import annotations

import contextlib
from hashlib import sha256
from pathlib import Path

from cpubuild import jsonio
from cpubuild.errors import CpuBuildError
from cpubuild.wheelcache.manifest import checked, render
from cpubuild.wheelcache.model import (
    MANIFEST,
    MANIFEST_LIMIT,
    SIGNATURE,
    Published,
    RefusalError,
    Refused,
    Store,
    StoreError,
    from_store,
)
from cpubuild.wheelcache.trust import sign


def publish_wheel(
    store: Store, folder: Path, *, signer: Path | None, replace: bool = False
) -> Published | Refused:
    """Publish the wheel folder of a state root (named by its key); never raises for the store.

    Without ``signer`` others take the entry only if they pin its manifest. An entry that is there
    is left alone unless ``replace``. Signature and wheel lie under the manifest's sha256, so two
    writers at once cannot mix theirs: whichever manifest is there names its own.
    """
    try:
        return _publish(store, folder, signer, replace=replace)
    except StoreError as error:
        return from_store(error).refused(store.name)
    except RefusalError as error:
        return error.refused(store.name)
    except CpuBuildError as error:
        problem = error.problems[0]
        return RefusalError("not-published", problem.what).refused(store.name)
    except OSError as error:
        text = f"{error.strerror or error} ({error.filename})"
        return RefusalError("not-published", text).refused(store.name)


def _publish(
    store: Store, folder: Path, signer: Path | None, *, replace: bool
) -> Published | Refused:
    if not store.writable:
        raise RefusalError("not-published", "the shared cache is opened with mode read")
    key = folder.name
    raw, wheel = own_entry(folder)
    digest = sha256(raw).hexdigest()

    there = None if replace else store.read(f"{key}/{MANIFEST}", MANIFEST_LIMIT)
    if there is not None:
        return _already(store, key, there)
    if signer is not None:
        # The small one first: a store that refuses writes says so before the wheel is sent.
        signature = sign(raw, signer)
        store.write(f"{key}/{digest}/{SIGNATURE}", signature, only_new=False)
    store.write(f"{key}/{digest}/{wheel.name}", wheel, only_new=False)
    won = store.write(f"{key}/{MANIFEST}", raw, only_new=not replace)
    with contextlib.suppress(StoreError):
        # The list of keys only serves to explain misses.
        store.note(key)
    if not won:
        return _already(store, key, store.read(f"{key}/{MANIFEST}", MANIFEST_LIMIT) or b"")
    return Published(
        key=key, store=store.name, manifest_sha256=digest, signed=signer is not None, already=False
    )


def _already(store: Store, key: str, raw: bytes) -> Published:
    digest = sha256(raw).hexdigest()
    return Published(key=key, store=store.name, manifest_sha256=digest, signed=False, already=True)


def own_entry(folder: Path) -> tuple[bytes, Path]:
    """The manifest to publish and the wheel it names, checked like somebody else's."""
    kept = jsonio.read(folder / MANIFEST)
    inputs = (kept or {}).get("inputs")
    if kept is None or not isinstance(inputs, dict):
        raise RefusalError("not-published", f"{folder} holds no finished wheel")
    if not folder.name or not jsonio.fingerprint(inputs).startswith(folder.name):
        raise RefusalError("not-published", f"{folder} is not named by its inputs")
    raw = render(kept)
    manifest = checked(raw, folder.name, inputs)
    wheel = folder / manifest.file
    if not wheel.is_file() or jsonio.sha256_of(wheel) != manifest.sha256:
        raise RefusalError("not-published", f"{wheel} is not the wheel that its manifest describes")
    return raw, wheel
