"""What a shared wheel cache is: a store of named bytes, and how asking it can come out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

from cpubuild.findings import Finding, Status

Mode = Literal["read", "read-write"]

MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"
MANIFEST_LIMIT = 1 << 20
SIGNATURE_LIMIT = 1 << 16
CHUNK = 1 << 16


class Trouble(StrEnum):
    """Why a store did not do what it was asked for."""

    UNREACHABLE = "unreachable"
    DENIED = "denied"
    FAILED = "failed"


class StoreError(Exception):
    """A store did not answer, refused, or answered with what no store may answer."""

    def __init__(self, trouble: Trouble, text: str) -> None:
        super().__init__(text)
        self.trouble = trouble


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """The bytes of an object from ``start`` on; 0 where the store cannot begin elsewhere."""

    start: int
    chunks: Iterator[bytes]


class Store(Protocol):
    """Named bytes that several hosts share; paths are relative, with ``/``.

    Every method raises StoreError. ``None`` always means that the store answered and has no such
    object, never that it could not be asked.
    """

    @property
    def name(self) -> str:
        """The store in words, without credentials."""

    @property
    def writable(self) -> bool:
        """Whether it was opened with mode ``read-write``."""

    @property
    def remote(self) -> bool:
        """Whether asking it opens a connection."""

    def read(self, path: str, limit: int) -> bytes | None:
        """All bytes of a small object; one of more than ``limit`` bytes is an error."""

    def stream(self, path: str, start: int) -> AbstractContextManager[Body | None]:
        """The bytes of a large object, from ``start`` on where the store can."""

    def write(self, path: str, content: bytes | Path, *, only_new: bool) -> bool:
        """Write an object whole or not at all; False if it is there and ``only_new``."""

    def keys(self) -> tuple[str, ...]:
        """The keys of the entries, as far as the store knows them; nothing here is verified."""

    def note(self, key: str) -> None:
        """Remember ``key`` for ``keys`` where the store cannot list by itself."""

    def close(self) -> None:
        """Let go of what the store holds open."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """A wheel that was taken from the store into ``folder``; ``authority`` says who vouches."""

    folder: Path
    wheel: Path
    store: str
    authority: str
    manifest_sha256: str
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """The entry, or the store, was not used; the finding says why, and the build can go on.

    ``replaceable``: the entry itself is at fault, so an own build may take its place.
    """

    finding: Finding
    replaceable: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """The entry is in the store; ``already``: somebody else's is there and was left as it is.

    ``signed``: this run signed it.
    """

    key: str
    store: str
    manifest_sha256: str
    signed: bool
    already: bool


class RefusalError(Exception):
    """Ends a fetch or a publication with a finding; never leaves this package."""

    def __init__(self, reason: str, found: str, *, evidence: tuple[str, ...] = ()) -> None:
        super().__init__(found)
        self.reason = reason
        self.found = found
        self.evidence = evidence

    def refused(self, store: str) -> Refused:
        """The outcome for the caller."""
        known = REASONS[self.reason]
        finding = Finding(
            id=f"wheelcache.{self.reason}",
            status=Status.UNKNOWN if known.unknown else Status.WARN,
            title=f"{known.title}: {store}",
            found=self.found,
            needed=known.needed,
            why=known.why,
            remedy=known.remedy,
            evidence=self.evidence,
        )
        return Refused(finding=finding, replaceable=known.replaceable)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """The words of one reason to refuse."""

    title: str
    needed: str
    why: str
    remedy: tuple[str, ...]
    replaceable: bool = False
    unknown: bool = False


WITHOUT = "without it a wheel is compiled here, and a finished one stays in this host's own cache"
WAY_IN = "a shared cache is a way into every host that reads it; the wheel is compiled here instead"
REASONS: dict[str, Reason] = {
    "unreachable": Reason(
        title="the shared wheel cache did not answer",
        needed="an answer in time",
        why=WITHOUT,
        remedy=("look at the store's address, the network and the proxy settings",),
        unknown=True,
    ),
    "denied": Reason(
        title="the shared wheel cache refuses access",
        needed="the right to read (for mode read-write: and to write)",
        why=WITHOUT + "; S3 answers like this also for what is not there, where the right to list "
        "is missing",
        remedy=(
            "for HTTP set CPUBUILD_CACHE_TOKEN or ~/.netrc, for S3 the AWS_ variables or profile",
            "for a folder: ls -ld FOLDER",
        ),
        unknown=True,
    ),
    "failed": Reason(
        title="the shared wheel cache answers wrongly",
        needed="a store as docs/wheel-cache.md describes it",
        why="its answer cannot be used; the wheel is compiled here instead",
        remedy=("look at the store with its own tools",),
        replaceable=True,
    ),
    "unsigned": Reason(
        title="an entry of the shared wheel cache has no signature",
        needed="a signature by a trusted signer, or the manifest's sha256 in the trust file",
        why=WAY_IN,
        remedy=(
            "publish it with wheel_cache_key set",
            "or, if you know where it comes from, add the line sha256:... to the trust file",
        ),
        replaceable=True,
    ),
    "untrusted": Reason(
        title="an entry of the shared wheel cache is not signed by anyone trusted here",
        needed="a signature that a line of the trust file vouches for",
        why=WAY_IN,
        remedy=("if its signer is to be trusted, add the signer's public key to the trust file",),
        replaceable=True,
    ),
    "revoked": Reason(
        title="an entry of the shared wheel cache is revoked by the trust file",
        needed="a manifest that is not revoked",
        why=WAY_IN,
        remedy=("remove the entry from the store",),
        replaceable=True,
    ),
    "no-trust": Reason(
        title="nobody is trusted to fill the shared wheel cache",
        needed="a trust file with at least one signer or one manifest's sha256",
        why=WAY_IN,
        remedy=("name the trust file: CPUBUILD_WHEEL_CACHE_TRUST=FILE",),
    ),
    "no-verifier": Reason(
        title="signatures of the shared wheel cache cannot be verified on this host",
        needed="ssh-keygen, of OpenSSH 8.2 or newer",
        why=WAY_IN,
        remedy=(
            "install OpenSSH's client (openssh-client, openssh-clients)",
            "or pin the manifest: a line sha256:... in the trust file",
        ),
    ),
    "wrong-key": Reason(
        title="an entry of the shared wheel cache is for other inputs",
        needed="a manifest whose inputs are exactly this build's",
        why="a wheel for other inputs may crash or be slow here; " + WAY_IN,
        remedy=("remove the entry from the store",),
        replaceable=True,
    ),
    "damaged": Reason(
        title="an entry of the shared wheel cache is not whole",
        needed="a manifest and a wheel that agree in name, size and sha256",
        why=WAY_IN,
        remedy=("remove the entry from the store, or publish it again",),
        replaceable=True,
    ),
    "local": Reason(
        title="a wheel of the shared cache could not be kept here",
        needed="room and the right to write below the state root",
        why="the wheel is compiled here instead, which needs both as well",
        remedy=("df -h STATE", "ls -ld STATE/wheels"),
    ),
    "not-published": Reason(
        title="the wheel was not published to the shared cache",
        needed="a whole wheel, mode read-write, and a key to sign with",
        why="it is in this host's own cache; other hosts will compile it again",
        remedy=("set wheel_cache_mode to read-write and wheel_cache_key to a private key",),
    ),
}


def from_store(error: StoreError) -> RefusalError:
    """The refusal for a store that did not do what it was asked for."""
    return RefusalError(error.trouble.value, str(error))
