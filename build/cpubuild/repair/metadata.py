"""The metadata that vLLM asks for: the name vllm, a version with cpu, and a RECORD that is true."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

from cpubuild.repair.store import Change


def cpu_version(version: str) -> str:
    """``version`` with cpu in its local part."""
    parsed = Version(version)
    if parsed.local and "cpu" in parsed.local:
        return version
    return f"{version}.cpu" if parsed.local else f"{version}+cpu"


def folder_name(version: str) -> str:
    """The metadata folder of vllm."""
    return f"vllm-{version}.dist-info"


def renamed(
    folder: Path, new: Path, version: str, files: Mapping[str, bytes | None]
) -> list[Change]:
    """The changes that turn a metadata folder into vllm's, ``files`` as in ``record``."""
    changes = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        content = path.read_bytes()
        target = new / path.relative_to(folder)
        if path == folder / "METADATA":
            content = named(content, version)
            files = {**files, f"{new.name}/METADATA": content}
        if path != folder / "RECORD":
            changes.append(Change(path=target, content=content))
        if target != path:
            changes.append(Change(path=path, content=None))
    text = (folder / "RECORD").read_text(encoding="utf-8")
    content = record(text, files, folder.name, new.name).encode()
    return [*changes, Change(path=new / "RECORD", content=content)]


def named(metadata: bytes, version: str) -> bytes:
    """METADATA with name and version changed in its head, the text below untouched."""
    head, blank, rest = metadata.partition(b"\n\n")
    head = re.sub(rb"(?m)^Name: .*$", b"Name: vllm", head, count=1)
    head = re.sub(rb"(?m)^Version: .*$", b"Version: " + version.encode(), head, count=1)
    return head + blank + rest


def record(text: str, files: Mapping[str, bytes | None], old: str = "", new: str = "") -> str:
    """RECORD made true: ``files`` holds the new content by path (None: gone, empty: not known).

    Paths below the folder ``old`` become paths below ``new``.
    """
    rows = []
    for given in csv.reader(io.StringIO(text)):
        row = list(given)
        if row and old and row[0].startswith(old + "/"):
            row[0] = new + row[0][len(old) :]
        if row and row[0] in files:
            content = files[row[0]]
            if content is None:
                continue
            if len(row) == 3 and row[1]:
                row[1:] = [record_hash(content), str(len(content))] if content else ["", ""]
        rows.append(row)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def record_hash(content: bytes) -> str:
    """The hash of a file's content as RECORD has it."""
    value = hashlib.sha256(content).digest()
    return "sha256=" + base64.urlsafe_b64encode(value).rstrip(b"=").decode()
