"""The ways out of a compiler below the floor, by distribution, each with its price."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cpubuild.assess import assess
from cpubuild.findings import Finding, Status

HOSTS = {
    "debian-12": ("debian", "12", "apt"),
    "debian-13": ("debian", "13", "apt"),
    "ubuntu-22.04": ("ubuntu", "22.04", "apt"),
    "ubuntu-24.04": ("ubuntu", "24.04", "apt"),
    "mint-22": ("linuxmint", "22.1", "apt"),
    "rocky-8": ("rocky", "8.10", "dnf"),
    "rhel-9": ("rhel", "9.4", "dnf"),
    "amazon": ("amzn", "2023", "dnf"),
    "leap": ("opensuse-leap", "15.6", "zypper"),
    "arch": ("arch", "", "pacman"),
}


@pytest.fixture
def gxx_finding(host, change, make_gxx, release):
    def find(where: str, version: str = "11.4.0", **compiler) -> Finding:
        name, number, family = HOSTS[where]
        facts = change(
            host,
            distro={"id": name, "version": number, "family": family, "pretty": where},
            compilers=(make_gxx(version, **compiler),),
        )
        return next(f for f in assess(facts, release) if f.id == "toolchain.gxx")

    return find


@pytest.mark.parametrize(
    ("where", "first"),
    [
        ("debian-13", "g++"),
        ("ubuntu-22.04", "g++-12"),
        ("ubuntu-24.04", "g++-14"),
        ("mint-22", "g++-14"),
        ("rocky-8", "gcc-toolset-13-gcc-c++"),
        ("rhel-9", "gcc-toolset-13-gcc-c++"),
        ("amazon", "gcc14-c++"),
        ("leap", "gcc13-c++"),
        ("arch", "gcc"),
    ],
)
def test_the_first_way_is_the_distributions_own_newer_compiler(gxx_finding, where, first) -> None:
    finding = gxx_finding(where)
    assert f" {first}  #" in finding.remedy[0]
    assert "compiler-floor" in finding.remedy[1]


def test_debian_12_has_none_and_says_so(gxx_finding) -> None:
    finding = gxx_finding("debian-12", "12.2.0")
    assert finding.status is Status.WARN
    assert "compiler-floor" in finding.remedy[0]
    assert any("no newer g++ than 12.2" in line for line in finding.remedy)
    assert not any("install" in line for line in finding.remedy)


def test_the_other_ways_are_an_older_release_and_the_wheel(gxx_finding) -> None:
    remedy = " ".join(gxx_finding("debian-12", "12.2.0").remedy)
    assert "--vllm 0.14.1" in remedy
    assert "CPU wheel" in remedy
    assert "needs glibc 2.34" in remedy


def test_no_toolset_below_the_floor_is_named(gxx_finding) -> None:
    assert "gcc-toolset-12" not in " ".join(gxx_finding("rocky-8").remedy)


def test_the_foreign_repository_is_named_as_such_and_comes_last(gxx_finding) -> None:
    lines = [line for line in gxx_finding("ubuntu-22.04").remedy if "ppa:" in line]
    assert len(lines) == 1
    assert "outside" in lines[0]


def test_without_the_probes_there_is_no_patch_and_it_blocks(gxx_finding) -> None:
    finding = gxx_finding("debian-12", "12.2.0", options=())
    assert finding.status is Status.BLOCKER
    assert "compiler-floor" not in " ".join(finding.remedy)


def test_a_host_below_the_wheels_glibc_is_not_offered_the_wheel(
    host, change, make_gxx, release
) -> None:
    facts = change(host, compilers=(make_gxx("11.4.0"),), libc={"version": "2.31"})
    finding = next(f for f in assess(facts, release) if f.id == "toolchain.gxx")
    assert "CPU wheel" not in " ".join(finding.remedy)


def test_cxx_that_is_no_compiler_is_answered_by_one_that_works(host, change, release) -> None:
    facts = change(host, environment={"CXX": "/opt/none/g++", "CC": "gcc"})
    finding = next(f for f in assess(facts, release) if f.id == "toolchain.gxx")
    assert finding.status is Status.BLOCKER
    assert finding.remedy[0].startswith("unset CXX CC")


def test_clang_is_no_way_where_cmake_wants_gnu(host, change, make_gxx, release) -> None:
    facts = change(host, compilers=(make_gxx("19.1.0", path="/usr/bin/clang++", kind="clang"),))
    finding = next(f for f in assess(facts, release) if f.id == "toolchain.gxx")
    assert finding.status is Status.BLOCKER


def test_a_version_that_is_not_told_is_unknown(host, change, make_gxx, release) -> None:
    facts = change(host, compilers=(make_gxx(""),))
    finding = next(f for f in assess(facts, release) if f.id == "toolchain.gxx")
    assert finding.status is Status.UNKNOWN


def test_gcc_and_gxx_of_two_versions_are_seen(host, change, make_gxx, release) -> None:
    facts = change(
        host,
        compilers=(make_gxx("14.2.0", "/usr/bin/g++-14"), make_gxx("12.2.0", "/usr/bin/g++-12")),
        environment={"CC": "gcc-12", "CXX": "g++-14"},
    )
    finding = next(f for f in assess(facts, release) if f.id == "toolchain.cc")
    assert finding.status is Status.WARN
    assert "12.2.0" in finding.found


def test_a_release_without_a_floor_takes_any(host, change, make_gxx, release) -> None:
    facts = change(host, compilers=(make_gxx("9.4.0"),))
    open_release = replace(release, gcc_floor=None)
    finding = next(f for f in assess(facts, open_release) if f.id == "toolchain.gxx")
    assert finding.status is Status.OK


def test_cxx_with_a_wrapper_and_options_is_understood(host, change, make_gxx, release) -> None:
    facts = change(
        host,
        compilers=(make_gxx("14.2.0"), make_gxx("13.3.0", "/usr/bin/g++-13")),
        environment={"CXX": "ccache g++-13 -O2", "CC": "ccache gcc-13"},
    )
    found = {f.id: f for f in assess(facts, release)}
    assert "13.3.0" in found["toolchain.gxx"].found
    assert found["toolchain.cc"].status is Status.OK
