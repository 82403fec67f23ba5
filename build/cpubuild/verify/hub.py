"""Find a model by its hub id: in the cache of a hub, else through the hub's own client."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cpubuild.verify import modelfiles
from cpubuild.verify.crash import first_error
from cpubuild.verify.target import Target

ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUGGINGFACE, MODELSCOPE = "Hugging Face", "ModelScope"


@dataclass(frozen=True, kw_only=True, slots=True)
class Located:
    """Where a model lies and how that is known; ``folder`` None: nowhere, and ``said`` why."""

    folder: Path | None
    said: str
    remedy: tuple[str, ...] = ()


def locate(model: str | Path, target: Target) -> Located:
    """A folder as it is; a hub id by the hubs' caches, then by the client in the target.

    A folder wins over an id of the same spelling, as it does in vLLM. A cached model that is not
    whole is asked for again; when the hub does not answer, what is there is what is judged.
    """
    path = Path(model).expanduser()
    name = str(model)
    if path.is_dir() or not ID.fullmatch(name):
        return Located(folder=path.absolute(), said=f"the folder {path}")
    cached = next(in_caches(name, target.environ), None)
    if cached is not None and not modelfiles.problems(cached)[0]:
        return Located(folder=cached, said=f"{name} in the cache: {cached}")
    fetched = fetch(name, target)
    if fetched.folder is None and cached is not None:
        return Located(folder=cached, said=f"{name}, not whole, in the cache: {cached}")
    return fetched


def wants_modelscope(environ: Mapping[str, str]) -> bool:
    """Whether the environment names ModelScope, by vLLM's own variable."""
    return environ.get("VLLM_USE_MODELSCOPE", "").strip().lower() in ("1", "true")


def in_caches(name: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """The folders of a model in the caches of both hubs, the preferred hub's first."""
    hubs = [huggingface(name, environ), modelscope(name, environ)]
    if wants_modelscope(environ):
        hubs.reverse()
    for hub in hubs:
        yield from hub


def home(environ: Mapping[str, str]) -> Path:
    """The folder for caches of whoever asks."""
    named = environ.get("XDG_CACHE_HOME")
    return Path(named) if named else Path(environ.get("HOME", "~")).expanduser() / ".cache"


def huggingface_cache(environ: Mapping[str, str]) -> Path:
    """Where huggingface_hub keeps models."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(variable):
            return Path(environ[variable]).expanduser()
    named = environ.get("HF_HOME")
    return (Path(named).expanduser() if named else home(environ) / "huggingface") / "hub"


def huggingface(name: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """The snapshot that refs/main names, or the only one there is."""
    root = huggingface_cache(environ) / ("models--" + name.replace("/", "--"))
    try:
        found = [root / "snapshots" / (root / "refs" / "main").read_text("utf-8").strip()]
    except OSError:
        found = sorted(root.glob("snapshots/*"))
        found = found if len(found) == 1 else []
    yield from (p for p in found if p.is_dir())


def modelscope_cache(environ: Mapping[str, str]) -> Path:
    """Where modelscope keeps models."""
    named = environ.get("MODELSCOPE_CACHE")
    # modelscope does not look at XDG_CACHE_HOME
    own = Path(environ.get("HOME", "~")).expanduser() / ".cache" / "modelscope" / "hub"
    return Path(named).expanduser() if named else own


def modelscope(name: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """The model's folder; some releases write a dot as three underscores."""
    root = modelscope_cache(environ)
    owner, _, short = name.partition("/")
    for folder in (root / "models", root / "hub" / "models", root):
        for spelled in dict.fromkeys((short, short.replace(".", "___"))):
            if (folder / owner / spelled).is_dir():
                yield folder / owner / spelled


def fetch(name: str, target: Target) -> Located:
    """Ask the hub for the model, with the client that the target environment has."""
    hub = MODELSCOPE if wants_modelscope(target.environ) else HUGGINGFACE
    done, document = target.fetch({"hub": hub.lower().replace(" ", ""), "model": name})
    if document is not None and "error" not in document:
        folder = Path(str(document["folder"]))
        return Located(folder=folder, said=f"{name} from {hub} ({document['client']}): {folder}")
    error = (document or {}).get("error") or {}
    root, _ = first_error(str(error.get("traceback", "")).splitlines())
    said = root or f"{error.get('type')}: {error.get('message')}"
    if document is None:
        said = done.describe_end()
    caches = f"{huggingface_cache(target.environ)}; {modelscope_cache(target.environ)}"
    return Located(
        folder=None,
        said=f"{name} is no folder here, is not in the caches ({caches}), and {hub} did not give "
        "it: " + " ".join(said.split())[:300],
        remedy=(
            "give a folder: --model FOLDER (config.json, a tokenizer, *.safetensors)",
            f"fetch it where there is a network (hf download {name} --local-dir FOLDER), copy it",
            "name a mirror in HF_ENDPOINT, or VLLM_USE_MODELSCOPE=True with modelscope installed "
            "in the environment that is verified",
        ),
    )
