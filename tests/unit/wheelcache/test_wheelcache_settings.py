"""URLs of stores, trust files, and the S3 store on a client that answers like boto3's."""

from __future__ import annotations

import base64
import io
import struct
import sys

import pytest

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.sources.pipconfig import PipConfig
from cpubuild.wheelcache import StoreError, Trust, open_shared, open_store
from cpubuild.wheelcache.folder import FolderStore
from cpubuild.wheelcache.model import Trouble
from cpubuild.wheelcache.s3 import S3Store
from cpubuild.wheelcache.trust import parse
from cpubuild.wheelcache.web import WebStore

PIN = "ab" * 32


def a_key(kind="ssh-ed25519"):
    blob = struct.pack(">I", len(kind)) + kind.encode() + struct.pack(">I", 32) + bytes(32)
    return f"{kind} {base64.b64encode(blob).decode()}"


def test_folders_are_named_plainly_or_by_url(tmp_path):
    for url in (str(tmp_path), tmp_path.as_uri(), f"file://localhost{tmp_path}"):
        store = open_store(url)
        assert isinstance(store, FolderStore)
        assert store.root == tmp_path
        assert not store.writable
        assert not store.remote
    assert open_store("/srv/team wheels", mode="read-write").writable


@pytest.mark.parametrize(
    ("url", "token", "said"),
    [
        ("", None, "empty"),
        ("wheels", None, "from / on"),
        ("file://server/share", None, "three slashes"),
        ("ftp://host/x", None, "not a kind of store"),
        ("https:///x", None, "names no host"),
        ("https://user:s3cret@host/x", None, "credentials"),
        ("https://host/x?sig=s3cret", None, "query"),
        ("https://host:notaport/x", None, "port"),
        ("http://host/x", "s3cret", "in clear"),
        ("https://host/x", "s3cret\r\nX: y", "characters"),
        ("https://host/a b", None, "no URL holds"),
        ("s3://", None, "no bucket"),
        ("s3://UPPER_case/x", None, "no bucket"),
    ],
)
def test_a_url_that_names_no_store_is_a_settings_error(url, token, said):
    with pytest.raises(CpuBuildError) as caught:
        open_store(url, token=token)
    problem = caught.value.problems[0]
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert said in problem.what
    assert problem.remedy
    if "?" not in url:
        assert "s3cret" not in problem.what + "".join(problem.remedy)


def test_a_mode_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(CpuBuildError, match="read, read-write"):
        open_store(str(tmp_path), mode="write")


def test_a_web_store_shows_its_address_and_keeps_the_token_to_itself():
    store = open_store("https://host/wheels/", mode="read-write", token="s3cret")
    assert isinstance(store, WebStore)
    assert store.name == "https://host/wheels"
    assert store.remote
    assert "s3cret" not in repr(store)
    assert "s3cret" not in str(dict(store.session.headers))
    store.close()


def test_without_boto3_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(CpuBuildError) as caught:
        open_store("s3://team-wheels/vllm")
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert "boto3" in caught.value.problems[0].what
    assert "vllm-cpu-build[s3]" in caught.value.problems[0].remedy[0]


def test_no_url_is_no_cache_and_no_trust_is_an_error(tmp_path):
    given = {"mode": "read", "trust": None, "key": None, "environ": {}}
    assert open_shared(None, **given) is None
    with pytest.raises(CpuBuildError, match="no trust file") as caught:
        open_shared(str(tmp_path), **given)
    assert caught.value.exit_code is ExitCode.SETTINGS
    writing = open_shared(str(tmp_path), **(given | {"mode": "read-write"}))
    assert writing is not None
    assert writing.trust == Trust()


def test_the_token_comes_from_the_environment(tmp_path):
    trust = tmp_path / "trust"
    trust.write_text(f"sha256:{PIN}\n")
    with pytest.raises(CpuBuildError, match="in clear"):
        open_shared(
            "http://host/x",
            mode="read",
            trust=trust,
            key=None,
            environ={"CPUBUILD_CACHE_TOKEN": "t"},
            config=PipConfig(),
        )


def test_a_trust_file_is_read_line_by_line(tmp_path):
    path = tmp_path / "trust"
    lines = [
        "# who builds for us",
        "",
        f"ci@example.com {a_key()} the runner",
        f'"Alice A",bob@example.com valid-before="20300101" {a_key("ecdsa-sha2-nistp256")}',
        f'hw@example.com namespaces="vllm-cpu-build" {a_key("sk-ssh-ed25519@openssh.com")}',
        f"sha256:{PIN}",
        f"sha256:{'0' * 64}  # the one from May",
        f"!sha256:{'1' * 64}",
    ]
    path.write_text("\n".join(lines) + "\n")
    trust = Trust.load(path)
    assert trust.signers == tuple(lines[2:5])
    assert trust.pins == {PIN, "0" * 64}
    assert trust.revoked == {"1" * 64}
    assert trust.source == str(path)


@pytest.mark.parametrize(
    "line",
    [
        a_key(),  # no principal
        "ci@example.com ssh-ed25519 AAAA",
        "ci@example.com ssh-ed25519 !!!!",
        f"ci@example.com ssh-rsa {a_key().split()[1]}",  # says one type, is another
        "sha256:abc",
        f"sha256:{PIN}0",
        f"sha256:{PIN.upper()}",
        f"sha512:{PIN}",
        "whatever",
    ],
)
def test_a_line_that_is_not_understood_is_an_error(line):
    with pytest.raises(CpuBuildError) as caught:
        parse(f"sha256:{PIN}\n{line}\n", "trust")
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert "line 2" in caught.value.problems[0].what


def test_a_trust_file_that_trusts_nobody_is_an_error():
    for text in ("", "# nobody\n", f"!sha256:{PIN}\n"):
        with pytest.raises(CpuBuildError, match="trusts nobody"):
            parse(text, "trust")


def test_a_trust_file_must_be_there_and_be_ours(tmp_path):
    with pytest.raises(CpuBuildError, match="cannot be read"):
        Trust.load(tmp_path / "none")
    path = tmp_path / "trust"
    path.write_text(f"sha256:{PIN}\n")
    path.chmod(0o666)
    with pytest.raises(CpuBuildError, match="every user"):
        Trust.load(path)


# S3


class ClientError(Exception):
    def __init__(self, code):
        super().__init__(f"An error occurred ({code})")
        self.response = {"Error": {"Code": code}}


class NoCredentialsError(Exception):
    pass


class Stream(io.BytesIO):
    def iter_chunks(self, size):
        while chunk := self.read(size):
            yield chunk


class FakeS3:
    """Objects in a dict; ``errors`` are raised once each, by the name of the call."""

    def __init__(self, *, conditional=True, errors=()):
        self.objects = {}
        self.conditional = conditional
        self.errors = list(errors)
        self.calls = []

    def _begin(self, name):
        self.calls.append(name)
        if self.errors and self.errors[0][0] == name:
            raise self.errors.pop(0)[1]

    def get_object(self, *, Bucket, Key, Range=None):  # noqa: N803
        self._begin("get")
        if Key not in self.objects:
            raise ClientError("NoSuchKey")
        data = self.objects[Key]
        if Range is None:
            return {"Body": Stream(data)}
        start = int(Range.removeprefix("bytes=").removesuffix("-"))
        if start >= len(data):
            raise ClientError("InvalidRange")
        return {"Body": Stream(data[start:]), "ContentRange": f"bytes {start}-{len(data) - 1}/*"}

    def put_object(self, *, Bucket, Key, Body, IfNoneMatch=None):  # noqa: N803
        self._begin("put")
        if IfNoneMatch and not self.conditional:
            raise ClientError("NotImplemented")
        if IfNoneMatch and Key in self.objects:
            raise ClientError("PreconditionFailed")
        self.objects[Key] = Body if isinstance(Body, bytes) else Body.read()

    def list_objects_v2(self, *, Bucket, Prefix, Delimiter, ContinuationToken=None):  # noqa: N803
        self._begin("list")
        names = sorted(
            {
                Prefix + k.removeprefix(Prefix).split("/")[0] + "/"
                for k in self.objects
                if k.startswith(Prefix)
            }
        )
        at = int(ContinuationToken or 0)
        page = {"CommonPrefixes": [{"Prefix": n} for n in names[at : at + 1]]}
        return page | ({"NextContinuationToken": str(at + 1)} if at + 1 < len(names) else {})


def s3(client, prefix="team"):
    return S3Store(client=client, bucket="wheels", prefix=prefix, writable=True)


def test_objects_of_a_bucket_are_read_and_written(tmp_path):
    for prefix in ("team", ""):
        store = s3(FakeS3(), prefix)
        assert store.read("a/b", 10) is None
        assert store.write("a/b", b"12345", only_new=True)
        assert not store.write("a/b", b"67890", only_new=True)
        assert store.read("a/b", 10) == b"12345"
        (tmp_path / "f").write_bytes(b"67890")
        assert store.write("a/b", tmp_path / "f", only_new=False)
        with store.stream("a/b", 3) as body:
            assert (body.start, b"".join(body.chunks)) == (3, b"90")
        with store.stream("a/b", 99) as body:
            assert (body.start, b"".join(body.chunks)) == (0, b"67890")
        with store.stream("a/c", 0) as body:
            assert body is None
        with pytest.raises(StoreError, match="more than 4"):
            store.read("a/b", 4)


def test_keys_of_a_bucket_come_from_all_pages():
    store = s3(FakeS3())
    for name in ("a" * 12, "b" * 12, "not-a-key"):
        store.write(f"{name}/manifest.json", b"{}", only_new=True)
    assert store.keys() == ("a" * 12, "b" * 12)


def test_a_server_without_conditions_is_written_all_the_same():
    store = s3(FakeS3(conditional=False))
    assert store.write("a", b"1", only_new=True)
    assert not store.write("a", b"2", only_new=True)
    assert store.read("a", 9) == b"1"


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (ClientError("AccessDenied"), Trouble.DENIED),
        (ClientError("InvalidAccessKeyId"), Trouble.DENIED),
        (NoCredentialsError("Unable to locate credentials"), Trouble.DENIED),
        (ClientError("SlowDown"), Trouble.UNREACHABLE),
        (ClientError("NoSuchBucket"), Trouble.FAILED),
        (ConnectionError("refused"), Trouble.UNREACHABLE),
    ],
)
def test_what_a_bucket_refuses_is_told_apart(error, trouble):
    acts = {
        "get": lambda store: store.read("a", 9),
        "put": lambda store: store.write("a", b"1", only_new=True),
        "list": lambda store: store.keys(),
    }
    for name, act in acts.items():
        with pytest.raises(StoreError) as caught:
            act(s3(FakeS3(errors=[(name, error)])))
        assert caught.value.trouble is trouble
