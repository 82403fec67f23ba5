"""Documents are written whole or not at all, and read strictly."""

from __future__ import annotations

import json
import math
import os
import types
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpubuild import jsonio
from cpubuild.errors import CpuBuildError, ExitCode


class Colour(StrEnum):
    RED = "red"


class Number(IntEnum):
    TWO = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Thing:
    path: Path
    parts: tuple[object, ...]


def test_what_json_does_not_know_becomes_what_it_knows():
    thing = Thing(path=Path("/x"), parts=(Colour.RED, Number.TWO, {"b", "a"}, None, 1.5))
    text = jsonio.dumps({"thing": thing, Number.TWO: types.MappingProxyType({"k": frozenset()})})
    assert json.loads(text) == {
        "thing": {"path": "/x", "parts": ["red", 2, ["a", "b"], None, 1.5]},
        "2": {"k": []},
    }
    assert text.endswith("}\n")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_float_that_is_no_number_is_unknown(number):
    assert json.loads(jsonio.dumps({"n": [number]})) == {"n": [None]}


def test_an_unknown_type_is_a_defect_and_not_written(tmp_path):
    path = tmp_path / "d.json"
    jsonio.write(path, {"old": 1})
    with pytest.raises(TypeError):
        jsonio.write(path, {"new": object()})
    assert jsonio.read(path) == {"old": 1}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(VALUES, st.booleans())
@example(os.fsdecode(b"/x/\xff"), False)
@example("é\ud800\x00", True)
def test_every_value_can_be_written_in_either_form(value, ascii_only):
    text = jsonio.dumps({"value": value}, ascii_only=ascii_only)
    assert json.loads(text.encode("ascii" if ascii_only else "utf-8"))["value"] == jsonio.plain(
        value
    )


def test_a_crash_while_writing_leaves_the_old_document(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "d.json"
    jsonio.write(path, {"old": 1})

    def crash(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(KeyboardInterrupt):
        jsonio.write(path, {"new": 2})
    assert jsonio.read(path) == {"old": 1}
    assert [p.name for p in path.parent.iterdir()] == ["d.json"]


def test_the_new_document_appears_only_when_it_is_whole(tmp_path, monkeypatch):
    path = tmp_path / "d.json"
    jsonio.write(path, {"old": 1})
    seen: list[object] = []
    replace = Path.replace

    def look(self: Path, target: Path) -> Path:
        seen.extend([jsonio.read(path), json.loads(self.read_text())])
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", look)
    jsonio.write(path, {"new": 2})
    assert seen == [{"old": 1}, {"new": 2}]
    assert jsonio.read(path) == {"new": 2}
    assert path.stat().st_mode & 0o777 == 0o644


def test_bytes_of_a_path_survive_in_a_text_file(tmp_path):
    jsonio.write_text(tmp_path / "env.sh", os.fsdecode(b"x=/\xff\n"))
    assert (tmp_path / "env.sh").read_bytes() == b"x=/\xff\n"


def test_no_file_is_no_document(tmp_path):
    assert jsonio.read(tmp_path / "none.json") is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),
        (b'{"half": ', "Expecting value"),
        (b"[1]", "it holds a list"),
        (b"null", "it holds a NoneType"),
        (b'{"a": "\xff"}', "decode"),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_a_damaged_document_is_named_with_its_remedy(tmp_path, content, reason):
    path = tmp_path / "receipt.json"
    path.write_bytes(content)
    with pytest.raises(CpuBuildError) as caught:
        jsonio.read(path)
    (problem,) = caught.value.problems
    assert problem.exit_code is ExitCode.SETTINGS
    assert str(path) in problem.what
    assert reason in problem.what
    assert problem.remedy[0].startswith(f"rm {path} ")


def test_a_folder_in_its_place_is_named_too(tmp_path):
    with pytest.raises(CpuBuildError, match="cannot be read"):
        jsonio.read(tmp_path)


@given(st.dictionaries(st.text(), VALUES, min_size=2), st.randoms())
def test_a_fingerprint_knows_no_order(table, random):
    names = list(table)
    random.shuffle(names)
    assert jsonio.fingerprint({n: table[n] for n in names}) == jsonio.fingerprint(table)


def test_a_fingerprint_knows_every_content():
    values = [{"a": 1}, {"a": 2}, {"b": 1}, {"a": "1"}, {"a": [1]}, {"a": None}, {}, "\udcff", "ÿ"]
    assert len({jsonio.fingerprint(v) for v in values}) == len(values)
    assert jsonio.fingerprint({"a": (1, 2)}) == jsonio.fingerprint({"a": [1, 2]})


def test_fingerprints_stay_what_they_are():
    """Keys of cached wheels rest on them: another answer here throws every wheel away."""
    assert jsonio.fingerprint({"b": [1, None], "a": "é"}) == (
        "3d92f6368f93f3cb36a4e7a721098054dfbfd705e31fa50409f2d99e0727a08c"
    )


def test_the_hash_of_a_file(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    assert jsonio.sha256_of(tmp_path / "f").startswith("ba7816bf8f01cfea414140de5dae2223")
