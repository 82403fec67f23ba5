"""What was asked for by name: an interpreter, a compiler; and what a host must give by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cpubuild import picks
from cpubuild.assess import Needs, assess
from cpubuild.assess import python as python_checks
from cpubuild.assess.base import Context
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.facts.model import Interpreter
from cpubuild.findings import Status
from cpubuild.survey import refuse_early


def python(version, path, **more):
    facts = {"implementation": "CPython", "headers": True, "venv": True} | more
    return Interpreter(path=path, version=version, **facts)


SYSTEM = python("3.11.2", "/usr/bin/python3.11", headers=False)
OWN = python("3.11.7", "/opt/py/bin/python3.11")
THREADED = python("3.12.1", "/opt/ft/bin/python3.12t", free_threaded=True)
NEWEST = python("3.12.0", "/opt/new/bin/python3.12")
PYTHONS = (SYSTEM, OWN, THREADED, NEWEST)


@pytest.mark.parametrize(
    ("wanted", "pythons", "path"),
    [
        ("/usr/bin/python3.11", PYTHONS, SYSTEM.path),
        ("3.11.7", PYTHONS, OWN.path),
        ("3.11", PYTHONS, OWN.path),  # of two the one with headers
        ("python3.11", PYTHONS, OWN.path),  # a name that is not on PATH
        ("3.12", PYTHONS, NEWEST.path),  # never the one without the GIL, unless named
        ("/opt/ft/bin/python3.12t", PYTHONS, THREADED.path),
        ("python3.11", (replace(SYSTEM, asked="python3.11"), OWN), SYSTEM.path),
        ("/home/me/venv", (replace(OWN, asked="/home/me/venv"), SYSTEM), OWN.path),
        ("3.9", PYTHONS, None),
        ("/nowhere/python3.11", PYTHONS, None),
        ("python", PYTHONS, None),
    ],
)
def test_check_and_plan_take_the_same_interpreter(host, release, wanted, pythons, path):
    facts = replace(host, interpreters=pythons)
    ctx = Context(facts=facts, release=release, needs=Needs(python=wanted))
    judged = python_checks.chosen(ctx)
    assert (judged.path if judged else None) == path
    if path is None or path == THREADED.path:
        with pytest.raises(CpuBuildError, match=f"^CPUBUILD_PYTHON {wanted}") as caught:
            picks.asked_interpreter(wanted, release, facts, origin="CPUBUILD_PYTHON")
        assert caught.value.exit_code is ExitCode.SETTINGS
    else:
        assert picks.asked_interpreter(wanted, release, facts).path == path


@pytest.mark.parametrize(
    ("needs", "environment", "remedy"),
    [
        ({"cxx": "/opt/none/g++"}, {}, "--cxx /usr/bin/g++"),
        ({"cxx": "/opt/none/g++", "cxx_from": "CPUBUILD_CXX"}, {}, "unset CPUBUILD_CXX"),
        ({"cxx": "/opt/none/g++", "cxx_from": "/etc/c.toml"}, {}, "take cxx out of /etc/c.toml"),
        ({}, {"CXX": "/opt/none/g++"}, "unset CXX CC"),
    ],
)
@pytest.mark.parametrize("there", [False, True])
def test_a_wrong_compiler_is_a_wrong_setting_of_whoever_named_it(
    host, change, make_gxx, release, needs, environment, remedy, there
):
    broken = replace(make_gxx("", "/opt/none/g++"), works=False, failure="no such option")
    compilers = (*((broken,) if there else ()), make_gxx("14.2.0", "/usr/bin/g++"))
    facts = change(host, compilers=compilers, environment=environment)
    found = assess(facts, release, needs=Needs(**needs))
    (finding,) = (f for f in found if f.id == "toolchain.gxx")
    assert (finding.status, finding.exit_code) == (Status.BLOCKER, ExitCode.SETTINGS)
    origin = needs.get("cxx_from", "--cxx") if needs else "CXX"
    said = "compiles nothing: no such option" if there else "is not a program"
    assert finding.found.startswith(f"/opt/none/g++ (asked for by {origin}) {said}")
    assert finding.remedy[0].startswith(remedy)


def test_without_another_compiler_the_remedy_is_to_install_one(host, change, release):
    facts = change(host, compilers=())
    found = assess(facts, release, needs=Needs(cxx="g++-99"))
    (finding,) = (f for f in found if f.id == "toolchain.gxx")
    assert finding.exit_code is ExitCode.SETTINGS
    assert "install" in finding.remedy[0]
    found = assess(facts, release)
    (finding,) = (f for f in found if f.id == "toolchain.gxx")
    assert finding.exit_code is ExitCode.PREREQUISITE


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ((), Status.UNKNOWN),
        ((("127.0.0.1", "ok"), ("::1", "ok")), Status.OK),
        ((("127.0.0.1", "ok"), ("::1", "Cannot assign requested address")), Status.OK),
        ((("127.0.0.1", "Network is unreachable"), ("::1", "ok")), Status.WARN),
        ((("127.0.0.1", "Network is unreachable"), ("::1", "no route")), Status.BLOCKER),
    ],
)
@pytest.mark.parametrize("offline", [False, True])
def test_loopback_must_carry_a_connection(host, change, release, answers, status, offline):
    facts = change(host, container={"loopback": answers})
    found = assess(facts, release, needs=Needs(offline=offline))
    (finding,) = (f for f in found if f.id == "network.loopback")
    assert finding.status is status
    assert all(reason in " ".join(finding.evidence) for _, reason in answers)
    if status is Status.BLOCKER:
        assert finding.exit_code is ExitCode.PREREQUISITE
        assert finding.remedy[0].startswith("ip link set lo up")


class Survey:
    """As much of a survey as the refusal looks at: packages will be installed."""

    installs = True

    def __init__(self, facts, findings):
        self.facts, self.findings = facts, findings


class Root:
    """A state root that is well."""

    def problems(self):
        return ()


def test_packages_mend_neither_a_wrong_setting_nor_a_missing_loopback(host, change, release):
    dead = (("127.0.0.1", "Network is unreachable"),)
    missing = change(host, compilers=())
    refuse_early(Survey(missing, assess(missing, release)), Root())
    for facts, needs, code in (
        (missing, Needs(cxx="g++-99"), ExitCode.SETTINGS),
        (missing, Needs(python="3.1"), ExitCode.SETTINGS),
        (change(missing, container={"loopback": dead}), Needs(), ExitCode.PREREQUISITE),
    ):
        with pytest.raises(CpuBuildError) as caught:
            refuse_early(Survey(facts, assess(facts, release, needs=needs)), Root())
        assert len(caught.value.problems) == 1
        assert caught.value.exit_code is code
