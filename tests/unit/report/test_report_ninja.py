"""Ninja's log, read by its format, whole and cut off, of one call and of several."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.report import ninja

CLOCK = 1_700_000_000
NS = 1_000_000_000


def log_of(*rows: tuple[int, int, int, str], version: int = 7) -> str:
    """Rows are (start ms, end ms, time stamp ns, output)."""
    lines = [f"{s}\t{e}\t{t}\t{o}\t{abs(hash((s, e, o))):x}" for s, e, t, o in rows]
    return "\n".join([f"# ninja log v{version}", *lines]) + "\n"


def started(clock: int, start: int, end: int, output: str) -> tuple[int, int, int, str]:
    """A row as ninja >= 1.11 writes it: the stamp is when the command started."""
    return start, end, clock * NS + start * 1_000_000, output


def finished(clock: int, start: int, end: int, output: str) -> tuple[int, int, int, str]:
    """A row as older ninjas write it: the stamp is when the output was written."""
    return start, end, clock * NS + end * 1_000_000, output


def outputs(log: ninja.BuildLog) -> list[list[str]]:
    return [[job.output for job in session.jobs] for session in log.sessions]


def test_times_are_in_seconds_and_the_clock_is_that_of_the_call() -> None:
    log = ninja.parse(log_of(started(CLOCK, 6, 2006, "CMakeFiles/_C.dir/a.cpp.o")))
    assert log.version == 7
    (session,) = log.sessions
    assert session.clock == pytest.approx(CLOCK)
    (job,) = session.jobs
    assert (job.start, job.end, job.seconds) == pytest.approx((0.006, 2.006, 2.0))
    assert (job.target, job.kind, job.name) == ("_C", "compile", "a.cpp")


@pytest.mark.parametrize("stamped", [started, finished])
def test_calls_are_told_apart_by_their_clock_even_where_the_end_does_not_fall(stamped) -> None:
    # The first call was killed after 2 s, so no end falls: only the clock shows the second one.
    log = ninja.parse(
        log_of(
            stamped(CLOCK, 5, 2000, "a.o"),
            stamped(CLOCK, 6, 2010, "b.o"),
            stamped(CLOCK + 600, 5, 9000, "c.o"),
            stamped(CLOCK + 600, 9001, 12000, "d.o"),
        )
    )
    assert outputs(log) == [["a.o", "b.o"], ["c.o", "d.o"]]
    assert [s.clock for s in log.sessions] == pytest.approx([CLOCK, CLOCK + 600], abs=0.01)


def test_order_in_the_log_does_not_matter() -> None:
    # Ninja rewrites a log that has grown, in no order.
    rows = [started(CLOCK + 900, 5, 80, "late.o"), started(CLOCK, 900, 1200, "y.o")]
    rows += [started(CLOCK, 5, 80, "x.o"), started(CLOCK + 900, 90, 100, "later.o")]
    assert outputs(ninja.parse(log_of(*rows))) == [["x.o", "y.o"], ["late.o", "later.o"]]


def test_without_time_stamps_a_falling_end_begins_a_new_call() -> None:
    log = ninja.parse(
        log_of((0, 50, 0, "a.o"), (10, 90, 0, "b.o"), (0, 40, 0, "c.o"), (5, 60, 0, "d.o"))
    )
    assert outputs(log) == [["a.o", "b.o"], ["c.o", "d.o"]]
    assert {s.clock for s in log.sessions} == {None}


def test_an_output_left_unchanged_has_an_old_stamp_and_stays_in_its_call() -> None:
    log = ninja.parse(
        log_of(
            started(CLOCK, 5, 100, "a.o"),
            (100, 120, (CLOCK - 86_400) * NS, "generated.h"),
            (120, 130, 0, "nothing"),
            started(CLOCK, 121, 300, "b.o"),
        )
    )
    assert outputs(log) == [["a.o", "generated.h", "nothing", "b.o"]]


def test_a_command_with_two_outputs_counts_once() -> None:
    text = f"# ninja log v7\n0\t9\t{CLOCK * NS}\tone.h\tbeef\n0\t9\t{CLOCK * NS}\ttwo.h\tbeef\n"
    assert outputs(ninja.parse(text)) == [["one.h"]]


@pytest.mark.parametrize(
    "line", ["12\t34", "a\tb\tc\td\te", "9\t3\t0\tx.o\tbeef", "1\t2\t3\t\tbeef", "1 2 3 x.o beef"]
)
def test_a_line_that_is_not_as_the_format_says_is_counted_not_guessed(line: str) -> None:
    log = ninja.parse(log_of(started(CLOCK, 0, 5, "a.o")) + line + "\n")
    assert (outputs(log), log.unread) == ([["a.o"]], 1)


@pytest.mark.parametrize("text", ["", "hello\n", "# ninja log v3\n", "\x7fELF"])
def test_what_is_no_log_of_ninja_is_refused(text: str) -> None:
    with pytest.raises(CpuBuildError, match="not a log of ninja") as caught:
        ninja.parse(text, name="x/.ninja_log")
    assert caught.value.exit_code == ExitCode.SETTINGS
    assert caught.value.problems[0].what.startswith("x/.ninja_log")


def test_a_log_of_nothing_has_no_session() -> None:
    assert ninja.parse("# ninja log v7\n").sessions == ()


@pytest.mark.parametrize(
    ("output", "target", "kind"),
    [
        ("CMakeFiles/_C_AVX2.dir/csrc/cpu/a.cpp.o", "_C_AVX2", "compile"),
        (
            ".deps/o/src/cpu/x64/CMakeFiles/dnnl_cpu_x64.dir/Unity/u.cxx.o",
            "dnnl_cpu_x64",
            "compile",
        ),
        ("CMakeFiles/_C.dir/cmake_pch.hxx.gch", "_C", "headers"),
        ("_C.abi3.so", "link", "link"),
        (".deps/onednn-build/src/libdnnl.a", "link", "link"),
        ("build.ninja", "other", "other"),
    ],
)
def test_an_output_names_its_target(output: str, target: str, kind: str) -> None:
    assert (ninja.target_of(output), ninja.kind_of(output)) == (target, kind)


def test_seconds_are_summed_by_target_the_most_expensive_first() -> None:
    log = ninja.parse(
        log_of(
            started(CLOCK, 0, 1000, "CMakeFiles/dnnl_cpu.dir/a.cpp.o"),
            started(CLOCK, 0, 2500, "CMakeFiles/_C.dir/b.cpp.o"),
            started(CLOCK, 1000, 1500, "CMakeFiles/dnnl_cpu.dir/c.cpp.o"),
        )
    )
    assert list(ninja.seconds_by_target(log.jobs).items()) == [
        ("_C", (1, 2.5)),
        ("dnnl_cpu", (2, 1.5)),
    ]
    assert log.sessions[0].busy == pytest.approx(4.0)
    assert log.sessions[0].seconds == 2.5


def job(start: float, end: float, output: str) -> ninja.Job:
    return ninja.Job(output=output, start=start, end=end, target="t", kind="compile")


def test_a_job_takes_the_lowest_lane_that_is_free() -> None:
    a, b, c, d = job(0, 5, "a"), job(0, 2, "b"), job(2, 4, "c"), job(4.5, 6, "d")
    assert ninja.lanes([d, c, b, a]) == {a: 1, b: 0, c: 0, d: 0}


@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.integers(0, 60)).map(lambda p: (p[0], p[0] + p[1])),
        min_size=1,
        max_size=40,
    )
)
def test_lanes_never_overlap_and_are_as_few_as_can_be(spans: list[tuple[int, int]]) -> None:
    jobs = [job(start, end, str(i)) for i, (start, end) in enumerate(spans)]
    placed = ninja.lanes(jobs)
    for one in jobs:
        for other in jobs:
            if one is not other and placed[one] == placed[other]:
                assert one.end <= other.start or other.end <= one.start
    real = [j for j in jobs if j.seconds > 0]
    most = max((sum(o.start <= j.start < o.end for o in real) for j in real), default=1)
    if len(real) == len(jobs):
        assert 1 + max(placed.values()) == most


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**5)), min_size=1, max_size=30),
    st.integers(1, 4),
)
def test_no_job_is_lost_whatever_the_calls(spans: list[tuple[int, int]], calls: int) -> None:
    rows = [
        started(CLOCK + 5000 * (i % calls), start, start + length, f"{i}.o")
        for i, (start, length) in enumerate(spans)
    ]
    log = ninja.parse(log_of(*rows))
    assert sorted(j.output for j in log.jobs) == sorted(row[3] for row in rows)
