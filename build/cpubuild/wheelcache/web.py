"""A store behind HTTP: GET reads, PUT writes, a bearer token opens."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cpubuild.sources.pipconfig import PipConfig
from cpubuild.sources.session import limits, open_session, passing, reason, retried
from cpubuild.wheelcache.manifest import KEY
from cpubuild.wheelcache.model import CHUNK, MANIFEST_LIMIT, Body, StoreError, Trouble

if TYPE_CHECKING:
    import requests

INDEX = "index.json"
ABSENT = (404, 410)
EXISTS = (409, 412)
NOT_CONDITIONAL = 501
MERGES = 4


def open_web(url: str, *, writable: bool, token: str | None, config: PipConfig) -> WebStore:
    """The store at ``url`` with pip's proxy and certificates; the token stays with its host."""
    session = open_session(config)
    if token:
        # As an authentication object, not as a header: it beats ~/.netrc, and requests drops it
        # when a redirect leads to another host.
        def bearer(request: requests.PreparedRequest) -> requests.PreparedRequest:
            request.headers["Authorization"] = f"Bearer {token}"
            return request

        session.auth = bearer
    return WebStore(url=url.rstrip("/"), writable=writable, session=session, config=config)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WebStore:
    """Objects below ``url``; writes need a server that takes PUT and makes folders by itself."""

    url: str
    writable: bool
    session: requests.Session
    config: PipConfig
    remote: bool = True

    @property
    def name(self) -> str:
        """The URL."""
        return self.url

    def read(self, path: str, limit: int) -> bytes | None:
        """All bytes of a small object, asked for again where that may help."""
        found = self._small(path, limit)
        return None if found is None else found[0]

    @contextlib.contextmanager
    def stream(self, path: str, start: int) -> Iterator[Body | None]:
        """The bytes of a large object by Range, from 0 on where the server knows no ranges."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._get(path, headers) as answer:
            if answer.status_code == 416:
                # What is here is as long or longer: from the beginning, the hash decides.
                start = 0
                with self._get(path, {}) as whole:
                    yield _body(whole, path, start)
                return
            partial = answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
            yield _body(answer, path, start if answer.status_code == 206 and partial else 0)

    def write(self, path: str, content: bytes | Path, *, only_new: bool) -> bool:
        """PUT with If-None-Match where only a new object is wanted and the server knows that."""
        headers = {"If-None-Match": "*"} if only_new else {}
        status = self._put(path, content, headers)
        if status == NOT_CONDITIONAL and only_new:
            if self.read(path, MANIFEST_LIMIT) is not None:
                return False
            status = self._put(path, content, {})
        if status in EXISTS:
            return False
        _accepted(status, path)
        return True

    def keys(self) -> tuple[str, ...]:
        """What the index lists: HTTP knows no folders, so publishing keeps one."""
        raw = self.read(INDEX, MANIFEST_LIMIT)
        return () if raw is None else _listed(raw)

    def note(self, key: str) -> None:
        """Add ``key`` to the index without losing what another writer adds at the same time."""
        for _ in range(MERGES):
            found = self._small(INDEX, MANIFEST_LIMIT)
            listed = () if found is None else _listed(found[0])
            if key in listed:
                return
            tag = None if found is None else found[1]
            headers = {"If-None-Match": "*"} if found is None else {"If-Match": tag} if tag else {}
            text = json.dumps({"keys": sorted({*listed, key})}, indent=2) + "\n"
            status = self._put(INDEX, text.encode("ascii"), headers)
            if status not in EXISTS:
                _accepted(status, INDEX)
                return
        raise StoreError(Trouble.FAILED, f"{INDEX} changed at each of {MERGES} attempts")

    def close(self) -> None:
        """Close the session's connections."""
        self.session.close()

    def _small(self, path: str, limit: int) -> tuple[bytes, str | None] | None:
        def attempt() -> tuple[bytes, str | None] | None:
            with self._get(path, {}) as answer:
                body = _body(answer, path, 0)
                if body is None:
                    return None
                data = b""
                for chunk in body.chunks:
                    data += chunk
                    if len(data) > limit:
                        raise StoreError(Trouble.FAILED, f"{path} has more than {limit} bytes")
                announced = answer.headers.get("Content-Length", "")
                if announced.isdigit() and len(data) != int(announced):
                    raise StoreError(Trouble.UNREACHABLE, f"{path} ended before its length")
                return data, answer.headers.get("ETag")

        return retried(self.config, attempt, on=may_pass)

    @contextlib.contextmanager
    def _get(self, path: str, headers: dict[str, str]) -> Iterator[requests.Response]:
        try:
            answer = self.session.get(
                self._at(path),
                stream=True,
                timeout=limits(self.config),
                headers={"Accept-Encoding": "identity", "Cache-Control": "no-cache", **headers},
            )
        except OSError as error:
            raise _trouble(error) from error
        with answer:
            yield answer

    def _put(self, path: str, content: bytes | Path, headers: dict[str, str]) -> int:
        def attempt() -> int:
            with contextlib.ExitStack() as stack:
                data: Any = content
                if isinstance(content, Path):
                    data = stack.enter_context(content.open("rb"))
                # A redirected PUT would become a GET, and look as if it had worked.
                answer = self.session.put(
                    self._at(path),
                    data=data,
                    timeout=limits(self.config),
                    headers={"Content-Type": "application/octet-stream", **headers},
                    allow_redirects=False,
                )
                answer.close()
                if answer.status_code >= 500 and answer.status_code != NOT_CONDITIONAL:
                    answer.raise_for_status()
                return answer.status_code

        try:
            return retried(self.config, attempt, on=passing)
        except OSError as error:
            raise _trouble(error) from error

    def _at(self, path: str) -> str:
        return f"{self.url}/{quote(path, safe='/')}"


def may_pass(error: Exception) -> bool:
    """Whether asking the store again may help."""
    return isinstance(error, StoreError) and error.trouble is Trouble.UNREACHABLE


def _body(answer: requests.Response, path: str, start: int) -> Body | None:
    if answer.status_code in ABSENT:
        return None
    try:
        answer.raise_for_status()
    except OSError as error:
        raise _trouble(error) from error
    return Body(start=start, chunks=_chunks(answer, path))


def _chunks(answer: requests.Response, path: str) -> Iterator[bytes]:
    # What has come so far, not a full chunk: a server that trickles is noticed.
    pull = getattr(answer.raw, "read1", answer.raw.read)
    while True:
        try:
            chunk = pull(CHUNK, decode_content=False)
        except Exception as error:
            raise StoreError(Trouble.UNREACHABLE, f"{path}: {reason(error)}") from error
        if not chunk:
            return
        yield chunk


def _listed(raw: bytes) -> tuple[str, ...]:
    try:
        value = json.loads(raw)
        keys = value["keys"]
        return tuple(sorted(k for k in keys if isinstance(k, str) and KEY.fullmatch(k)))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()


def _accepted(status: int, path: str) -> None:
    if 200 <= status < 300:
        return
    kind = Trouble.DENIED if status in (401, 403, 405) else Trouble.FAILED
    note = ", a redirect; name the final address" if 300 <= status < 400 else ""
    raise StoreError(kind, f"PUT {path}: HTTP status {status}{note}")


def _trouble(error: OSError) -> StoreError:
    import requests

    status = 0
    if isinstance(error, requests.exceptions.HTTPError) and error.response is not None:
        status = error.response.status_code
    if status in (401, 403, 405, 407):
        kind = Trouble.DENIED
    else:
        kind = Trouble.UNREACHABLE if not status or passing(error) else Trouble.FAILED
    return StoreError(kind, reason(error))
