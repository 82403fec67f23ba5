"""The facts of the machine that runs the tests, by its own programs."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

import cpubuild
from cpubuild.facts import isa
from cpubuild.facts.collect import collect
from cpubuild.facts.model import HostFacts
from cpubuild.facts.serial import facts_from_json, facts_to_json

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> HostFacts:
    return collect(disks={"state": tmp_path_factory.mktemp("state") / "not/yet"})


def test_processor_and_memory(facts: HostFacts) -> None:
    assert facts.cpu.arch == os.uname().machine
    assert set(facts.cpu.allowed) == os.sched_getaffinity(0)
    assert facts.cpu.logical == os.sysconf("SC_NPROCESSORS_ONLN")
    assert facts.memory.total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < facts.memory.usable <= facts.memory.total
    assert facts.kernel == os.uname().release
    flags = {
        word for line in Path("/proc/cpuinfo").read_text().splitlines() for word in line.split()
    }
    assert facts.cpu.flags <= flags
    if facts.cpu.arch == "x86_64":
        assert (isa.x86_target(facts.cpu) is None) == (isa.level(facts.cpu) == isa.NOT_SUPPORTED)


def test_loopback_carries_a_connection(facts: HostFacts) -> None:
    assert dict(facts.container.loopback)["127.0.0.1"] == "ok"


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode != 0,
    reason="no network namespace of one's own",
)
def test_a_network_namespace_has_no_loopback_until_it_is_up() -> None:
    code = "from cpubuild.facts import loopback; print(dict(loopback.probe())['127.0.0.1'])"
    done = subprocess.run(
        ["unshare", "-rn", sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "Network is unreachable"


def test_a_link_and_an_environment_lead_to_the_same_interpreter(tmp_path: Path) -> None:
    link = tmp_path / "mypython"
    link.symlink_to(sys.executable)
    venv.create(tmp_path / "env", symlinks=True)
    found = {
        asked: collect(disks={}, compilers=False, python=str(asked)).interpreters[0]
        for asked in (link, tmp_path / "env", tmp_path / "env/bin/python")
    }
    assert {p.path for p in found.values()} == {os.path.realpath(sys.executable)}
    assert all(p.asked == str(asked) for asked, p in found.items())


def test_the_state_folder_is_measured_before_it_exists(facts: HostFacts) -> None:
    disk = facts.disks[0]
    assert disk.purpose == "state"
    assert disk.writable
    assert disk.free == pytest.approx(shutil.disk_usage(disk.path).free, rel=0.2)
    assert disk.filesystem


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")
def test_the_default_compiler_is_found_and_compiles(facts: HostFacts) -> None:
    asked = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, check=True)
    version = asked.stdout.strip()
    found = next(c for c in facts.compilers if c.version == version)
    assert (found.kind, found.works, found.failure) == ("gnu", True, "")
    assert found.target
    for option, taken in found.options:
        argv = ["g++", "-x", "c++", "-", option, "-c", "-o", os.devnull]
        compiled = subprocess.run(argv, input=b"int x;\n", capture_output=True, check=False)
        assert taken == (compiled.returncode == 0), option
    assert facts.libraries.numa_header is Path("/usr/include/numa.h").exists()


def test_a_compiler_below_a_wrapper_or_broken(tmp_path: Path) -> None:
    broken = tmp_path / "bin/g++"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'g++: error: cannot execute cc1plus' >&2\nexit 1\n")
    broken.chmod(0o755)
    environ = {"PATH": str(broken.parent), "CXX": f"ccache {broken} -m64"}
    found = collect(disks={}, environ=environ).compilers
    assert found[0].path == str(broken)
    assert not found[0].works
    assert found[0].failure == "g++: error: cannot execute cc1plus"


def test_this_interpreter_is_among_those_found(facts: HostFacts) -> None:

    mine = [p for p in facts.interpreters if p.path == os.path.realpath(sys.executable)]
    if not mine:
        pytest.skip("the tests run by an interpreter that is in none of the usual places")
    assert mine[0].version.startswith(platform.python_version().partition("+")[0])
    paths = [interpreter.path for interpreter in facts.interpreters]
    assert len(paths) == len(set(paths))


def test_system_calls_are_tried_in_a_child(facts: HostFacts) -> None:
    for outcome in (facts.container.get_mempolicy, facts.container.mbind):
        assert outcome == "ok" or (outcome or "").isupper()
    assert facts.container.root is (os.geteuid() == 0)


def test_a_second_look_uses_the_cache_and_finds_the_same(tmp_path: Path) -> None:
    cache = tmp_path / "compilers.json"
    first = collect(disks={}, cache=cache)
    second = collect(disks={}, cache=cache)
    assert second.compilers == first.compilers
    assert second.tools == first.tools
    if any(c.works and c.target.startswith("x86_64") for c in first.compilers):
        assert json.loads(cache.read_text())["passed"]


def test_without_compilers_none_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    spy = tmp_path / "bin/g++"
    spy.parent.mkdir()
    spy.write_text(f"#!/bin/sh\ntouch {mark}\n")
    spy.chmod(0o755)
    found = collect(disks={}, compilers=False, environ={"PATH": str(spy.parent)})
    assert found.compilers == ()
    assert found.libraries.numa_header is None
    assert not mark.exists()


def test_it_takes_seconds_at_most(facts: HostFacts) -> None:
    started = time.monotonic()
    collect(disks={})
    assert time.monotonic() - started < 15


def test_facts_of_this_machine_survive_json(facts: HostFacts) -> None:
    assert facts_from_json(json.loads(json.dumps(facts_to_json(facts)))) == facts


def in_version_1_group(controller: str) -> Path | None:
    folder = Path("/sys/fs/cgroup") / controller
    usable = os.geteuid() == 0 and (folder / "cgroup.procs").exists() and os.access(folder, os.W_OK)
    return folder if usable else None


ASK = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from cpubuild.facts import cpu, memory
root = Path("/")
found = memory.parse(memory.probe(root))
print(json.dumps([found.cgroup_version, found.limit, cpu.parse(cpu.probe(root)).quota]))
"""


def test_the_limits_of_a_real_group_of_version_1() -> None:

    memory, cpu = in_version_1_group("memory"), in_version_1_group("cpu")
    if memory is None or cpu is None:
        pytest.skip("no control groups of version 1 that this user may make")
    name = f"cpubuild-test-{os.getpid()}"
    outer, inner, share = memory / name, memory / name / "inner", cpu / name
    made: list[Path] = []
    try:
        for folder in (outer, inner, share):
            try:
                folder.mkdir()
            except OSError as error:
                pytest.skip(f"no group can be made: {error}")
            made.append(folder)
        (outer / "memory.limit_in_bytes").write_text(str(512 << 20))
        (share / "cpu.cfs_quota_us").write_text("150000")
        join = f'echo $$ > {inner}/cgroup.procs; echo $$ > {share}/cgroup.procs; exec "$@"'

        source = str(Path(cpubuild.__file__).parents[1])
        argv = ["sh", "-c", join, "sh", sys.executable, "-c", ASK, source]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == [1, 512 << 20, 1.5]
    finally:
        for folder in reversed(made):
            folder.rmdir()
