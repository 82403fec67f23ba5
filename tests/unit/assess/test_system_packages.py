"""Package names and install commands by distribution release."""

from __future__ import annotations

import pytest
from packaging.version import Version

from cpubuild.choose.tables import table
from cpubuild.facts.model import Distro, Interpreter
from cpubuild.system import (
    Package,
    canonical,
    compilers_of,
    install_command,
    missing_packages,
    names_for,
    newer_compilers,
    one_line,
)


def distro(name: str, version: str, family: str) -> Distro:
    return Distro(id=name, version=version, codename="", pretty=f"{name} {version}", family=family)


DEBIAN12 = distro("debian", "12", "apt")


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (DEBIAN12, "libtcmalloc-minimal4"),
        (distro("debian", "13", "apt"), "libtcmalloc-minimal4t64"),
        (distro("ubuntu", "22.04", "apt"), "libtcmalloc-minimal4"),
        (distro("ubuntu", "24.04", "apt"), "libtcmalloc-minimal4t64"),
        (distro("linuxmint", "22.1", "apt"), "libtcmalloc-minimal4t64"),
        (distro("raspbian", "12", "apt"), "libtcmalloc-minimal4"),
        (distro("fedora", "42", "dnf"), "gperftools-libs"),
        (distro("arch", "", "pacman"), "gperftools"),
    ],
)
def test_tcmalloc_is_called_differently(where: Distro, name: str) -> None:
    assert names_for(where, "tcmalloc") == (name,)


@pytest.mark.parametrize("name", ["rhel", "rocky", "almalinux"])
@pytest.mark.parametrize("version", ["8.10", "9.4", "10.0"])
def test_what_comes_from_a_foreign_repository_is_not_named(name: str, version: str) -> None:
    assert names_for(distro(name, version, "dnf"), "tcmalloc") == ()


@pytest.mark.parametrize(
    ("where", "minor", "name"),
    [
        (DEBIAN12, "3.11", "python3.11-dev"),
        (distro("rocky", "9.4", "dnf"), "3.11", "python3.11-devel"),
        (distro("fedora", "42", "dnf"), "3.13", "python3-devel"),
        (distro("fedora", "42", "dnf"), "3.11", "python3.11-devel"),
        (distro("opensuse-leap", "15.6", "zypper"), "3.11", "python311-devel"),
    ],
)
def test_headers_are_those_of_the_interpreter(where: Distro, minor: str, name: str) -> None:
    assert names_for(where, "python_headers", python=minor) == (name,)


def test_alpine_is_offered_nothing() -> None:
    alpine = distro("alpine", "3.21.3", "apk")
    assert names_for(alpine, "numa_header") == ()
    assert install_command(alpine, ["gcc"], root=True) == ()


@pytest.mark.parametrize("floor", ["12.3", "14"])
def test_no_compiler_below_the_floor_is_proposed(floor: str) -> None:
    for row in table("packages.toml")["compiler"]:
        for name in row["distro"]:
            where = distro(name, row["release"], "apt")
            found = newer_compilers(where, floor)
            assert all(Version(c.version) >= Version(floor) for c in found)


def test_debian_12_has_no_newer_compiler_and_an_unknown_release_none_at_all() -> None:
    assert compilers_of(DEBIAN12) != ()
    assert newer_compilers(DEBIAN12, "12.3") == ()
    assert compilers_of(distro("debian", "99", "apt")) == ()


def test_a_point_release_is_of_its_release_and_a_prefix_is_not() -> None:
    assert compilers_of(distro("rocky", "9.5", "dnf"))[0].packages == ("gcc-toolset-13-gcc-c++",)
    assert compilers_of(distro("debian", "120", "apt")) == ()


def test_aliases() -> None:
    assert canonical(distro("linuxmint", "21.3", "apt")) == ("ubuntu", "22.04")
    assert canonical(DEBIAN12) == ("debian", "12")


def test_apt_refreshes_first_and_asks_nothing() -> None:
    commands = install_command(DEBIAN12, ["libnuma-dev"], root=True)
    assert commands[0] == ("apt-get", "update")
    assert commands[1][:2] == ("env", "DEBIAN_FRONTEND=noninteractive")
    assert "--no-install-recommends" in commands[1]
    assert commands[1][-1] == "libnuma-dev"


def test_sudo_only_for_others_than_root() -> None:
    for command in install_command(DEBIAN12, ["git"], root=False):
        assert command[0] == "sudo"
    for command in install_command(DEBIAN12, ["git"], root=True):
        assert "sudo" not in command


@pytest.mark.parametrize(
    ("family", "program"), [("dnf", "dnf"), ("zypper", "zypper"), ("pacman", "pacman")]
)
def test_other_families(family: str, program: str) -> None:
    (command,) = install_command(distro("x", "1", family), ["a", "a", "b"], root=True)
    assert command[0] == program
    assert command[-2:] == ("a", "b")


def test_nothing_to_install_is_no_command() -> None:
    assert install_command(DEBIAN12, [], root=True) == ()
    foreign = Package(need="cxx", names=("g++-13",), reason="", repository="ppa:x")
    assert install_command(DEBIAN12, [foreign], root=True) == ()


def test_one_line_can_be_pasted() -> None:
    line = one_line(install_command(DEBIAN12, ["g++"], root=False))
    assert line.startswith("sudo apt-get update && sudo env DEBIAN_FRONTEND=noninteractive apt-get")


def test_a_complete_host_misses_nothing(host, release) -> None:
    assert missing_packages(host, release) == ()


def test_everything_missing_is_named_once_with_reasons(host, change, release) -> None:
    bare = change(
        host,
        compilers=(),
        libraries={
            "numa_header": False,
            "numa_link": False,
            "numa_runtime": None,
            "tcmalloc": None,
        },
        tools=tuple(type(t)(name=t.name, path=None, version=None) for t in host.tools),
        interpreters=(),
    )
    found = {p.need: p for p in missing_packages(bare, release)}
    assert found["cxx"].names == ("g++",)
    assert found["cxx"].required
    assert found["numa_header"].names == ("libnuma-dev",)
    assert found["python"].names == ("python3.13", "python3.13-dev", "python3.13-venv")
    assert not found["tcmalloc"].required
    assert all(p.reason for p in found.values())


def test_what_was_not_tried_is_not_asked_for(host, change, release) -> None:
    facts = change(host, libraries={"numa_header": None, "numa_link": None}, tools=())
    assert missing_packages(facts, release) == ()


def test_a_compiler_below_the_floor_is_bettered_but_not_required(
    host, change, make_gxx, release
) -> None:
    facts = change(host, compilers=(make_gxx("12.2.0"),))
    (wanted,) = missing_packages(facts, release)
    assert wanted.names == ("g++",)
    assert not wanted.required


def test_headers_are_asked_for_only_where_no_interpreter_has_them(host, change, release) -> None:
    without = Interpreter(
        path="/usr/bin/python3.13",
        version="3.13.5",
        implementation="CPython",
        headers=False,
        venv=True,
    )
    facts = change(host, interpreters=(without,))
    assert [p.names for p in missing_packages(facts, release)] == [("python3.13-dev",)]
    both = change(host, interpreters=(without, host.interpreters[0]))
    assert missing_packages(both, release) == ()
