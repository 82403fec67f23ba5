"""Entries of a shared cache in a folder: what is taken, and everything that is refused."""

from __future__ import annotations

import contextlib
import json
import os
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild import jsonio
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.findings import Status
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
    open_store,
    publish_wheel,
)
from cpubuild.wheelcache import folder as folder_module
from cpubuild.wheelcache.folder import FolderStore
from cpubuild.wheelcache.manifest import checked, read, render, shown, wheel_name
from cpubuild.wheelcache.model import Body, RefusalError, Trouble

INPUTS = {"vllm": "0.32.0", "arch": "x86_64", "torch": "2.13.0+cpu", "patches": ("a:1", "b:2")}
KEY = jsonio.fingerprint(INPUTS)[:12]
NAME = "vllm-0.32.0+cpu-cp38-abi3-linux_x86_64.whl"
WHEEL = bytes(range(256)) * 600
ONCE = PipConfig(retries=0)


def built(root, *, inputs=INPUTS, wheel=WHEEL, name=NAME, **changes):
    """A wheel folder as a compile leaves it."""
    folder = root / jsonio.fingerprint(inputs)[:12]
    folder.mkdir(parents=True)
    (folder / name).write_bytes(wheel)
    manifest = {
        "file": name,
        "size": len(wheel),
        "sha256": sha256(wheel).hexdigest(),
        "created": "2026-01-01T00:00:00Z",
        "inputs": inputs,
        "patches": [{"id": "zażółć"}],
    }
    jsonio.write(folder / "manifest.json", manifest | changes)
    return folder


def store_at(root, mode="read-write"):
    root.mkdir(exist_ok=True)
    return open_store(str(root), mode=mode)


def pinned(raw):
    return Trust(pins=frozenset({sha256(raw).hexdigest()}), source="trust.txt")


@pytest.fixture
def filled(tmp_path):
    """A store with one entry, and the trust that pins it."""
    store = store_at(tmp_path / "store")
    done = publish_wheel(store, built(tmp_path / "a"), signer=None)
    assert isinstance(done, Published)
    return store, Trust(pins=frozenset({done.manifest_sha256}), source="trust.txt")


def refusal(outcome):
    assert isinstance(outcome, Refused), outcome
    finding = outcome.finding
    assert finding.found
    assert finding.why
    assert finding.remedy
    return finding.id.removeprefix("wheelcache.")


def take(store, trust, tmp_path, **more):
    return fetch_wheel(store, KEY, INPUTS, tmp_path / "b" / KEY, trust, config=ONCE, **more)


def nothing_left(tmp_path):
    return not [p for p in (tmp_path / "b").rglob("*") if p.is_file()]


def rewrite(store, change, *, key=KEY):
    """Change the manifest in the store, move its folder along, and pin what came out."""
    path = store.root / key / "manifest.json"
    old = path.read_bytes()
    raw = change(old)
    path.write_bytes(raw)
    (store.root / key / sha256(old).hexdigest()).rename(store.root / key / sha256(raw).hexdigest())
    return pinned(raw)


def with_values(**values):
    return lambda raw: render(json.loads(raw) | values)


def test_a_published_wheel_comes_back_whole(filled, tmp_path):
    store, trust = filled
    steps = []
    done = take(store, trust, tmp_path, progress=lambda have, total: steps.append((have, total)))
    assert isinstance(done, Fetched)
    assert done.authority == "manifest listed in trust.txt"
    assert done.wheel.read_bytes() == WHEEL
    assert wheel_of(done.folder) == done.wheel
    assert steps[-1] == (len(WHEEL), len(WHEEL))
    origin = jsonio.read(done.folder / "fetched.json")
    assert origin["store"] == str(store.root)
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == [KEY]
    again = take(store, trust, tmp_path)
    assert isinstance(again, Fetched)
    assert again.wheel.read_bytes() == WHEEL


def test_a_broken_wheel_folder_gives_way(filled, tmp_path):
    store, trust = filled
    (tmp_path / "b" / KEY).mkdir(parents=True)
    (tmp_path / "b" / KEY / "half.whl").write_bytes(b"x")
    done = take(store, trust, tmp_path)
    assert isinstance(done, Fetched)
    assert not (done.folder / "half.whl").exists()


def test_what_is_not_there_is_none(tmp_path):
    store = store_at(tmp_path / "store")
    assert take(store, Trust(pins=frozenset({"0" * 64})), tmp_path) is None


def test_a_key_that_is_not_of_the_inputs_is_a_bug(filled, tmp_path):
    store, trust = filled
    for key in ("", "0" * 12):
        with pytest.raises(CpuBuildError) as caught:
            fetch_wheel(store, key, INPUTS, tmp_path / "b" / KEY, trust)
        assert caught.value.exit_code is ExitCode.BUG


def test_without_trust_nothing_is_taken(filled, tmp_path):
    store, _ = filled
    assert refusal(take(store, Trust(), tmp_path)) == "no-trust"
    assert nothing_left(tmp_path)


def test_a_manifest_nobody_listed_is_refused(filled, tmp_path):
    store, _ = filled
    others = Trust(pins=frozenset({"0" * 64}), source="trust.txt")
    outcome = take(store, others, tmp_path)
    assert refusal(outcome) == "unsigned"
    assert outcome.replaceable
    assert outcome.finding.status is Status.WARN
    assert nothing_left(tmp_path)


def test_a_changed_manifest_is_no_longer_the_listed_one(filled, tmp_path):
    store, trust = filled
    rewrite(store, lambda raw: raw.replace(b'"0.32.0"', b'"0.32.0" '))
    assert refusal(take(store, trust, tmp_path)) == "unsigned"


def test_revoked_beats_listed(filled, tmp_path):
    store, trust = filled
    outcome = take(store, Trust(pins=trust.pins, revoked=trust.pins, source="t"), tmp_path)
    assert refusal(outcome) == "revoked"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda wheel: wheel[:-1] + b"\0", "damaged"),
        (lambda wheel: wheel[: len(wheel) // 2], "damaged"),
        (lambda wheel: wheel + b"more", "damaged"),
        (lambda wheel: b"", "damaged"),
    ],
)
def test_a_wheel_that_is_not_the_signed_one_is_thrown_away(filled, tmp_path, spoil, reason):
    store, trust = filled
    path = next(store.root.glob(f"*/*/{NAME}"))
    path.write_bytes(spoil(WHEEL))
    assert refusal(take(store, trust, tmp_path)) == reason
    assert nothing_left(tmp_path)


def test_a_wheel_that_is_missing_is_named(filled, tmp_path):
    store, trust = filled
    next(store.root.glob(f"*/*/{NAME}")).unlink()
    outcome = take(store, trust, tmp_path)
    assert refusal(outcome) == "damaged"
    assert NAME in outcome.finding.found


def test_the_right_manifest_at_the_wrong_key_is_refused(filled, tmp_path):
    store, trust = filled
    other = INPUTS | {"torch": "2.12.0+cpu"}
    key = jsonio.fingerprint(other)[:12]
    (store.root / KEY).rename(store.root / key)
    outcome = fetch_wheel(store, key, other, tmp_path / "b" / key, trust, config=ONCE)
    assert refusal(outcome) == "wrong-key"
    assert "torch: '2.13.0+cpu' there, '2.12.0+cpu' here" in outcome.finding.found


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"file": "../" + NAME}, "damaged"),
        ({"file": "/etc/" + NAME}, "damaged"),
        ({"file": "..\\" + NAME}, "damaged"),
        ({"file": NAME + "\0.whl"}, "damaged"),
        ({"file": "vllm-0.32.0+cpu-cp38-abi3-linux_x86_64.tar"}, "damaged"),
        ({"file": "vllm-0.32.0-cp38-abi3-linux_x86_64.whl"}, "damaged"),
        ({"file": "vllm-0.33.0+cpu-cp38-abi3-linux_x86_64.whl"}, "damaged"),
        ({"file": "vllm-0.32.0+cpu-.whl"}, "damaged"),
        ({"file": None}, "damaged"),
        ({"file": [NAME]}, "damaged"),
        ({"size": -1}, "damaged"),
        ({"size": True}, "damaged"),
        ({"size": 9 << 30}, "damaged"),
        ({"size": "1"}, "damaged"),
        ({"sha256": "../../x"}, "damaged"),
        ({"sha256": None}, "damaged"),
        ({"inputs": None}, "wrong-key"),
        ({"inputs": []}, "wrong-key"),
        ({"inputs": {}}, "wrong-key"),
    ],
)
def test_a_vouched_manifest_is_still_held_to_the_rules(filled, tmp_path, values, reason):
    store, _ = filled
    trust = rewrite(store, with_values(**values))
    assert refusal(take(store, trust, tmp_path)) == reason
    assert nothing_left(tmp_path)


@pytest.mark.parametrize("raw", [b"[]", b"{", b"\xff\xfe", b"[" * 90_000, b'{"size": 1e999}'])
def test_what_is_no_manifest_is_refused(filled, tmp_path, raw):
    store, _ = filled
    trust = rewrite(store, lambda old: raw)
    assert refusal(take(store, trust, tmp_path)) in ("damaged", "wrong-key")


def test_a_huge_manifest_is_not_read(filled, tmp_path):
    store, trust = filled
    (store.root / KEY / "manifest.json").write_bytes(b" " * ((1 << 20) + 1))
    assert refusal(take(store, trust, tmp_path)) == "failed"


def test_a_pipe_in_the_store_does_not_hold_the_run(filled, tmp_path):
    store, trust = filled
    path = store.root / KEY / "manifest.json"
    path.unlink()
    os.mkfifo(path)
    assert refusal(take(store, trust, tmp_path)) == "failed"


def test_a_share_that_is_not_there_is_no_empty_cache(tmp_path):
    outcome = take(FolderStore(root=tmp_path / "gone"), pinned(b""), tmp_path)
    assert refusal(outcome) == "unreachable"
    assert outcome.finding.status is Status.UNKNOWN
    assert not outcome.replaceable


def test_an_unfinished_download_goes_on(filled, tmp_path, monkeypatch):
    store, trust = filled
    starts = []
    real = FolderStore.stream

    @contextlib.contextmanager
    def breaking(self, path, start):
        starts.append(start)
        with real(self, path, start) as body:
            if len(starts) == 1:

                def some():
                    yield WHEEL[:1000]
                    raise StoreError(Trouble.UNREACHABLE, "the line broke")

                yield Body(start=0, chunks=some())
            else:
                yield body

    monkeypatch.setattr(FolderStore, "stream", breaking)
    assert refusal(take(store, trust, tmp_path)) == "unreachable"
    assert isinstance(take(store, trust, tmp_path), Fetched)
    assert starts == [0, 1000]


def test_a_wrong_beginning_is_thrown_away_once(filled, tmp_path):
    store, trust = filled
    partial = tmp_path / "b" / ".partial" / f"{sha256(WHEEL).hexdigest()}.whl"
    for wrong in (b"?" * 1000, b"?" * len(WHEEL), b"?" * (len(WHEEL) + 5)):
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(wrong)
        done = take(store, trust, tmp_path)
        assert isinstance(done, Fetched), wrong[:3]
        assert done.wheel.read_bytes() == WHEEL


def test_a_download_has_a_limit_of_time(filled, tmp_path):
    store, trust = filled
    outcome = take(store, trust, tmp_path, seconds=-1.0)
    assert refusal(outcome) == "unreachable"
    assert "too slow" in outcome.finding.found


def test_no_room_here_is_said_and_the_old_folder_stays(filled, tmp_path, monkeypatch):
    store, trust = filled
    assert isinstance(take(store, trust, tmp_path), Fetched)

    def full(path, text):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(jsonio, "write_text", full)
    outcome = take(store, trust, tmp_path)
    assert refusal(outcome) == "local"
    assert "No space" in outcome.finding.found
    assert wheel_of(tmp_path / "b" / KEY) is not None


# Publishing


def test_publishing_twice_changes_nothing(tmp_path):
    store = store_at(tmp_path / "store")
    folder = built(tmp_path / "a")
    first = publish_wheel(store, folder, signer=None)
    before = {p: p.stat().st_mtime_ns for p in store.root.rglob("*")}
    second = publish_wheel(store, folder, signer=None)
    assert (first.already, second.already) == (False, True)
    assert first.manifest_sha256 == second.manifest_sha256
    assert {p: p.stat().st_mtime_ns for p in store.root.rglob("*")} == before
    assert store.keys() == (KEY,)
    assert not list(store.root.rglob(".*"))


def test_two_writers_cannot_mix_their_wheels(tmp_path):
    """The second writes everything before the first names its own; either entry is whole."""
    store = store_at(tmp_path / "store")
    one, two = built(tmp_path / "a"), built(tmp_path / "c", wheel=WHEEL[::-1])

    class Slow(FolderStore):
        def write(self, path, content, *, only_new):
            if path.endswith(f"{KEY}/manifest.json"):
                assert not publish_wheel(store, two, signer=None).already
            return FolderStore.write(self, path, content, only_new=only_new)

    late = publish_wheel(Slow(root=store.root, writable=True), one, signer=None)
    assert late.already
    trust = Trust(pins=frozenset({late.manifest_sha256}))
    done = take(store, trust, tmp_path)
    assert isinstance(done, Fetched)
    assert done.wheel.read_bytes() == WHEEL[::-1]


def test_a_bad_entry_can_be_replaced(filled, tmp_path):
    store, trust = filled
    (store.root / KEY / "manifest.json").write_bytes(b"{}")
    folder = tmp_path / "a" / KEY
    assert publish_wheel(store, folder, signer=None).already
    assert refusal(take(store, trust, tmp_path)) == "unsigned"
    assert not publish_wheel(store, folder, signer=None, replace=True).already
    assert isinstance(take(store, trust, tmp_path), Fetched)


def test_without_hard_links_publishing_still_works(tmp_path, monkeypatch):
    def none(self, target):
        raise OSError(95, "Operation not supported", str(self))

    monkeypatch.setattr("pathlib.Path.hardlink_to", none)
    store = store_at(tmp_path / "store")
    assert store.write("x/y", b"1", only_new=True)
    assert not store.write("x/y", b"2", only_new=True)
    assert store.read("x/y", 10) == b"1"
    assert store.write("x/y", b"2", only_new=False)
    assert store.read("x/y", 10) == b"2"


def test_reading_mode_never_writes(tmp_path):
    store = store_at(tmp_path / "store", mode="read")
    outcome = publish_wheel(store, built(tmp_path / "a"), signer=None)
    assert refusal(outcome) == "not-published"
    assert list(store.root.iterdir()) == []


def test_a_store_that_cannot_be_written_is_a_finding(tmp_path, monkeypatch):
    store = store_at(tmp_path / "store")

    def read_only(content, sink):
        raise OSError(30, "Read-only file system", "x")

    monkeypatch.setattr(folder_module, "_copy", read_only)
    outcome = publish_wheel(store, built(tmp_path / "a"), signer=None)
    assert refusal(outcome) == "denied"
    assert "Read-only" in outcome.finding.found


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / NAME).write_bytes(WHEEL[::-1]),
        lambda folder: (folder / NAME).unlink(),
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "manifest.json").write_text("{"),
        lambda folder: jsonio.write(folder / "manifest.json", {"inputs": {"vllm": "1"}}),
    ],
)
def test_only_whole_wheels_are_published(tmp_path, spoil):
    store, folder = store_at(tmp_path / "store"), built(tmp_path / "a")
    spoil(folder)
    assert refusal(publish_wheel(store, folder, signer=None)) == "not-published"
    assert list(store.root.iterdir()) == []


# Explaining


def test_the_nearest_entry_explains_a_miss(tmp_path):
    store = store_at(tmp_path / "store")
    assert explain_miss(store, INPUTS)[0].endswith("lists no wheel")
    for torch, arch in (("2.12.0+cpu", "x86_64"), ("2.12.0+cpu", "aarch64")):
        inputs = INPUTS | {"torch": torch, "arch": arch}
        publish_wheel(store, built(tmp_path / "a", inputs=inputs), signer=None)
    (store.root / ("0" * 12)).mkdir()
    (store.root / ("0" * 12) / "manifest.json").write_bytes(b"[" * 90_000)
    first, *rest = explain_miss(store, INPUTS)
    assert first.endswith("1 inputs differ")
    assert rest == [
        "torch: '2.12.0+cpu' there, '2.13.0+cpu' here",
        "1 entries could not be read",
    ]
    publish_wheel(store, built(tmp_path / "a"), signer=None)
    assert "has the same inputs" in explain_miss(store, INPUTS)[0]
    gone = explain_miss(FolderStore(root=tmp_path / "gone"), INPUTS)
    assert "cannot be looked through" in gone[0]


def test_foreign_text_reaches_no_terminal_as_it_is(tmp_path):
    store = store_at(tmp_path / "store")
    entry = store.root / ("a" * 12)
    entry.mkdir()
    (entry / "manifest.json").write_bytes(render({"inputs": {"vllm": "\x1b[2J" + "x" * 500}}))
    lines = explain_miss(store, INPUTS)
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) < 300


@given(st.recursive(st.none() | st.booleans() | st.text() | st.floats(), st.lists))
def test_anything_is_shown_printable_and_short(value):
    text = shown(value)
    assert text.isascii()
    assert text.isprintable()
    assert len(text) <= 80


@given(st.text(max_size=60))
def test_no_text_becomes_a_name_outside_the_folder(text):
    for name in (text, f"vllm-0.32.0+cpu-{text}", f"vllm-0.32.0+cpu-{text}.whl", text + NAME):
        try:
            taken = wheel_name(name, INPUTS)
        except RefusalError:
            continue
        assert "/" not in taken
        assert taken.startswith("vllm-0.32.0+cpu-")


@given(st.binary(max_size=300))
def test_no_bytes_make_reading_a_manifest_fall_over(raw):
    with contextlib.suppress(RefusalError):
        read(raw)
    with contextlib.suppress(RefusalError):
        checked(raw, KEY, INPUTS)


def test_a_manifest_is_ascii_and_keeps_its_inputs(tmp_path):
    raw = render({"inputs": INPUTS, "who": "zażółć"})
    assert raw.isascii()
    assert jsonio.fingerprint(read(raw)["inputs"]) == jsonio.fingerprint(INPUTS)
