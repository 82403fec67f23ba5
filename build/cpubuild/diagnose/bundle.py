"""Pack what a bug report needs: logs, facts and receipt, redacted."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cpubuild.diagnose.engine import diagnose_paths
from cpubuild.diagnose.inputs import log_files, read_lines
from cpubuild.diagnose.redact import redactor
from cpubuild.diagnose.render import render_diagnosis
from cpubuild.errors import ExitCode, fail

HEAD_LINES = 20_000
TAIL_LINES = 20_000
DOCUMENTS = (".json", ".toml")


def bundle(
    paths: Sequence[Path],
    out: Path,
    *,
    documents: Mapping[str, str] | None = None,
    names: Iterable[str] | None = None,
) -> Path:
    """Write a redacted tar.gz to ``out`` and return it.

    ``paths`` are logs and folders (of folders also the JSON and TOML documents, receipts among
    them); ``documents`` further texts by file name, such as the host's facts. ``names`` are words
    to remove; None means this user's and this host's. Environment files are left out.
    """
    redact = redactor(names)
    files = dict(documents or {})
    logs = log_files(paths)
    for number, path in enumerate((*logs, *_documents(paths)), start=1):
        files[f"{number:03d}-{path.parent.name or 'log'}-{path.name}"] = _text(path)
    diagnosis = diagnose_paths(logs)
    files["diagnosis.txt"] = "\n".join(render_diagnosis(diagnosis, verbose=True)) + "\n"
    files["diagnosis.json"] = json.dumps(diagnosis.to_json(), indent=1, ensure_ascii=False) + "\n"
    cleaned = {redact(name).replace("/", "_"): redact(text) for name, text in files.items()}
    return _write(out, cleaned)


def refuse_place(out: Path) -> None:
    """Raise a SETTINGS error for a place where the archive cannot be written; makes nothing."""
    if out.is_dir() or not out.parent.is_dir():
        why = "it is a folder" if out.is_dir() else f"there is no folder {out.parent}"
        raise fail(
            ExitCode.SETTINGS,
            f"--bundle {out} cannot be written: {why}",
            remedy=("name a file in a folder that is there", f"mkdir -p {out.parent}"),
        )


def _documents(paths: Sequence[Path]) -> list[Path]:
    inside = (p for path in paths if path.is_dir() for p in sorted(path.rglob("*")))
    return [p for p in inside if p.is_file() and p.suffix in DOCUMENTS]


def _text(path: Path) -> str:
    """A file's text; of a long one the head and the tail."""
    head: list[str] = []
    tail: list[str] = []
    left_out = 0
    for line in read_lines(path):
        if len(head) < HEAD_LINES:
            head.append(line)
            continue
        tail.append(line)
        if len(tail) > 2 * TAIL_LINES:
            left_out += len(tail) - TAIL_LINES
            tail = tail[-TAIL_LINES:]
    middle = [f"[{left_out} lines left out]"] if left_out else []
    return "\n".join([*head, *middle, *tail]) + "\n"


def _write(out: Path, files: Mapping[str, str]) -> Path:
    try:
        with (
            out.open("wb") as raw,
            gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for name in sorted(files):
                data = files[name].encode("utf-8", errors="replace")
                entry = tarfile.TarInfo(f"report/{name}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    except OSError as error:
        raise fail(
            ExitCode.SETTINGS,
            f"cannot write {out}: {error.strerror or error}",
            remedy=("name a file in a folder that can be written",),
        ) from error
    return out
