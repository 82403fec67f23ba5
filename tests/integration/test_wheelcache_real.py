"""The shared wheel cache with real signatures, a real HTTP server and an S3 server."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest
from werkzeug import Response

from cpubuild import jsonio, run
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.plan import wheel_of
from cpubuild.sources.pipconfig import PipConfig
from cpubuild.wheelcache import (
    Fetched,
    Published,
    Refused,
    StoreError,
    Trust,
    explain_miss,
    fetch_wheel,
    open_shared,
    open_store,
    publish_wheel,
)
from cpubuild.wheelcache.model import Trouble
from cpubuild.wheelcache.trust import sign

pytestmark = pytest.mark.integration

INPUTS = {"vllm": "0.32.0", "arch": "x86_64", "torch": "2.13.0+cpu"}
KEY = jsonio.fingerprint(INPUTS)[:12]
NAME = "vllm-0.32.0+cpu-cp38-abi3-linux_x86_64.whl"
WHEEL = bytes(range(256)) * 4000
ONCE = PipConfig(retries=0, timeout=5)
TOKEN = "t0ken"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "localhost,127.0.0.1")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def new_key(path, *, passphrase=""):
    done = run.capture(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "test", "-f", str(path)]
    )
    assert done.ok, done.stderr
    return path


def trusting(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return Trust.load(path)


def line_for(key, *, name="ci@example.com", options=""):
    public = key.with_suffix(".pub").read_text().split()[:2]
    return " ".join([name, *([options] if options else []), *public])


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    return new_key(folder / "ours"), new_key(folder / "theirs")


@pytest.fixture
def trust(keys, tmp_path):
    return trusting(tmp_path / "trust", "# the build host", line_for(keys[0]))


def built(root, *, inputs=INPUTS, wheel=WHEEL):
    folder = root / jsonio.fingerprint(inputs)[:12]
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(wheel)
    digest = sha256(wheel).hexdigest()
    manifest = {"file": NAME, "size": len(wheel), "sha256": digest, "inputs": inputs}
    jsonio.write(folder / "manifest.json", manifest)
    return folder


def take(store, trust, tmp_path, **more):
    return fetch_wheel(store, KEY, INPUTS, tmp_path / "b" / KEY, trust, config=ONCE, **more)


def refusal(outcome):
    assert isinstance(outcome, Refused), outcome
    return outcome.finding.id.removeprefix("wheelcache.")


class Server:
    """A server of objects in memory, as a WebDAV module or an artifact store would answer."""

    def __init__(self, *, conditional=True, ranges=True):
        self.objects = {}
        self.conditional = conditional
        self.ranges = ranges
        self.lock = threading.Lock()
        self.seen = []

    def __call__(self, request):
        with self.lock:
            return self.answer(request)

    def answer(self, request):
        self.seen.append((request.method, request.path, dict(request.headers)))
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return Response("no", status=401 if "Authorization" not in request.headers else 403)
        there = self.objects.get(request.path)
        if request.method == "PUT":
            return self.put(request, there)
        if there is None:
            return Response("no such object", status=404)
        match = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
        if match and self.ranges:
            start = int(match[1])
            if start >= len(there):
                return Response("", status=416)
            headers = {"Content-Range": f"bytes {start}-{len(there) - 1}/{len(there)}"}
            return Response(there[start:], status=206, headers=headers)
        return Response(there, headers={"ETag": self.tag(there)})

    def put(self, request, there):
        wanted, unless = request.headers.get("If-Match"), request.headers.get("If-None-Match")
        if (wanted or unless) and not self.conditional:
            return Response("", status=501)
        if (unless == "*" and there is not None) or (wanted and wanted != self.tag(there)):
            return Response("", status=412)
        self.objects[request.path] = request.get_data()
        return Response("", status=201 if there is None else 204)

    def tag(self, data):
        return None if data is None else f'"{sha256(data).hexdigest()[:8]}"'


@pytest.fixture
def server(httpserver):
    return serving(httpserver, Server())


def serving(httpserver, server):
    httpserver.expect_request(re.compile("/cache/.*")).respond_with_handler(server)
    return server


def web(httpserver, *, mode="read-write", token=TOKEN, config=ONCE):
    return open_store(httpserver.url_for("/cache"), mode=mode, token=token, config=config)


@pytest.fixture(params=["folder", "http", "s3"])
def store(request, tmp_path):
    """One store of each kind, empty and writable."""
    if request.param == "folder":
        (tmp_path / "store").mkdir()
        opened = open_store(str(tmp_path / "store"), mode="read-write")
    elif request.param == "http":
        httpserver = request.getfixturevalue("httpserver")
        serving(httpserver, Server())
        opened = web(httpserver)
    else:
        opened = request.getfixturevalue("bucket")
    yield opened
    opened.close()


@pytest.fixture
def bucket(monkeypatch):
    """A bucket of moto's server, through boto3 and a real connection."""
    import moto.server as moto

    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    served = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    served.start()
    host, port = served.get_host_and_port()
    environ = {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}
    opened = open_store("s3://team-wheels/vllm", mode="read-write", config=ONCE, environ=environ)
    opened.client.create_bucket(Bucket="team-wheels")
    yield opened
    opened.client.delete_objects(
        Bucket="team-wheels",
        Delete={
            "Objects": [
                {"Key": o["Key"]}
                for o in opened.client.list_objects_v2(Bucket="team-wheels").get("Contents", ())
            ]
            or [{"Key": "none"}]
        },
    )
    opened.client.delete_bucket(Bucket="team-wheels")
    served.stop()


# Every kind of store


def test_a_signed_wheel_travels(store, keys, trust, tmp_path):
    assert take(store, trust, tmp_path) is None
    done = publish_wheel(store, built(tmp_path / "a"), signer=keys[0])
    assert isinstance(done, Published)
    assert done.signed
    assert not done.already
    fetched = take(store, trust, tmp_path)
    assert isinstance(fetched, Fetched)
    assert fetched.authority == "signed by ci@example.com"
    assert wheel_of(fetched.folder) == fetched.wheel
    assert fetched.wheel.read_bytes() == WHEEL
    assert publish_wheel(store, tmp_path / "a" / KEY, signer=keys[0]).already
    assert store.keys() == (KEY,)
    other = INPUTS | {"torch": "2.14.0+cpu"}
    assert explain_miss(store, other)[1:] == ("torch: '2.13.0+cpu' there, '2.14.0+cpu' here",)


def test_an_unfinished_download_is_continued(store, keys, trust, tmp_path):
    publish_wheel(store, built(tmp_path / "a"), signer=keys[0])
    partial = tmp_path / "b" / ".partial" / f"{sha256(WHEEL).hexdigest()}.whl"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(WHEEL[:700_000])
    steps = []
    fetched = take(store, trust, tmp_path, progress=lambda have, total: steps.append(have))
    assert isinstance(fetched, Fetched)
    assert steps[0] > 700_000
    assert fetched.wheel.read_bytes() == WHEEL


def test_unsigned_and_unknown_signers_are_refused(store, keys, trust, tmp_path):
    folder = built(tmp_path / "a")
    done = publish_wheel(store, folder, signer=None)
    assert refusal(take(store, trust, tmp_path)) == "unsigned"
    pins = trusting(tmp_path / "pins", f"sha256:{done.manifest_sha256}")
    assert isinstance(take(store, pins, tmp_path), Fetched)
    shutil.rmtree(tmp_path / "b")
    publish_wheel(store, folder, signer=keys[1], replace=True)
    outcome = take(store, trust, tmp_path)
    assert refusal(outcome) == "untrusted"
    assert outcome.replaceable
    assert not (tmp_path / "b").exists()


def test_a_spoilt_wheel_and_a_spoilt_manifest_are_refused(store, keys, trust, tmp_path):
    done = publish_wheel(store, built(tmp_path / "a"), signer=keys[0])
    at = f"{KEY}/{done.manifest_sha256}"
    for spoilt in (WHEEL[:-1] + b"\0", WHEEL[:5000], WHEEL + b"x"):
        store.write(f"{at}/{NAME}", spoilt, only_new=False)
        assert refusal(take(store, trust, tmp_path)) == "damaged"
        assert not [p for p in (tmp_path / "b").rglob("*") if p.is_file()]
    raw = store.read(f"{KEY}/manifest.json", 1 << 20)
    signature = store.read(f"{at}/manifest.json.sig", 1 << 16)
    changed = raw.replace(sha256(WHEEL).hexdigest().encode(), b"0" * 64)
    store.write(f"{KEY}/manifest.json", changed, only_new=False)
    assert refusal(take(store, trust, tmp_path)) == "unsigned"
    moved = f"{KEY}/{sha256(changed).hexdigest()}/manifest.json.sig"
    store.write(moved, signature, only_new=False)
    outcome = take(store, trust, tmp_path)
    assert refusal(outcome) == "untrusted"
    assert "does not fit" in outcome.finding.found


def test_many_writers_leave_one_whole_entry(store, keys, trust, tmp_path):
    folders = [built(tmp_path / str(n), wheel=bytes([n]) * 50_000) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda f: publish_wheel(store, f, signer=keys[0]), folders))
    assert all(isinstance(d, Published) for d in done)
    assert sum(not d.already for d in done) == 1
    fetched = take(store, trust, tmp_path)
    assert isinstance(fetched, Fetched)
    assert fetched.manifest_sha256 == next(d.manifest_sha256 for d in done if not d.already)


# Signatures


@pytest.fixture
def shelf(tmp_path):
    (tmp_path / "store").mkdir()
    return open_store(str(tmp_path / "store"), mode="read-write")


def test_a_signature_for_another_purpose_does_not_count(shelf, keys, trust, tmp_path):
    done = publish_wheel(shelf, built(tmp_path / "a"), signer=None)
    manifest = shelf.root / KEY / "manifest.json"
    made = run.capture(["ssh-keygen", "-Y", "sign", "-f", str(keys[0]), "-n", "git", str(manifest)])
    assert made.ok
    beside = shelf.root / KEY / done.manifest_sha256
    manifest.with_name("manifest.json.sig").rename(beside / "manifest.json.sig")
    assert refusal(take(shelf, trust, tmp_path)) == "untrusted"


def test_signing_by_hand_works_as_the_page_says(shelf, keys, trust, tmp_path):
    done = publish_wheel(shelf, built(tmp_path / "a"), signer=None)
    manifest = shelf.root / KEY / "manifest.json"
    argv = ["ssh-keygen", "-Y", "sign", "-f", str(keys[0]), "-n", "vllm-cpu-build", str(manifest)]
    assert run.capture(argv).ok
    beside = shelf.root / KEY / done.manifest_sha256
    manifest.with_name("manifest.json.sig").rename(beside / "manifest.json.sig")
    assert isinstance(take(shelf, trust, tmp_path), Fetched)


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ('valid-before="20200101"', False),
        ('valid-after="20200101",valid-before="29990101"', True),
        ('namespaces="git"', False),
        ('namespaces="git,vllm-cpu-build"', True),
    ],
)
def test_the_options_of_a_signer_count(shelf, keys, tmp_path, options, taken):
    publish_wheel(shelf, built(tmp_path / "a"), signer=keys[0])
    trust = trusting(tmp_path / "trust", line_for(keys[0], name="a@x,b@y", options=options))
    outcome = take(shelf, trust, tmp_path)
    if taken:
        assert outcome.authority == "signed by a@x"
    else:
        assert refusal(outcome) == "untrusted"


def test_what_is_no_signature_is_refused(shelf, keys, trust, tmp_path):
    done = publish_wheel(shelf, built(tmp_path / "a"), signer=keys[0])
    path = shelf.root / KEY / done.manifest_sha256 / "manifest.json.sig"
    good = path.read_bytes()
    for wrong in (b"", b"yes", b"\xff" * 50, good[:60], good[: len(good) // 2] + good[90:]):
        path.write_bytes(wrong)
        assert refusal(take(shelf, trust, tmp_path)) == "untrusted"
    path.write_bytes(b" " * 100_000)
    assert refusal(take(shelf, trust, tmp_path)) == "failed"


def test_a_revoked_manifest_is_refused_in_spite_of_its_signature(shelf, keys, tmp_path):
    done = publish_wheel(shelf, built(tmp_path / "a"), signer=keys[0])
    lines = (line_for(keys[0]), f"!sha256:{done.manifest_sha256}")
    assert refusal(take(shelf, trusting(tmp_path / "t", *lines), tmp_path)) == "revoked"


def test_letters_outside_ascii_cannot_stand_for_others(shelf, keys, trust, tmp_path, monkeypatch):
    """A text encoding that replaces letters must not turn what was signed into something else."""
    raw = b'{"what": "?"}'
    forged = raw.replace(b"?", "ł".encode())
    entry = shelf.root / KEY
    beside = entry / sha256(forged).hexdigest()
    beside.mkdir(parents=True)
    (entry / "manifest.json").write_bytes(forged)
    (beside / "manifest.json.sig").write_bytes(sign(raw, keys[0]))
    outcome = take(shelf, trust, tmp_path)
    assert refusal(outcome) == "damaged"
    assert "ASCII" in outcome.finding.found


def test_without_ssh_keygen_pins_still_work(shelf, keys, trust, tmp_path, monkeypatch):
    done = publish_wheel(shelf, built(tmp_path / "a"), signer=keys[0])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal(take(shelf, trust, tmp_path)) == "no-verifier"
    assert isinstance(
        take(shelf, trusting(tmp_path / "p", f"sha256:{done.manifest_sha256}"), tmp_path), Fetched
    )


def test_an_ssh_keygen_that_cannot_verify_says_so(shelf, keys, trust, tmp_path, monkeypatch):
    publish_wheel(shelf, built(tmp_path / "a"), signer=keys[0])
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ssh-keygen"
    program.write_text("#!/bin/sh\necho 'No user exists for uid 4711' >&2\nexit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    outcome = take(shelf, trust, tmp_path)
    assert refusal(outcome) == "no-verifier"
    assert "4711" in outcome.finding.found


def test_a_key_that_cannot_sign_is_told_before_the_build(keys, tmp_path):
    locked = new_key(tmp_path / "locked", passphrase="correct horse")
    opened = shutil.copyfile(keys[0], tmp_path / "open")
    opened.chmod(0o644)
    (tmp_path / "store").mkdir()

    def open_with(key):
        return open_shared(
            str(tmp_path / "store"), mode="read-write", trust=None, key=key, environ={}
        )

    for key, said in (
        (locked, "passphrase"),
        (opened, "No private key"),
        (tmp_path / "none", "No such file"),
    ):
        with pytest.raises(CpuBuildError, match=said) as caught:
            open_with(key)
        assert caught.value.exit_code is ExitCode.SETTINGS
    assert open_with(keys[0]).signer == keys[0]


def test_a_key_in_an_agent_signs(shelf, tmp_path, monkeypatch, keys, trust):
    if shutil.which("ssh-agent") is None:
        pytest.skip("there is no ssh-agent here")
    sock = tmp_path / "agent"
    started = run.capture(["ssh-agent", "-s", "-a", str(sock)])
    pid = re.search(r"SSH_AGENT_PID=(\d+)", started.stdout)[1]
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(sock))
        assert run.capture(["ssh-add", "-q", str(keys[0])]).ok
        public = shutil.copyfile(keys[0].with_suffix(".pub"), tmp_path / "only.pub")
        publish_wheel(shelf, built(tmp_path / "a"), signer=public)
        assert isinstance(take(shelf, trust, tmp_path), Fetched)
    finally:
        run.capture(["kill", pid])


# HTTP


@pytest.mark.parametrize(
    ("status", "reason"),
    [(403, "denied"), (401, "denied"), (500, "unreachable"), (503, "unreachable"), (400, "failed")],
)
def test_a_server_that_refuses_is_a_finding(httpserver, trust, tmp_path, status, reason):
    httpserver.expect_request(re.compile("/cache/.*")).respond_with_data("", status=status)
    store = web(httpserver)
    assert refusal(take(store, trust, tmp_path)) == reason
    assert refusal(publish_wheel(store, built(tmp_path / "a"), signer=None)) == reason
    store.close()


def test_a_missing_entry_is_none_and_asked_for_once(httpserver, server, trust, tmp_path):
    store = web(httpserver, config=PipConfig(retries=3))
    assert take(store, trust, tmp_path) is None
    assert len(server.seen) == 1
    store.close()


def test_a_busy_server_is_asked_again(httpserver, trust, tmp_path):
    httpserver.expect_ordered_request(f"/cache/{KEY}/manifest.json").respond_with_data(
        "", status=503
    )
    httpserver.expect_ordered_request(f"/cache/{KEY}/manifest.json").respond_with_data(
        "", status=404
    )
    store = web(httpserver, config=PipConfig(retries=2))
    assert take(store, trust, tmp_path) is None
    store.close()


def test_the_login_page_of_a_portal_is_no_wheel(httpserver, trust, tmp_path):
    httpserver.expect_request(re.compile("/cache/.*")).respond_with_data("<html>Log in</html>")
    store = web(httpserver)
    assert refusal(take(store, trust, tmp_path)) == "untrusted"
    store.close()


def test_nobody_there_is_a_finding(trust, tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        store = open_store(f"http://127.0.0.1:{closed.getsockname()[1]}/x", config=ONCE)
        outcome = take(store, trust, tmp_path)
    assert refusal(outcome) == "unreachable"
    assert "refused" in outcome.finding.found


def test_the_token_stays_with_its_host(httpserver, second_server, trust, tmp_path):
    """A redirect to another host must not carry the token along."""
    httpserver.expect_request(re.compile("/cache/.*")).respond_with_response(
        Response("", status=302, headers={"Location": elsewhere_url(second_server)})
    )
    second_server.expect_request("/elsewhere").respond_with_data("", status=404)
    store = web(httpserver)
    assert take(store, trust, tmp_path) is None
    first, second = httpserver.log[0][0], second_server.log[0][0]
    assert first.headers["Authorization"] == f"Bearer {TOKEN}"
    assert "Authorization" not in second.headers
    outcome = publish_wheel(store, built(tmp_path / "a"), signer=None)
    assert refusal(outcome) == "failed"
    assert "redirect" in outcome.finding.found
    store.close()


def elsewhere_url(server):
    return f"http://localhost:{server.port}/elsewhere"


@pytest.fixture
def second_server():
    from pytest_httpserver import HTTPServer

    with HTTPServer(host="127.0.0.1") as second:
        yield second


def test_netrc_does_not_replace_the_token(httpserver, server, trust, tmp_path, monkeypatch):
    netrc = tmp_path / ".netrc"
    netrc.write_text(f"machine {httpserver.host} login me password other\n")
    netrc.chmod(0o600)
    store = web(httpserver)
    assert take(store, trust, tmp_path) is None
    store.close()
    without = web(httpserver, token=None)
    assert refusal(take(without, trust, tmp_path)) == "denied"
    assert server.seen[-1][2]["Authorization"].startswith("Basic ")
    without.close()


def test_a_wrong_token_is_denied(httpserver, server, trust, tmp_path):
    store = web(httpserver, token="other")
    outcome = take(store, trust, tmp_path)
    assert refusal(outcome) == "denied"
    assert "CPUBUILD_CACHE_TOKEN" in outcome.finding.remedy[0]
    store.close()


def test_reading_mode_sends_no_put(httpserver, server, keys, tmp_path):
    store = web(httpserver, mode="read")
    assert refusal(publish_wheel(store, built(tmp_path / "a"), signer=keys[0])) == "not-published"
    assert server.seen == []
    store.close()


def test_a_server_without_conditions_or_ranges_will_do(httpserver, keys, trust, tmp_path):
    serving(httpserver, Server(conditional=False, ranges=False))
    store = web(httpserver)
    folder = built(tmp_path / "a")
    assert not publish_wheel(store, folder, signer=keys[0]).already
    assert publish_wheel(store, folder, signer=keys[0]).already
    partial = tmp_path / "b" / ".partial" / f"{sha256(WHEEL).hexdigest()}.whl"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"?" * 700_000)
    assert isinstance(take(store, trust, tmp_path), Fetched)
    store.close()


def test_the_index_keeps_what_others_add(httpserver, server):
    stores = [web(httpserver) for _ in range(4)]
    keys = [f"{n:012x}" for n in range(4)]

    def note(pair):
        try:
            pair[0].note(pair[1])
        except StoreError as error:
            return error.trouble
        return None

    with ThreadPoolExecutor(4) as pool:
        noted = list(pool.map(note, zip(stores, keys, strict=True)))
    listed = stores[0].keys()
    assert set(noted) <= {None, Trouble.FAILED}
    assert listed == tuple(key for key, lost in zip(keys, noted, strict=True) if not lost)
    server.objects["/cache/index.json"] = json.dumps({"keys": ["../x", 3, "a" * 12]}).encode()
    assert stores[0].keys() == ("a" * 12,)
    server.objects["/cache/index.json"] = b"<html>"
    assert stores[0].keys() == ()
    for store in stores:
        store.close()


def raw_server(answers, done):
    """A server of bytes: each connection gets the next answer, in pieces with pauses."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        for pieces in answers:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                try:
                    for piece, pause in pieces:
                        connection.sendall(piece)
                        done.wait(pause)
                except OSError:
                    continue

    threading.Thread(target=serve, daemon=True).start()
    return listener


def reply(body, length=None):
    size = len(body) if length is None else length
    return b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size + body


@pytest.mark.parametrize(
    "wheel",
    [
        [(reply(WHEEL[:100], len(WHEEL)), 30)],  # then silence
        [(reply(WHEEL[:100], len(WHEEL)), 0.2), *[(b"x", 0.2)] * 100],  # a trickle
    ],
    ids=["silent", "trickling"],
)
def test_a_slow_server_ends_in_time_and_what_came_is_kept(shelf, keys, trust, tmp_path, wheel):
    publish_wheel(shelf, built(tmp_path / "a"), signer=keys[0])
    manifest = shelf.root / KEY / "manifest.json"
    signature = next(shelf.root.glob("*/*/manifest.json.sig"))
    small = [[(reply(p.read_bytes()), 0)] for p in (manifest, signature)]
    done = threading.Event()
    listener = raw_server([*small, wheel], done)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/cache"
    store = open_store(url, config=PipConfig(retries=0, timeout=1))
    started = time.monotonic()
    with listener:
        outcome = take(store, trust, tmp_path, seconds=1.0)
    done.set()
    store.close()
    assert refusal(outcome) == "unreachable"
    assert time.monotonic() - started < 8
    partial = next((tmp_path / "b" / ".partial").iterdir())
    assert partial.read_bytes()[:100] == WHEEL[:100]


def test_a_line_that_breaks_is_taken_up_again(shelf, keys, trust, tmp_path):
    publish_wheel(shelf, built(tmp_path / "a"), signer=keys[0])
    manifest = shelf.root / KEY / "manifest.json"
    signature = next(shelf.root.glob("*/*/manifest.json.sig"))
    rest = WHEEL[50_000:]
    tail = f"bytes 50000-{len(WHEEL) - 1}/{len(WHEEL)}".encode()
    partial = reply(rest).replace(b"200 OK", b"206 Partial\r\nContent-Range: " + tail)
    answers = [
        [(reply(manifest.read_bytes()), 0)],
        [(reply(signature.read_bytes()), 0)],
        [(reply(WHEEL[:50_000], len(WHEEL)), 0)],
        [(partial, 0)],
    ]
    done = threading.Event()
    with raw_server(answers, done) as listener:
        store = open_store(f"http://127.0.0.1:{listener.getsockname()[1]}/c", config=ONCE)
        config = PipConfig(retries=1)
        outcome = fetch_wheel(store, KEY, INPUTS, tmp_path / "b" / KEY, trust, config=config)
        store.close()
    done.set()
    assert isinstance(outcome, Fetched), outcome
    assert outcome.wheel.read_bytes() == WHEEL
