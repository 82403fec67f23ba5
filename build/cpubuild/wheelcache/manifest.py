"""An entry's manifest: written for others, and read with suspicion."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from cpubuild import jsonio
from cpubuild.wheelcache.model import RefusalError

KEY = re.compile(r"[0-9a-f]{8,64}")
DIGEST = re.compile(r"[0-9a-f]{64}")
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}\.whl")
LARGEST = 8 << 30
SHOWN = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What an entry says of its wheel, after every check that needs no wheel; size in bytes."""

    file: str
    size: int
    sha256: str


def render(manifest: Mapping[str, Any]) -> bytes:
    """The manifest as published: JSON in ASCII, so that its bytes are the same to everybody."""
    return (json.dumps(jsonio.plain(dict(manifest)), indent=2) + "\n").encode("ascii")


def read(raw: bytes) -> dict[str, Any]:
    """The JSON object in ``raw``; RefusalError if it is none."""
    try:
        value = json.loads(raw.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise RefusalError("damaged", f"the manifest is not JSON: {shown(str(error))}") from error
    if not isinstance(value, dict):
        raise RefusalError("damaged", f"the manifest is a JSON {type(value).__name__}")
    return value


def checked(raw: bytes, key: str, inputs: Mapping[str, Any]) -> Manifest:
    """Read a manifest and hold it against what was asked for; RefusalError where it differs."""
    value = read(raw)
    theirs = value.get("inputs")
    if not isinstance(theirs, dict) or jsonio.fingerprint(theirs) != jsonio.fingerprint(inputs):
        rows = differences(theirs if isinstance(theirs, dict) else {}, inputs)
        raise RefusalError("wrong-key", f"it lies at {key}, but {'; '.join(rows[:3])}")
    size, digest = value.get("size"), value.get("sha256")
    if type(size) is not int or not 0 < size <= LARGEST:
        raise RefusalError("damaged", f"the manifest's size is {shown(size)}")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise RefusalError("damaged", f"the manifest's sha256 is {shown(digest)}")
    return Manifest(file=wheel_name(value.get("file"), inputs), size=size, sha256=digest)


def wheel_name(name: object, inputs: Mapping[str, Any]) -> str:
    """``name`` if it is a plain file name of a CPU wheel of the release, else RefusalError."""
    wanted = f"vllm-{inputs.get('vllm')}+cpu-"
    text = name if isinstance(name, str) else ""
    try:
        fits = bool(SAFE_NAME.fullmatch(text)) and text.startswith(wanted)
        fits = fits and parse_wheel_filename(text)[0] == "vllm"
    except InvalidWheelFilename:
        fits = False
    if not fits:
        raise RefusalError("damaged", f"the file is named {shown(name)}, not {wanted}*.whl")
    return text


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """The inputs that differ, one in a line; what comes from a store is shown quoted and short."""
    mine = jsonio.plain(dict(ours))
    return [
        f"{shown(name)[1:-1]}: {shown(theirs.get(name, 'none'))} there, "
        f"{mine.get(name, 'none')!r} here"
        for name in sorted(mine.keys() | theirs.keys())
        if theirs.get(name) != mine.get(name)
    ]


def shown(value: object) -> str:
    """Foreign text for a message: quoted, printable, short."""
    text = ascii(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 4] + "...'"
