from __future__ import annotations

import pytest

from cpubuild.diagnose import diagnose_lines, load_rules
from cpubuild.diagnose.remedies import fill, remedies_for

NUMA = ["x.cpp:1:10: fatal error: numa.h: No such file or directory"]
FLOOR = next(r for r in load_rules() if r.id == "gcc-12-3-floor")


@pytest.mark.parametrize(
    ("family", "package"),
    [
        ("apt", "apt-get install -y libnuma-dev"),
        ("dnf", "dnf install -y numactl-devel"),
        ("zypper", "zypper install -y libnuma-devel"),
        ("pacman", "pacman -S --needed numactl"),
    ],
)
def test_a_remedy_is_for_the_host_of_the_log(family: str, package: str) -> None:
    remedies = diagnose_lines(NUMA, family=family).causes[0].remedies
    assert package in remedies[0]
    assert not any("Debian" in r and ": sudo" in r for r in remedies)


def test_without_a_host_every_family_is_named() -> None:
    remedies = diagnose_lines(NUMA).causes[0].remedies
    assert any(r.startswith("Debian, Ubuntu: ") for r in remedies)
    assert any(r.startswith("RHEL and kin, Fedora: ") for r in remedies)


def test_a_distribution_release_goes_before_its_family() -> None:
    bookworm = remedies_for(FLOOR, {}, family="apt", distro="debian-12")
    trixie = remedies_for(FLOOR, {}, family="apt", distro="debian-13")
    assert not any("install -y gcc-13" in r or "g++-14 &&" in r for r in bookworm)
    assert any("g++-14" in r for r in trixie)


def test_a_package_is_looked_up_by_what_was_missing() -> None:
    line = ["ImportError: libGL.so.1: cannot open shared object file: No such file or directory"]
    assert "libgl1" in diagnose_lines(line, family="apt").causes[0].remedies[0]
    module = ["ModuleNotFoundError: No module named 'setuptools_scm'"]
    assert "setuptools-scm" in diagnose_lines(module).causes[0].remedies[0]


def test_a_value_the_log_does_not_hold_reads_as_a_gap() -> None:
    assert fill("install {package} of {x}", {"package": "numactl"}) == "install numactl of <x>"


def test_every_rule_has_a_remedy_for_every_family() -> None:
    for rule in load_rules():
        for family in ("apt", "dnf", "zypper", "pacman", "apk", None):
            assert remedies_for(rule, {}, family=family), (rule.id, family)
