"""Judgements about the places that will be written to."""

from __future__ import annotations

from collections.abc import Iterator

from cpubuild.assess.base import Context, fine, state
from cpubuild.choose.tables import gib, needs_table, words
from cpubuild.facts.model import Disk
from cpubuild.findings import Finding, Status

SETTING = {"state": "--state FOLDER", "tmp": "export TMPDIR=FOLDER"}
CACHE_REMEDY = "export PIP_CACHE_DIR=FOLDER UV_CACHE_DIR=FOLDER"
SHARED = {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p"}


def wanted(ctx: Context, purpose: str) -> int:
    """Bytes that will be written for a purpose (state, tmp, cache)."""
    row = needs_table()["disk"]
    name = "state_full_gib" if purpose == "state" and ctx.needs.profile == "full" else ""
    return gib(row[name or f"{purpose}_gib"])


def place(ctx: Context, disk: Disk) -> Finding:
    """Whether one place is writable and large enough."""
    check = f"disk.{disk.purpose}"
    need = wanted(ctx, disk.purpose)
    found = f"{words(disk.free)} free in {disk.path} ({disk.filesystem or 'unknown filesystem'})"
    remedy = (f"{SETTING.get(disk.purpose, CACHE_REMEDY)}  # on a filesystem with room",)
    needed = f"{words(need)}, writable"
    if not disk.writable:
        why = "Nothing can be written there (read-only, or not this user's)."
        return state(check, Status.BLOCKER, found, needed=needed, why=why, remedy=remedy)
    if disk.free < need:
        return state(
            check,
            Status.WARN if disk.purpose == "cache" else Status.BLOCKER,
            found,
            needed=needed,
            why="The run would end with: No space left on device.",
            remedy=remedy,
        )
    if disk.purpose == "tmp" and disk.filesystem == "tmpfs":
        usable = ctx.facts.memory.usable
        if disk.free > usable // 2:
            return state(
                check,
                Status.OK,
                found,
                needed=needed,
                why="It is memory: what lies there is missing to compilers.",
            )
    if disk.purpose == "state" and disk.filesystem in SHARED:
        return state(
            check,
            Status.WARN,
            found,
            needed=needed,
            why="A network filesystem makes the compile slow, and its locks may not hold.",
            remedy=remedy,
        )
    return fine(check, found, needed=needed)


def places(ctx: Context) -> Iterator[Finding]:
    """Each place that was measured; what shares a filesystem is judged by the sum."""
    known = [disk for disk in ctx.facts.disks if disk.purpose in ("state", "tmp", "cache")]
    for purpose in ("state", "tmp"):
        if not any(disk.purpose == purpose for disk in known):
            yield state(f"disk.{purpose}", Status.UNKNOWN, "not measured")
    for disk in known:
        yield place(ctx, disk)


def inodes(ctx: Context) -> Iterator[Finding]:
    """Free inodes where environments are made."""
    least = needs_table()["disk"]["inodes"]
    for disk in ctx.facts.disks:
        if disk.purpose != "state" or disk.free_inodes is None:
            continue
        if disk.free_inodes < least:
            yield state(
                "disk.inodes",
                Status.BLOCKER,
                f"{disk.free_inodes} in {disk.path}",
                needed=f"{least}",
                why="An environment with torch holds tens of thousands of files; without inodes "
                "the system says No space left on device although bytes are free.",
                remedy=(SETTING["state"] + "  # on another filesystem",),
            )
        else:
            yield fine("disk.inodes", f"{disk.free_inodes} in {disk.path}", needed=f"{least}")


JUDGES = (places, inodes)
