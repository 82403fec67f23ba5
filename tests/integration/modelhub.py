"""A small hub on loopback for the clients of Hugging Face and ModelScope, which fails as told."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.tinymodel import model_files
from werkzeug import Request, Response

COMMIT = "c0ffee" + "0" * 34
OWNER = "team/tiny-qwen"
LARGE = ".safetensors"


@dataclass
class Hub:
    """What the hub has and how it misbehaves.

    ``cuts``: how many answers for the large file end at its byte ``cut_at``; beyond ten million
    even Hugging Face's client has something to keep: that is its chunk. ``lies``: files that
    come with other content than was announced. ``refuses``: the status of every answer. ``hold``:
    an answer that will be cut waits for it before it ends.
    """

    files: dict[str, bytes] = field(default_factory=model_files)
    cuts: int = 0
    cut_at: int = 11_000_000
    lies: dict[str, bytes] = field(default_factory=dict)
    refuses: int | None = None
    hold: threading.Event | None = None
    error_code: str = ""
    ranges: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def answer(self, request: Request) -> Response:
        self.asked.append(f"{request.method} {request.path}")
        if self.refuses is not None:
            headers = {"X-Error-Code": self.error_code} if self.error_code else {}
            body = json.dumps({"Code": self.refuses, "Message": "refused", "error": "refused"})
            return Response(body, self.refuses, headers, content_type="application/json")
        path = request.path
        if path.startswith(f"/api/models/{OWNER}"):
            return self.huggingface(path)
        if path.startswith(f"/{OWNER}/resolve/"):
            return self.content(request, path.rpartition("/")[2])
        if path == f"/api/v1/models/{OWNER}/repo/files":
            return self.modelscope()
        if path == f"/api/v1/models/{OWNER}/repo":
            return self.content(request, request.args["FilePath"])
        body = {"Code": 404, "Message": "not found", "error": "Repository not found"}
        headers = {"X-Error-Code": "RepoNotFound"}
        return Response(json.dumps(body), 404, headers, content_type="application/json")

    def huggingface(self, path: str) -> Response:
        if "/revision/" in path and path.rpartition("/")[2] not in ("main", COMMIT):
            return Response("{}", 404, {"X-Error-Code": "RevisionNotFound"})
        siblings = []
        for name, content in self.files.items():
            row: dict[str, Any] = {
                "rfilename": name,
                "size": len(content),
                "blobId": git_sha1(content),
            }
            if name.endswith(LARGE):
                sha256 = hashlib.sha256(content).hexdigest()
                row["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 134}
            siblings.append(row)
        document = {"id": OWNER, "modelId": OWNER, "sha": COMMIT, "siblings": siblings}
        return Response(json.dumps(document), content_type="application/json")

    def modelscope(self) -> Response:
        rows = [
            {
                "Name": name,
                "Path": name,
                "Type": "blob",
                "Size": len(content),
                "Sha256": hashlib.sha256(content).hexdigest(),
                "Revision": COMMIT if name == "config.json" else "b" * 40,
                "CommittedDate": 1700000001 if name == "config.json" else 1700000000,
            }
            for name, content in self.files.items()
        ]
        body = {"Code": 200, "Data": {"Files": rows}, "Success": True}
        return Response(json.dumps(body), content_type="application/json")

    def content(self, request: Request, name: str) -> Response:
        announced = self.files[name]
        content = self.lies.get(name, announced)
        large = name.endswith(LARGE)
        etag = hashlib.sha256(announced).hexdigest() if large else git_sha1(announced)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        status, start = 200, 0
        if wanted := request.headers.get("Range"):
            self.ranges.append(f"{name} {wanted}")
            start = int(wanted.removeprefix("bytes=").partition("-")[0])
            if start >= len(content):
                return Response("", 416, {"Content-Range": f"bytes */{len(content)}"})
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            status = 206
        rest = content[start:]
        headers["Content-Length"] = str(len(rest))
        if large and self.cuts and request.method == "GET":
            self.cuts -= 1
            # The body ends before its announced length, and with it the connection.
            return Response(self.part_of(rest, start), status, headers)
        return Response(rest, status, headers)

    def part_of(self, rest: bytes, start: int) -> Iterator[bytes]:
        yield rest[: max(0, self.cut_at - start)]
        if self.hold is not None:
            self.hold.wait(60)


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
