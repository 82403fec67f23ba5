"""The recorded hosts, held against the verdict their names and expected.json state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cpubuild import check
from cpubuild.errors import ExitCode
from cpubuild.facts.collect import replay

HOSTS = Path(__file__).parents[2] / "hosts"
NAMES = sorted(path.name for path in HOSTS.iterdir() if path.is_dir())
STOPS = {
    "amx-bf16--kubernetes-nested": {"python.range", "memory.compile"},
    "avx2--alpine-musl": {"host.libc"},
    "avx512--cascade-lake": {"python.range"},
    "neon--ampere-altra": {"python.range"},
}
WARNS = {
    "amx-bf16--sapphire-rapids-vm": "toolchain.gxx",
    "avx512--docker-seccomp": "container.seccomp",
    "avx512--cgroup-v1": "container.cgroup",
    "neon--graviton2": "isa.bf16",
    "unsupported--masked-vm": "isa.hidden",
    "vsx--power9": "host.arch",
}


@pytest.fixture
def report(known):
    def make(name: str) -> check.CheckReport:
        facts = replay(HOSTS / name)
        return check.run_check(facts, known("0.32.0", facts.cpu.arch))

    return make


def test_there_are_enough_of_them() -> None:
    assert len(NAMES) >= 20


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_of_a_recorded_host(name: str, report) -> None:
    expected = json.loads((HOSTS / name / "expected.json").read_text(encoding="utf-8"))
    made = report(name)
    stops = {f.id for f in made.findings if f.status.value == "blocker"}
    if name.startswith("unsupported"):
        assert stops == {"isa.level"}
        assert made.verdict.level == "not supported"
        assert made.exit_code is ExitCode.UNSUPPORTED
    else:
        assert stops == STOPS.get(name, set())
    assert made.verdict.host_level == expected["level"]
    assert made.verdict.suits is (not stops)


@pytest.mark.parametrize(("name", "warned"), sorted(WARNS.items()))
def test_what_is_special_about_a_host_is_said(name: str, warned: str, report) -> None:
    assert warned in {f.id for f in report(name).findings if f.status.value == "warn"}


def test_a_masked_guest_is_told_to_show_its_flags(report) -> None:
    finding = next(f for f in report("unsupported--masked-vm").findings if f.id == "isa.level")
    assert any("host" in line for line in finding.remedy)


def test_a_bare_old_cpu_is_not(report) -> None:
    finding = next(f for f in report("unsupported--sandy-bridge").findings if f.id == "isa.level")
    assert finding.remedy == ("another machine: no release supports this CPU",)


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("unsupported")])
def test_no_supported_host_is_said_to_hide_flags(name: str, report) -> None:
    finding = next((f for f in report(name).findings if f.id == "isa.hidden"), None)
    assert finding is None or finding.status.value == "ok"
