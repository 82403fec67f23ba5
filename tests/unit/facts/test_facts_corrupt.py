"""No parser raises on damaged text: it returns facts or unknowns."""

from __future__ import annotations

import contextlib
import copy
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cpubuild.errors import CpuBuildError
from cpubuild.facts import (
    cgroup,
    compilers,
    container,
    cpu,
    disk,
    distro,
    environment,
    interpreters,
    isa,
    libc,
    libraries,
    memory,
    numa,
    tools,
)
from cpubuild.facts.collect import collect
from cpubuild.facts.compiler_cache import Cache
from cpubuild.facts.serial import facts_from_json, facts_to_json, read_facts
from cpubuild.run import Completed

HOSTS = Path(__file__).parents[2] / "hosts"
PARAMETERS = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
JUNK = st.text(max_size=12) | st.sampled_from(
    [
        "\0",
        "-1",
        "9" * 30,
        "٣",
        " - ",
        ":",
        "\n\n",
        "max",
        "../..",
        "0-99999999",
        "/",
        "\\777",
        "\ud800",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


@cache
def hosts() -> tuple[dict[str, str], ...]:
    return tuple(
        {
            path.relative_to(folder.parent).as_posix(): path.read_text("utf-8")
            for path in folder.parent.rglob("*")
            if path.is_file() and path.suffix != ".json"
        }
        for folder in sorted(HOSTS.glob("*/expected.json"))
    )


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """Cut a piece out of ``text`` and put something else there, a few times."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 200)))
        text = text[:start] + draw(JUNK) + text[end:]
    return text


@st.composite
def damaged_hosts(draw: st.DrawFn) -> dict[str, str]:
    texts = dict(draw(st.sampled_from(hosts())))
    for name in draw(st.lists(st.sampled_from(sorted(texts)), min_size=1, max_size=4, unique=True)):
        if draw(st.booleans()):
            texts[name] = draw(damaged(texts[name]))
        else:
            del texts[name]
    return texts


@PARAMETERS
@given(damaged_hosts())
def test_kernel_files(texts: dict[str, str]) -> None:
    found = cpu.parse(texts)
    assert found.logical >= 1
    assert found.allowed
    assert isa.level(found)
    assert isa.x86_reason(found)
    seen = memory.parse(texts)
    assert seen.total >= 0
    assert seen.usable >= 0
    assert seen.limit is None or seen.limit >= 0
    assert seen.used is None or seen.used >= 0
    quota = cgroup.cpu_quota(texts)
    assert quota is None or quota > 0
    numa.parse(texts)
    cpu.kernel(texts)
    assert container.recorded(texts, found).kind
    disk.filesystem(Path("/a/b"), disk.parse_mounts(texts.get("proc/self/mountinfo", "")))


PRINTED = [
    "Target: x86_64-linux-gnu\ngcc version 12.2.0 (Debian)\n",
    "g++: error: unrecognized command-line option '-mamx-fp8'\n",
    "\tlibnuma.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnuma.so.1\n",
    '{"executable": "/usr/bin/python3", "version": "3.11.2", "implementation": "CPython", '
    '"headers": true, "venv": true, "free_threaded": false}',
    "glibc 2.36",
    "musl libc (x86_64)\nVersion 1.2.5\n",
    "ok\nEPERM\n",
    "cmake version 3.25.1\n",
    "1 0 8:1 / /a\\040b rw - ext4 /dev/vda rw\n",
    "https://me:pw@index.example/simple?token=x",
]


@PARAMETERS
@given(st.text(max_size=200) | st.sampled_from(PRINTED).flatmap(damaged))
def test_what_programs_print(text: str) -> None:
    assert compilers.parse_identity(text).kind in ("gnu", "clang", "unknown")
    compilers.parse_unknown_options(text)
    compilers.named_program(text)
    finished = Completed(argv=("x",), returncode=1, stdout=text, stderr="", seconds=0.0)
    compilers.first_error(finished)
    container.parse_calls(finished)
    interpreters.parse(text)
    for row in tools.table():
        tools.parse(row, "/usr/bin/x", text)
    loader = libraries.parse_cache(text, "x86_64")
    libraries.parse({**loader, "libnuma.so.1": text}, Path("/nonexistent"), "x86_64")
    assert libc.parse(text).name in ("glibc", "musl", "unknown")
    environment.parse({"PIP_INDEX_URL": text, text: text})
    disk.parse_mounts(text)


@PARAMETERS
@given(
    st.text(max_size=200) | st.just('ID=debian\nID_LIKE="a b"\nVERSION_ID="12"\n').flatmap(damaged)
)
def test_os_release(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "etc/os-release"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        assert distro.parse(distro.probe(Path(folder))).family


@PARAMETERS
@given(st.binary(max_size=300))
def test_files_that_are_no_text(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("proc/cpuinfo", "proc/self/mountinfo", "proc/meminfo", "etc/os-release"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        assert collect(root, disks={}).cpu.logical >= 1
        (root / "host.json").write_bytes(content)
        with pytest.raises(CpuBuildError):
            read_facts(root / "host.json")
        assert Cache.load(root / "host.json").passed == set()


@cache
def document() -> str:
    return json.dumps(facts_to_json(collect(HOSTS / "avx2--zen3", disks={})))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the path of every part of a document."""
    keys: Any = ()
    if isinstance(value, dict):
        keys = value
    elif isinstance(value, list):
        keys = range(len(value))
    return [path] * bool(path) + [p for key in keys for p in places(value[key], (*path, key))]


@PARAMETERS
@given(st.data(), JSON)
def test_a_changed_document_is_facts_or_an_error_with_a_reason(
    data: st.DataObject, part: Any
) -> None:
    changed = copy.deepcopy(json.loads(document()))
    path = data.draw(st.sampled_from(places(changed)))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = part
    with contextlib.suppress(CpuBuildError):  # any other exception fails the test
        facts_to_json(facts_from_json(changed))


@PARAMETERS
@given(JSON)
def test_any_document_that_is_no_host_is_refused(value: Any) -> None:
    with pytest.raises(CpuBuildError):
        facts_from_json(value)
