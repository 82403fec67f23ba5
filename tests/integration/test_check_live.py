"""The check on the machine that runs the tests: real facts, real speed, the document's schema."""

from __future__ import annotations

import platform
import time

import jsonschema
import pytest

from cpubuild import check, speed
from cpubuild.assess import look_around
from cpubuild.facts.collect import collect
from cpubuild.release import known_release

pytestmark = pytest.mark.integration


@pytest.fixture
def release():
    found = known_release("0.32.0", platform.machine())
    if found is None:
        pytest.skip(f"no recorded release for {platform.machine()}")
    return found


@pytest.fixture
def facts(tmp_path):
    return collect(disks={"state": tmp_path, "tmp": tmp_path, "cache": tmp_path})


def test_this_machine_is_judged_and_the_document_is_valid(facts, release) -> None:
    around = look_around(facts)
    report = check.run_check(facts, release, around=around, measured=speed.look())
    jsonschema.Draft202012Validator(dict(check.schema())).validate(report.to_json())
    ids = {f.id for f in report.findings}
    assert {"isa.level", "toolchain.gxx", "host.bandwidth", "container.seccomp"} <= ids
    assert report.lines()[-1] == report.verdict.summary
    assert report.verdict.level != "unknown"


def test_judging_is_quick(facts, release) -> None:
    around = look_around(facts)
    check.run_check(facts, release, around=around)
    started = time.perf_counter()
    check.run_check(facts, release, around=around)
    assert time.perf_counter() - started < 1.0


def test_a_look_at_speed_is_short_and_plausible() -> None:
    speed.look()
    started = time.perf_counter()
    measured = speed.look()
    assert time.perf_counter() - started < 2.0
    assert 0.1 < measured.copy_gb < 1000
