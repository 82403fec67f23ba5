"""Who may fill a shared cache: a trust file, and signatures made and checked by ssh-keygen.

OpenSSH's signatures need no library, its keys are on hosts already (in files, agents or security
tokens), and its ``allowed_signers`` format knows expiry, namespaces and authorities.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cpubuild import run
from cpubuild.errors import CpuBuildError, ExitCode, Problem, fail
from cpubuild.wheelcache.model import RefusalError

NAMESPACE = "vllm-cpu-build"
PROGRAM = "ssh-keygen"
SECONDS = 20.0
PIN = re.compile(r"(?P<revoked>!)?sha256:(?P<digest>[0-9a-f]{64})")
KEY = re.compile(r"\s(?P<type>(?:sk-)?(?:ssh|ecdsa)-[\w@.-]+)\s+(?P<blob>[A-Za-z0-9+/]+={0,2})")
# Too old; or an account without a name, as in containers that run under a bare number.
NOT_ABLE = ("unknown option", "illegal option", "unsupported operation", "no user exists")
ARMOUR = b"-----BEGIN SSH SIGNATURE-----"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trust:
    """Whose entries are taken: ``signers`` are lines of OpenSSH's allowed_signers format.

    ``pins`` and ``revoked`` are sha256 values of manifests, taken without a signature and refused
    in spite of one. ``source`` names the file in messages.
    """

    signers: tuple[str, ...] = ()
    pins: frozenset[str] = frozenset()
    revoked: frozenset[str] = frozenset()
    source: str = "no trust file"

    @classmethod
    def load(cls, path: Path) -> Trust:
        """Read a trust file; one SETTINGS error names everything in it that cannot be read."""
        try:
            text = path.read_text(encoding="utf-8")
            mode = path.stat().st_mode
        except (OSError, UnicodeDecodeError) as error:
            raise fail(
                ExitCode.SETTINGS,
                f"the trust file {path} cannot be read: {error}",
                why="it says whose wheels are taken from the shared cache",
                remedy=("create it as docs/wheel-cache.md describes, or unset wheel_cache",),
            ) from error
        if mode & stat.S_IWOTH:
            raise fail(
                ExitCode.SETTINGS,
                f"the trust file {path} can be written by every user of this host",
                why="whoever can write it decides which code this host runs",
                remedy=(f"chmod o-w {path}",),
            )
        return parse(text, str(path))

    def authority(self, manifest: bytes, signature: Callable[[], bytes | None]) -> str:
        """Say who vouches for ``manifest``; RefusalError if nobody does.

        ``signature`` is only asked for if no pin decides. The bytes verified are exactly the bytes
        given, hence only ASCII: no text encoding between here and ssh-keygen can change it.
        """
        digest = sha256(manifest).hexdigest()
        if not self.signers and not self.pins:
            raise RefusalError("no-trust", f"{self.source} names neither signers nor manifests")
        if digest in self.revoked:
            raise RefusalError("revoked", f"manifest sha256:{digest} is revoked in {self.source}")
        if digest in self.pins:
            return f"manifest listed in {self.source}"
        if not manifest.isascii():
            raise RefusalError("damaged", "the manifest holds bytes that are not ASCII")
        signed = signature()
        if signed is None:
            raise RefusalError("unsigned", f"manifest sha256:{digest} has no signature")
        if not self.signers:
            raise RefusalError("untrusted", f"{self.source} lists manifests only, not this one")
        return f"signed by {verify(manifest, signed, self.signers)}"


def parse(text: str, source: str) -> Trust:
    """Read the lines of a trust file: signers, ``sha256:`` pins, ``!sha256:`` revocations."""
    signers: list[str] = []
    pins: dict[bool, set[str]] = {False: set(), True: set()}
    problems: list[Problem] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        pin = PIN.match(line)
        if pin and line[pin.end() :].lstrip()[:1] in ("", "#"):
            pins[bool(pin["revoked"])].add(pin["digest"])
        elif names_a_key(line):
            signers.append(line)
        else:
            problems.append(_unreadable(source, number, line))
    if not problems and not signers and not pins[False]:
        problems.append(
            Problem(
                what=f"the trust file {source} trusts nobody",
                why="no wheel of the shared cache could ever be taken",
                remedy=("add a signer or a manifest's sha256, or unset wheel_cache",),
                exit_code=ExitCode.SETTINGS,
            )
        )
    if problems:
        raise CpuBuildError(*problems)
    return Trust(
        signers=tuple(signers),
        pins=frozenset(pins[False]),
        revoked=frozenset(pins[True]),
        source=source,
    )


def _unreadable(source: str, number: int, line: str) -> Problem:
    return Problem(
        what=f"{source}, line {number}: {line[:60]!r} is neither a signer nor a manifest's sha256",
        why="a line that is not understood might have been meant to trust or to revoke somebody",
        remedy=(
            "a signer: NAME ssh-ed25519 AAAA...   # a name, then the public key",
            "a manifest: sha256:<64 hex digits>, revoked with ! before it",
        ),
        exit_code=ExitCode.SETTINGS,
    )


def names_a_key(line: str) -> bool:
    """Whether an allowed_signers line has principals and a public key that is one."""
    found = KEY.search(line)
    if found is None:
        return False
    try:
        blob = base64.b64decode(found["blob"], validate=True)
        (length,) = struct.unpack_from(">I", blob)
    except (binascii.Error, struct.error):
        return False
    return blob[4 : 4 + length] == found["type"].encode()


def verify(manifest: bytes, signature: bytes, signers: tuple[str, ...]) -> str:
    """Return the signer's name if a trusted key signed ``manifest``, else raise RefusalError."""
    if not signature.startswith(ARMOUR) or not signature.isascii():
        raise RefusalError("untrusted", "what lies there as a signature is none of OpenSSH's")
    with tempfile.TemporaryDirectory(prefix="cpubuild-verify-") as name:
        folder = Path(name)
        allowed, detached = folder / "allowed_signers", folder / "sig"
        allowed.write_text("\n".join(signers) + "\n", encoding="utf-8")
        detached.write_bytes(signature)
        files = ("-s", str(detached), "-f", str(allowed))
        found = _ssh_keygen("-Y", "find-principals", *files)
        said = [found.stderr]
        for principal in found.stdout.splitlines():
            asked = ("-I", principal, "-n", NAMESPACE)
            done = _ssh_keygen("-Y", "verify", *files, *asked, stdin=manifest.decode("ascii"))
            if done.ok:
                return principal
            said.append(done.stderr or done.stdout)
    lines = tuple(line for text in said for line in text.splitlines() if line.strip())
    known = "its signature does not fit the manifest, or not now" if len(said) > 1 else ""
    raise RefusalError(
        "untrusted", known or "its signer is not in the trust file", evidence=lines[:6]
    )


def sign(manifest: bytes, key: Path) -> bytes:
    """The detached signature of ``manifest`` by ``key``; a SETTINGS error if it cannot sign.

    ``key`` is a private key file without a passphrase, or a public one whose private half an
    agent holds.
    """
    done = run.capture(
        [PROGRAM, "-Y", "sign", "-f", str(key), "-n", NAMESPACE],
        env=_environment(),
        stdin=manifest.decode("ascii"),
        timeout=SECONDS,
    )
    signature = done.stdout.encode()
    if done.ok and signature.startswith(ARMOUR):
        return signature
    said = (done.stderr.strip().splitlines() or [done.describe_end()])[-1]
    raise fail(
        ExitCode.SETTINGS,
        f"the key {key} cannot sign: {said}",
        why="entries of the shared cache without a signature are refused by everybody",
        remedy=(
            f"chmod 600 {key}   # and no passphrase, or its .pub with the key in ssh-agent",
            f"ssh-keygen -t ed25519 -N '' -f {key}   # makes a new one",
        ),
    )


def _ssh_keygen(*arguments: str, stdin: str | None = None) -> run.Completed:
    done = run.capture([PROGRAM, *arguments], env=_environment(), stdin=stdin, timeout=SECONDS)
    if done.returncode == 127:
        raise RefusalError("no-verifier", f"{PROGRAM}: {done.stderr.strip()}")
    text = done.stderr.lower()
    if any(words in text for words in NOT_ABLE):
        raise RefusalError("no-verifier", f"{PROGRAM}: {done.stderr.strip().splitlines()[0]}")
    return done


def _environment() -> dict[str, str]:
    # No question may stop a run that nobody watches.
    return dict(os.environ) | {"LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"}
