"""The report: selection, verdict, words for people, the document for machines, the fix."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild import check, speed
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.speed import Speed
from cpubuild.verdict import rank

MARKS = ("ok  ", "warn", "FAIL", "??  ")


@pytest.fixture
def bad(host, change):
    return change(host, libraries={"numa_runtime": None}, numa=())


def test_a_good_host(host, release) -> None:
    report = check.run_check(host, release)
    assert report.exit_code is ExitCode.OK
    assert report.verdict.level == "AMX and BF16"
    assert report.verdict.suits
    assert report.verdict.better_release is None


def test_the_document_follows_its_schema(host, bad, release) -> None:
    for facts in (host, bad):
        measured = Speed(copy_gb=1.0, gflops=None, load=0.5)
        document = check.run_check(facts, release, measured=measured).to_json()
        jsonschema.Draft202012Validator(dict(check.schema())).validate(document)
        assert {i for g in document["groups"] for i in g["findings"]} == {
            f["id"] for f in document["findings"]
        }


def test_the_schema_refuses_other_documents(host, release) -> None:
    document = check.run_check(host, release).to_json()
    document["verdict"]["level"] = ""
    assert not jsonschema.Draft202012Validator(dict(check.schema())).is_valid(document)


def test_all_blockers_at_once_and_the_gravest_code(host, change, release) -> None:
    facts = change(
        host,
        cpu={"flags": frozenset({"sse2"})},
        compilers=(),
        libraries={"numa_header": False},
        interpreters=(),
    )
    report = check.run_check(facts, release)
    stops = {f.id for f in report.findings if f.status.value == "blocker"}
    assert {"isa.level", "toolchain.gxx", "libraries.numa_header", "python.range"} <= stops
    assert report.exit_code is ExitCode.UNSUPPORTED
    assert not report.verdict.suits


def test_only_and_skip_take_ids_and_groups_with_commas(bad, release) -> None:
    only = check.run_check(bad, release, only=["toolchain.gxx,memory"])
    assert {f.id.split(".")[0] for f in only.findings} == {"toolchain", "memory"}
    assert only.exit_code is ExitCode.OK
    assert only.verdict.blockers == 1
    skipped = check.run_check(bad, release, skip=["libraries.numa_runtime"])
    assert "libraries.numa_runtime" not in {f.id for f in skipped.findings}
    assert "libraries.tcmalloc" in {f.id for f in skipped.findings}


def test_an_unknown_name_is_a_settings_error_with_a_hint(host, release) -> None:
    with pytest.raises(CpuBuildError) as caught:
        check.run_check(host, release, only=["memroy"])
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert "memory" in caught.value.problems[0].why


def test_one_line_a_finding_with_a_mark_that_needs_no_colour(bad, release) -> None:
    report = check.run_check(bad, release)
    lines = report.lines()
    for finding in report.findings:
        (line,) = (row for row in lines if row[2:].startswith(MARKS) and f" {finding.id}:" in row)
        assert "\x1b" not in line
    fails = [row for row in lines if row.startswith("  FAIL")]
    assert len(fails) == 1
    assert lines[-1] == report.verdict.summary


def test_what_is_not_well_has_its_reason_and_remedy_below(bad, release) -> None:
    text = "\n".join(check.run_check(bad, release).lines())
    assert "why: The kernel libraries load it" in text
    assert "do:  sudo apt-get update" in text
    assert "libnuma1" in text


def test_evidence_only_when_asked_for(host, release) -> None:
    report = check.run_check(host, release)
    assert "get_mempolicy: ok" not in "\n".join(report.lines())
    assert "get_mempolicy: ok" in "\n".join(report.lines(verbose=True))


def test_fix_runs_what_it_may_and_else_prints_one_block(bad, change, release) -> None:
    fix = check.fix_plan(bad, release)
    assert fix.allowed
    assert fix.commands[-1][-1] == "libnuma1"
    barred = change(bad, container={"can_install": False})
    fix = check.fix_plan(barred, release)
    assert not fix.allowed
    assert fix.block[-1].endswith("libnuma1")
    assert all(line.startswith("#") for line in fix.block[:-1])


def test_fix_on_alpine_says_why_not(host, change, release) -> None:
    facts = change(
        host,
        libc={"name": "musl", "version": "1.2.5"},
        distro={"id": "alpine", "family": "apk", "pretty": "Alpine Linux v3.21"},
    )
    fix = check.fix_plan(facts, release)
    assert not fix.allowed
    assert "musl" in fix.block[0]


def test_fix_with_nothing_to_do(host, release) -> None:
    fix = check.fix_plan(host, release)
    assert fix.packages == ()
    assert fix.commands == ()


@pytest.mark.parametrize(
    ("version", "gxx", "level"),
    [
        ("0.32.0", "14.2.0", "AMX and BF16"),
        ("0.32.0", "12.2.0", "AMX and BF16"),
        ("0.14.1", "14.2.0", "AMX and BF16"),
        ("0.14.1", "12.2.0", "AVX512"),
        ("0.9.2", "14.2.0", "AVX512 and BF16"),
    ],
)
def test_the_level_is_what_this_release_reaches_with_this_compiler(
    version, gxx, level, host, change, make_gxx, known
) -> None:
    facts = change(host, compilers=(make_gxx(gxx),))
    assert check.run_check(facts, known(version)).verdict.level == level


def test_the_better_release_is_the_newest_that_is_possible(host, change, release) -> None:
    python = type(host.interpreters[0])(
        path="/usr/bin/python3.10",
        version="3.10.12",
        implementation="CPython",
        headers=True,
        venv=True,
    )
    verdict = check.run_check(change(host, interpreters=(python,)), release).verdict
    assert not verdict.suits
    assert verdict.better_release == "0.31.0"
    assert "0.31.0" in verdict.summary


def test_a_release_that_reaches_less_names_one_that_reaches_more(host, known) -> None:
    verdict = check.run_check(host, known("0.9.2"), only=["isa"]).verdict
    assert verdict.better_release is not None
    assert verdict.level == "AVX512 and BF16"


def test_a_hopeless_host_has_no_better_release(host, change, release) -> None:
    facts = change(host, libc={"name": "musl", "version": "1.2"})
    assert check.run_check(facts, release).verdict.better_release is None


def test_a_host_that_can_never_run_it_is_not_supported_whatever_its_cpu(
    host, change, release
) -> None:
    verdict = check.run_check(change(host, libc={"name": "musl"}), release).verdict
    assert verdict.level == "not supported"
    assert verdict.host_level == "AMX and BF16"


def test_no_flags_is_unknown_and_not_unsupported(host, change, release) -> None:
    verdict = check.run_check(change(host, cpu={"flags": frozenset()}), release).verdict
    assert verdict.level == "unknown"
    assert verdict.suits


def test_levels_are_ranked_best_first() -> None:
    assert rank("AMX and BF16") < rank("AVX512") < rank("AVX2 only") < rank("not supported")


@pytest.mark.parametrize(
    ("copy", "gflops", "statuses"),
    [
        (20.0, 900.0, ["ok", "ok"]),
        (1.0, 900.0, ["warn", "ok"]),
        (20.0, 4.0, ["ok", "warn"]),
        (20.0, None, ["ok", "unknown"]),
    ],
)
def test_speed_is_judged_by_wide_bands(copy, gflops, statuses, host) -> None:
    found = speed.judge(Speed(copy_gb=copy, gflops=gflops, load=None), host.cpu)
    assert [f.status.value for f in found] == statuses


@given(st.lists(st.floats(0.001, 0.5), min_size=2, max_size=30))
def test_the_best_run_counts(durations: list[float]) -> None:
    ticks = iter([0.0])
    now = 0.0
    spans = iter(durations)

    def clock() -> float:
        return now

    def work() -> None:
        nonlocal now
        now += next(spans, 1.0)

    del ticks
    assert speed.best_rate(work, 0.01, clock) <= 1.0 / min(durations) + 1e-6


def test_a_look_at_speed_says_when_numpy_is_absent(monkeypatch) -> None:
    monkeypatch.setattr(speed, "find_spec", lambda name: None)
    assert speed.multiplier(8) is None


def test_the_copy_copies() -> None:
    speed.copier(1024)()
