"""A store in an S3-compatible bucket, through boto3 where that is installed."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cpubuild.errors import ExitCode, fail
from cpubuild.wheelcache.manifest import KEY
from cpubuild.wheelcache.model import CHUNK, Body, StoreError, Trouble

ABSENT = frozenset({"NoSuchKey", "404", "NotFound"})
EXISTS = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
DENIED = frozenset({"AccessDenied", "403", "401", "InvalidAccessKeyId", "SignatureDoesNotMatch"})
PASSING = frozenset({"SlowDown", "InternalError", "ServiceUnavailable", "500", "502", "503"})
BEYOND = frozenset({"InvalidRange", "416"})
NOT_CONDITIONAL = frozenset({"NotImplemented", "501"})
PAGES = 20


def open_s3(
    bucket: str, prefix: str, *, writable: bool, environ: Mapping[str, str], retries: int = 3
) -> S3Store:
    """The store ``s3://bucket/prefix``; credentials and region are found as boto3 finds them."""
    try:
        boto3: Any = importlib.import_module("boto3")
        config: Any = importlib.import_module("botocore.config")
    except ImportError as error:
        raise fail(
            ExitCode.SETTINGS,
            f"the wheel cache s3://{bucket}/{prefix} needs boto3, which is not installed",
            why="S3 is an extra, so that nobody installs it who does not use it",
            remedy=(
                "make sure the tool's environment has it: uv pip install 'vllm-cpu-build[s3]'",
                "or name the cache by a folder or an http(s) URL",
            ),
        ) from error
    try:
        client = boto3.client(
            "s3",
            endpoint_url=environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL"),
            # Checksum trailers are unknown to many S3-compatible servers.
            config=config.Config(
                connect_timeout=10,
                read_timeout=30,
                retries={"total_max_attempts": 1 + retries, "mode": "standard"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
    except Exception as error:
        raise fail(
            ExitCode.SETTINGS,
            f"the wheel cache s3://{bucket}/{prefix} cannot be opened: {error}",
            why="boto3 finds region, profile and credentials in the AWS_ variables and files",
            remedy=("set AWS_DEFAULT_REGION, AWS_PROFILE or AWS_ENDPOINT_URL",),
        ) from error
    return S3Store(client=client, bucket=bucket, prefix=prefix.strip("/"), writable=writable)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class S3Store:
    """Objects of ``bucket`` below ``prefix``; ``client`` is boto3's S3 client."""

    client: Any
    bucket: str
    prefix: str
    writable: bool
    remote: bool = True

    @property
    def name(self) -> str:
        """The bucket and the prefix."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def read(self, path: str, limit: int) -> bytes | None:
        """All bytes of a small object."""
        with self.stream(path, 0) as body:
            if body is None:
                return None
            data = b""
            for chunk in body.chunks:
                data += chunk
                if len(data) > limit:
                    raise StoreError(Trouble.FAILED, f"{path} has more than {limit} bytes")
        return data

    @contextlib.contextmanager
    def stream(self, path: str, start: int) -> Iterator[Body | None]:
        """The bytes of an object, by Range."""
        answer, start = self._get(path, start)
        if answer is None:
            yield None
            return
        with contextlib.closing(answer["Body"]) as source:
            yield Body(start=start, chunks=_chunks(source))

    def write(self, path: str, content: bytes | Path, *, only_new: bool) -> bool:
        """Put an object, with If-None-Match where only a new one is wanted."""
        try:
            self._put(path, content, {"IfNoneMatch": "*"} if only_new else {})
        except Exception as error:
            code = _code(error)
            if only_new and code in EXISTS:
                return False
            if not (only_new and code in NOT_CONDITIONAL):
                _raise(error)
            # An older server: two writers at once, and the last one wins.
            answer, _ = self._get(path, 0)
            if answer is not None:
                answer["Body"].close()
                return False
            try:
                self._put(path, content, {})
            except Exception as again:
                _raise(again)
        return True

    def keys(self) -> tuple[str, ...]:
        """The names below the prefix that look like keys."""
        base = f"{self.prefix}/" if self.prefix else ""
        found: set[str] = set()
        more: dict[str, str] = {}
        for _ in range(PAGES):
            try:
                page = self.client.list_objects_v2(
                    Bucket=self.bucket, Prefix=base, Delimiter="/", **more
                )
            except Exception as error:
                _raise(error)
            names = (str(p["Prefix"]) for p in page.get("CommonPrefixes", ()))
            found |= {n.removeprefix(base).rstrip("/") for n in names}
            if not page.get("NextContinuationToken"):
                break
            more = {"ContinuationToken": page["NextContinuationToken"]}
        return tuple(sorted(name for name in found if KEY.fullmatch(name)))

    def note(self, key: str) -> None:
        """Nothing to do: buckets can be listed."""

    def close(self) -> None:
        """Close the client's connections."""
        self.client.close()

    def _get(self, path: str, start: int) -> tuple[Any, int]:
        more = {"Range": f"bytes={start}-"} if start else {}
        try:
            answer = self.client.get_object(Bucket=self.bucket, Key=self._at(path), **more)
        except Exception as error:
            code = _code(error)
            if code in ABSENT:
                return None, 0
            if start and code in BEYOND:
                return self._get(path, 0)
            _raise(error)
        partial = str(answer.get("ContentRange", "")).startswith(f"bytes {start}-")
        return answer, start if partial else 0

    def _put(self, path: str, content: bytes | Path, more: Mapping[str, str]) -> None:
        with contextlib.ExitStack() as stack:
            body: Any = content
            if isinstance(content, Path):
                body = stack.enter_context(content.open("rb"))
            self.client.put_object(Bucket=self.bucket, Key=self._at(path), Body=body, **more)

    def _at(self, path: str) -> str:
        return f"{self.prefix}/{path}" if self.prefix else path


def _chunks(source: Any) -> Iterator[bytes]:
    try:
        yield from source.iter_chunks(CHUNK)
    except Exception as error:
        _raise(error)


def _code(error: Exception) -> str:
    response = getattr(error, "response", None)
    told = response.get("Error", {}).get("Code", "") if isinstance(response, dict) else ""
    return str(told)


def _raise(error: Exception) -> NoReturn:
    """Raise the StoreError for one of boto3's errors, known by code or by name, not by class."""
    code, kind = _code(error), Trouble.UNREACHABLE
    if code in DENIED or "Credentials" in type(error).__name__:
        kind = Trouble.DENIED
    elif code and code not in PASSING:
        kind = Trouble.FAILED
    text = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    raise StoreError(kind, text) from error
