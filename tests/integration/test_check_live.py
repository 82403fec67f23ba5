"""The check on the machine that runs the tests: real facts, real speed, the document's schema."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path

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


def called(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "cpubuild"
    words = [str(program), "check", *argv]
    more = os.environ | environ
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env=more)


def test_a_document_with_facts_judges_the_host_elsewhere(tmp_path) -> None:
    secret = {"PIP_EXTRA_INDEX_URL": "https://me:not-for-others@index.example/simple"}
    here = called("--json", "--verbose", "--offline", **secret)
    document = json.loads(here.stdout)
    jsonschema.Draft202012Validator(dict(check.schema())).validate(document)
    assert "index.example" in json.dumps(document["facts"])
    assert "not-for-others" not in here.stdout
    file = tmp_path / "host.json"
    file.write_text(here.stdout, encoding="utf-8")
    there = called("--host", str(file), "--json")
    assert json.loads(there.stdout)["verdict"]["level"] == document["verdict"]["level"]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(here.stdout,), daemon=True)
    writer.start()
    time.sleep(0.2)  # a named pipe that nobody writes to counts as empty
    assert called("--host", str(pipe), "--json").stdout == there.stdout


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (os.mkfifo, "cannot be read"),
        (Path.mkdir, "no proc/cpuinfo"),
        (lambda path: path.symlink_to("/dev/zero"), "more than 16 MiB"),
        (lambda path: path.write_text("[" * 100_000), "cannot be read"),
        (lambda path: path.write_text('{"verdict": {}}'), "written without --verbose"),
    ],
)
def test_what_is_no_recorded_host_is_refused_at_once(tmp_path, make, words) -> None:
    make(tmp_path / "host")
    done = called("--host", str(tmp_path / "host"))
    assert done.returncode == 2
    assert words in done.stderr
    assert "--verbose > HOST.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_short_version_is_the_release(facts) -> None:
    assert known_release("0.32", facts.cpu.arch) == known_release("0.32.0", facts.cpu.arch)
