"""The hubs through their own clients: what a revision holds, and its files into a folder."""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from cpubuild import run
from cpubuild.errors import ExitCode, fail
from cpubuild.models import failures, names
from cpubuild.sidecar import place, sidecar, whole
from cpubuild.state import State
from cpubuild.verify import hub
from cpubuild.verify.target import read_document

SIDECAR = "models"
REQUIREMENTS = ("huggingface_hub>=1.0", "modelscope>=1.38", "tokenizers>=0.21")
HF, MODELSCOPE, GIT = "hf", "modelscope", "git"
HUBS = (HF, MODELSCOPE, GIT)
LIST_SECONDS = 300.0
FETCH_SECONDS = 24 * 3600.0
TOKENIZER_SECONDS = 300.0
# What would turn the clients away from the hub or hide what they say.
DROPPED = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "VIRTUAL_ENV")
SET = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class HubFile:
    """A file of a revision; ``size`` in bytes, hashes in hex, None where the hub names none.

    ``sha1`` is git's hash of a small file.
    """

    path: str
    size: int | None
    sha256: str | None = None
    sha1: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """What a revision holds; ``commit`` None: the hub names none."""

    hub: str
    id: str
    endpoint: str
    asked: str | None
    commit: str | None
    files: tuple[HubFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files whose size is known."""
        return sum(f.size or 0 for f in self.files)


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """The clients' interpreter and the surroundings they run in; ``folder`` for their documents.

    Nothing of it is logged: the environment may hold a token.
    """

    python: Path
    environ: Mapping[str, str]
    folder: Path

    def ask(self, action: str, options: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Run one action of the probe; its document, which may be one of an error."""
        self.folder.mkdir(parents=True, exist_ok=True)
        asked, out = self.folder / f"{action}.options.json", self.folder / f"{action}.json"
        asked.write_text(json.dumps(options), encoding="utf-8")
        out.unlink(missing_ok=True)
        script = resources("cpubuild.probe").joinpath("hub_client.py")
        argv = [str(self.python), "-I", str(script), action, str(asked), str(out)]
        env = surroundings(self.environ)
        done = run.capture(argv, env=env, cwd=self.folder, timeout=timeout)
        document = read_document(out)
        if document is None:
            said = (done.stderr.strip().splitlines() or [""])[-1]
            message = f"{done.describe_end()}: {said}"
            return {"error": {"kind": "other", "type": "the client", "message": message}}
        return document


def surroundings(environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment for a hub's client."""
    kept = {k: v for k, v in environ.items() if k not in DROPPED and not k.startswith("PYTHON")}
    return kept | SET


def open_client(state: State, environ: Mapping[str, str], *, folder: Path, offline: bool) -> Client:
    """The clients, installed into an environment of their own where they are not yet."""
    python = sidecar(state, SIDECAR, REQUIREMENTS, folder=folder, offline=offline)
    return Client(python=python, environ=environ, folder=folder / "hub")


def existing_client(state: State, environ: Mapping[str, str]) -> Client | None:
    """The clients, if their environment is there already."""
    env = place(state, SIDECAR, REQUIREMENTS)
    if not whole(env):
        return None
    folder = state.new_run("model") / "hub"
    return Client(python=env / "bin" / "python", environ=environ, folder=folder)


def preferred(given: str | None, environ: Mapping[str, str]) -> str:
    """The hub that was asked for; else the one that vLLM's own variable names."""
    if given is None:
        return MODELSCOPE if hub.wants_modelscope(environ) else HF
    if given not in HUBS:
        raise fail(
            ExitCode.SETTINGS,
            f"--from {given} is no hub",
            remedy=(f"give one of {', '.join(HUBS)}",),
        )
    return given


def endpoint(hub_name: str, environ: Mapping[str, str]) -> str:
    """Where a hub's client will ask, by the hub's own variables; for messages."""
    if hub_name == MODELSCOPE:
        named = environ.get("MODELSCOPE_ENDPOINT") or environ.get("MODELSCOPE_DOMAIN")
        return named or "https://www.modelscope.cn"
    return (environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def listing(client: Client, hub_name: str, asked: names.Reference) -> Listing:
    """What the revision holds, as far as it is wanted; DOWNLOAD if the hub does not say."""
    options = {"id": asked.id, "revision": asked.revision}
    where = endpoint(hub_name, client.environ)
    document = client.ask(f"list-{hub_name}", options, LIST_SECONDS)
    if "error" in document:
        raise failures.explained(document["error"], hub_name, asked, where)
    found = tuple(
        HubFile(
            path=str(row["path"]),
            size=row.get("size"),
            sha256=row.get("sha256"),
            sha1=row.get("sha1"),
        )
        for row in document["files"]
    )
    return Listing(
        hub=hub_name,
        id=str(document["id"]),
        endpoint=str(document["endpoint"]),
        asked=asked.revision,
        commit=document["commit"],
        files=wanted(found, asked),
    )


def wanted(found: Sequence[HubFile], asked: names.Reference) -> tuple[HubFile, ...]:
    """The files that a model is made of; DOWNLOAD if the repository holds no such model."""
    patterns = names.table()["files"]["wanted"]
    kept = tuple(f for f in found if any(fnmatch.fnmatch(f.path, p) for p in patterns))
    kept = tuple(f for f in kept if "/" not in f.path and f.path not in ("", ".", ".."))
    if any(f.path.endswith(".safetensors") for f in kept):
        return kept
    others = sorted({Path(f.path).suffix for f in found} & {".bin", ".pt", ".pth", ".gguf"})
    raise fail(
        ExitCode.DOWNLOAD,
        f"{asked.id} holds no *.safetensors"
        + (f", only weights as {', '.join(others)}" if others else ""),
        why="only safetensors files can be checked before they are loaded",
        remedy=("take another repository of the same model",),
    )


def fetch(client: Client, what: Listing, folder: Path) -> None:
    """Bring the files of a listing into ``folder``, going on from what is there; DOWNLOAD."""
    revision = what.commit or what.asked
    options = {
        "id": what.id,
        "revision": revision,
        "folder": str(folder),
        "files": [{"path": f.path, "size": f.size, "sha256": f.sha256} for f in what.files],
    }
    document = client.ask(f"fetch-{what.hub}", options, FETCH_SECONDS)
    if "error" in document:
        asked = names.Reference(id=what.id, revision=revision)
        raise failures.explained(
            document["error"], what.hub, asked, what.endpoint, kept=bytes_in(folder)
        )


def bytes_in(folder: Path) -> int:
    """Bytes of all files below a folder that is being written to."""
    total = 0
    for here, _, found in os.walk(folder):
        for name in found:
            try:
                total += (Path(here) / name).stat().st_size
            except OSError:  # it has just become another
                continue
    return total
