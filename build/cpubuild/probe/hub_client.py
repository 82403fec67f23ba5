"""Ask a hub through its own client: what a revision holds, and its files; try a tokenizer.

Runs in an environment that has the clients: ``hub_client.py ACTION OPTIONS OUT``, both JSON files.
A failure is a document too: its kind, and what the client said.
"""

from __future__ import annotations

import errno
import importlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

WORKERS = 4
SAID = 600
OUT_OF_RANGE = 416
# The clients' own exceptions by name: their modules differ between releases.
KINDS = {
    "gated": ("GatedRepoError", "PermissionDeniedError", "AuthenticationError"),
    "revision": ("RevisionNotFoundError",),
    "absent": ("RepositoryNotFoundError", "NotExistError", "EntryNotFoundError"),
    "hash": ("FileIntegrityError",),
    "size": ("FileSizeMismatchError",),
    "network": (
        "ConnectError",
        "ConnectTimeout",
        "ConnectionError",
        "LocalEntryNotFoundError",
        "NetworkError",
        "OfflineModeIsEnabled",
        "ReadTimeout",
        "TimeoutException",
        "TransportError",
    ),
}
STATUSES = {401: "gated", 403: "gated", 404: "absent", 451: "gated"}


def list_huggingface(options: dict[str, Any]) -> dict[str, Any]:
    """The commit that a revision names, and its files with sizes and hashes."""
    client: Any = importlib.import_module("huggingface_hub")
    info = client.HfApi().model_info(
        options["id"], revision=options["revision"] or "main", files_metadata=True
    )
    files = [
        {
            "path": row.rfilename,
            "size": row.size,
            "sha256": (row.lfs or {}).get("sha256"),
            "sha1": None if row.lfs else row.blob_id,
        }
        for row in info.siblings or []
    ]
    endpoint = client.constants.ENDPOINT
    return {"endpoint": endpoint, "id": info.id, "commit": info.sha, "files": files}


def list_modelscope(options: dict[str, Any]) -> dict[str, Any]:
    """The files of a revision; its commit is the newest one that touched any of them."""
    client: Any = importlib.import_module("modelscope_hub")
    endpoint = client.HubApi().resolve_endpoint_for_read(options["id"])
    api = client.HubApi(endpoint=endpoint)
    revision = options["revision"] or "master"
    rows = api.legacy.list_repo_files(options["id"], "model", revision=revision)
    blobs = [row for row in rows if row.get("Type") != "tree"]
    newest: dict[str, Any] = max(
        blobs, key=lambda row: int(row.get("CommittedDate") or 0), default={}
    )
    files = [
        {"path": row["Path"], "size": row.get("Size"), "sha256": row.get("Sha256") or None}
        for row in blobs
    ]
    commit = newest.get("Revision") or None
    return {"endpoint": endpoint, "id": options["id"], "commit": commit, "files": files}


def fetch_huggingface(options: dict[str, Any]) -> dict[str, Any]:
    """Fetch the named files of a commit into a folder; what is there is not fetched again."""
    client: Any = importlib.import_module("huggingface_hub")

    def one(row: dict[str, Any]) -> None:
        if row["sha256"] and row["size"]:
            resumed(client, options, row)
            return
        client.hf_hub_download(
            options["id"], row["path"], revision=options["revision"], local_dir=options["folder"]
        )

    with ThreadPoolExecutor(WORKERS) as pool:
        waiting = [pool.submit(one, row) for row in options["files"]]
        for future in waiting:
            future.result()
    return {"folder": options["folder"]}


def resumed(client: Any, options: dict[str, Any], row: dict[str, Any]) -> None:
    """Fetch a large file with the client's own transport, going on from what an earlier run left.

    hf_hub_download throws away what is unfinished when its process ends
    (https://github.com/huggingface/huggingface_hub/pull/4228).
    """
    folder, size = Path(options["folder"]), int(row["size"])
    target, part = folder / row["path"], folder / ".cache" / f"{row['sha256']}.part"
    if target.is_file() and target.stat().st_size == size:
        return
    part.parent.mkdir(parents=True, exist_ok=True)
    if part.is_file() and part.stat().st_size > size:
        part.unlink()
    transport: Any = importlib.import_module("huggingface_hub.file_download")
    url = client.hf_hub_url(options["id"], row["path"], revision=options["revision"])
    headers = client.utils.build_hf_headers()
    try:
        with part.open("ab") as sink:
            if (have := sink.tell()) < size:
                transport.http_get(url, sink, resume_size=have, headers=headers, expected_size=size)
    except OSError as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if kind_of(error) == "size" or status == OUT_OF_RANGE:
            part.unlink()  # nothing can go on from it
        raise
    part.replace(target)


def fetch_modelscope(options: dict[str, Any]) -> dict[str, Any]:
    """Fetch the named files of a revision into a folder."""
    client: Any = importlib.import_module("modelscope")
    client.snapshot_download(
        options["id"],
        revision=options["revision"],
        local_dir=options["folder"],
        allow_patterns=[row["path"] for row in options["files"]],
        max_workers=WORKERS,
    )
    return {"folder": options["folder"]}


def tokenizer(options: dict[str, Any]) -> dict[str, Any]:
    """Encode and decode texts with the model's tokenizer, and count what it knows."""
    folder = Path(options["folder"])
    if (folder / "tokenizer.json").is_file():
        tokenizers: Any = importlib.import_module("tokenizers")
        fast = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        pairs = [(t, fast.encode(t, add_special_tokens=False).ids) for t in options["texts"]]
        back = [(t, ids, fast.decode(ids, skip_special_tokens=False)) for t, ids in pairs]
        client = f"tokenizers {tokenizers.__version__}"
        size = fast.get_vocab_size(with_added_tokens=True)
    else:
        transformers: Any = importlib.import_module("transformers")
        slow = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        pairs = [(t, slow.encode(t, add_special_tokens=False)) for t in options["texts"]]
        back = [(t, ids, slow.decode(ids)) for t, ids in pairs]
        client, size = f"transformers {transformers.__version__}", len(slow)
    rows = [{"text": t, "tokens": len(ids), "back": b} for t, ids, b in back]
    highest = max((i for _, ids in pairs for i in ids), default=0)
    return {"client": client, "size": size, "highest": highest, "texts": rows}


ACTIONS = {
    "list-hf": list_huggingface,
    "list-modelscope": list_modelscope,
    "fetch-hf": fetch_huggingface,
    "fetch-modelscope": fetch_modelscope,
    "tokenizer": tokenizer,
}


def failure(error: BaseException) -> dict[str, Any]:
    """The kind of a failure, by what raised it and by what that came from."""
    failed = getattr(error, "failed_files", None)
    if failed:  # one of modelscope's files names the cause of all
        name, first = next(iter(failed.items()))
        return {**failure(first), "file": name}
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    kinds = [kind for kind in map(kind_of, chain) if kind]
    first = chain[0]
    return {
        "kind": kinds[0] if kinds else "other",
        "type": type(first).__name__,
        "message": " ".join(str(first).split())[:SAID],
    }


def kind_of(error: BaseException) -> str | None:
    """What kind of failure one exception is."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "space"
    if isinstance(error, OSError) and "Consistency check failed" in str(error):
        return "size"
    if isinstance(error, ImportError):
        return "client"
    names = [c.__name__ for c in type(error).__mro__]
    for name in names:
        for kind, of in KINDS.items():
            if name in of:
                return kind
    status = getattr(getattr(error, "response", None), "status_code", None)
    return STATUSES.get(status) if isinstance(status, int) else None


def main(action: str, options: str, out: str) -> None:
    """Carry out an action and write its document."""
    asked = json.loads(Path(options).read_text(encoding="utf-8"))
    try:
        document = ACTIONS[action](asked)
    except Exception as error:
        document = {"error": failure(error)}
    part = Path(out + ".part")
    part.write_text(json.dumps(document), encoding="utf-8")
    part.replace(out)


if __name__ == "__main__":
    main(*sys.argv[1:4])
