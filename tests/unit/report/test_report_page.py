"""What a run recorded becomes a page that stands alone and says what was and was not recorded."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cpubuild import jsonio
from cpubuild.calls import Call
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.report import last_build, layout, make_report, page, recorded, words
from cpubuild.report.ninja import parse
from cpubuild.report.verb import report

CLOCK = 1_700_000_000
VOID = {"meta", "link", "br", "img", "input"}
NINJA_LOG = "# ninja log v7\n" + "".join(
    f"{start}\t{end}\t{(CLOCK * 1000 + start) * 1_000_000}\t{output}\t{number:x}\n"
    for number, (start, end, output) in enumerate(
        [
            (5, 60_000, "CMakeFiles/_C.dir/csrc/cpu/cpu_attn.cpp.o"),
            (6, 20_000, "deps/CMakeFiles/dnnl_cpu.dir/a<b>&c.cpp.o"),
            (20_000, 50_000, "deps/CMakeFiles/dnnl_cpu.dir/d.cpp.o"),
            (60_000, 61_000, "_C.abi3.so"),
        ]
    )
)
JOURNAL = {
    "plan": "0.32.0-abc",
    "steps": [
        {"id": "lock", "fingerprint": "f", "status": "done", "seconds": 4.0, "log": "l"},
        {"id": "compile", "fingerprint": "f", "status": "failed", "seconds": 96.0, "log": "l"},
    ],
}
MEMORY = f"# clock {CLOCK - 10}\nseconds,used,available\n" + "".join(
    f"{at}.0,{1_000_000_000 + at * 10_000_000},{20_000_000_000}\n" for at in range(0, 100, 2)
)
CACHE = "# a.cpp\ndirect_cache_hit\nlocal_storage_hit\n# b.cpp\ncache_miss\ndirect_cache_miss\n"


class Page(HTMLParser):
    """Collects text by tag and holds that every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        if data.strip():
            self.text.append(data.strip())

    def count(self, tag: str, name: str) -> int:
        return sum(t == tag and n == name for t, n, _ in self.attributes)


def make_run(folder: Path, **files: str) -> Path:
    names = {
        "journal": recorded.JOURNAL,
        "ninja": recorded.NINJA_LOG,
        "memory": recorded.MEMORY,
        "cache": recorded.CACHE_LOG,
    }
    for key, text in files.items():
        path = folder / names[key]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def whole_run(tmp_path: Path) -> Path:
    return make_run(
        tmp_path / "20260101T000000-bootstrap-1",
        journal=json.dumps(JOURNAL),
        ninja=NINJA_LOG,
        memory=MEMORY,
        cache=CACHE,
    )


def test_the_page_shows_everything_that_was_recorded(whole_run: Path, tmp_path: Path) -> None:
    out = make_report(whole_run, tmp_path / "new" / "report.html")
    seen = Page(out.read_text())
    assert seen.open == []
    assert seen.count("rect", "x") == 4
    text = " ".join(seen.text)
    for wanted in (
        "Build 0.32.0-abc",
        "2023-11-14 22:13:20 UTC",
        "1 min 01 s",  # start to end
        "cpu_attn.cpp",
        "a<b>&c.cpp",
        "1 hit, 1 miss",
        "1.7 GB",  # most memory, at 70 s of the sampler: the last within the session, 61 s + 10 s
        "dnnl_cpu",
        "failed",
        "96 %",
        "At its end fewer than 2 cores were busy for 11 s.",
    ):
        assert wanted in text, wanted


def test_the_page_needs_nothing_beside_it(whole_run: Path, tmp_path: Path) -> None:
    text = make_report(whole_run, tmp_path / "r.html").read_text()
    assert not re.search(r"https?://|@import|url\(|<script|<link|<img|src=", text)
    assert "prefers-color-scheme: dark" in text


def test_the_same_run_gives_the_same_page(whole_run: Path, tmp_path: Path) -> None:
    one, two = (make_report(whole_run, tmp_path / name).read_bytes() for name in ("1", "2"))
    assert one == two


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"journal": json.dumps(JOURNAL)}, "No log of ninja was kept"),
        ({"journal": json.dumps(JOURNAL), "memory": MEMORY}, "No log of ninja was kept"),
        ({"ninja": NINJA_LOG}, "Memory was not recorded"),
        ({"ninja": "# ninja log v7\n"}, "No log of ninja was kept"),
        ({"ninja": NINJA_LOG + "1\t2"}, "1 line of the log could not be read."),
        ({"ninja": NINJA_LOG, "memory": "# clock nan\n1,2"}, "Memory was not recorded"),
    ],
)
def test_what_was_not_recorded_is_said(files: dict[str, str], said: str, tmp_path: Path) -> None:
    seen = Page(make_report(make_run(tmp_path / "run", **files), tmp_path / "r.html").read_text())
    assert seen.open == []
    assert said in " ".join(seen.text)


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CpuBuildError, match="holds neither") as caught:
        make_report(tmp_path, tmp_path / "r.html")
    assert caught.value.exit_code == ExitCode.SETTINGS
    assert not (tmp_path / "r.html").exists()


def test_the_last_build_is_the_newest_that_compiled(tmp_path: Path) -> None:
    assert last_build(tmp_path / "runs") is None
    runs = tmp_path / "runs"
    make_run(runs / "20260101T000000-bootstrap-1", journal="{}", ninja=NINJA_LOG)
    make_run(runs / "20260102T000000-bootstrap-1", journal="{}")
    (runs / "20260103T000000-verify-1").mkdir()
    assert last_build(runs) == runs / "20260101T000000-bootstrap-1"
    (runs / "20260101T000000-bootstrap-1" / "compile" / "ninja_log").unlink()
    assert last_build(runs) == runs / "20260102T000000-bootstrap-1"


def test_every_bar_lies_in_the_drawing_and_in_its_lane() -> None:
    log = parse(NINJA_LOG)
    chart = layout.timeline(log.sessions, dict.fromkeys(("_C", "dnnl_cpu", "link"), "c0"))
    for bar in chart.bars:
        assert bar.x >= layout.LEFT
        assert bar.x + bar.width <= layout.WIDTH - layout.RIGHT + 0.1
        assert bar.y + bar.height <= chart.bottom
    assert [mark.text for mark in chart.lanes] == ["core 1", "core 2"]
    longest = next(bar for bar in chart.bars if "cpu_attn" in bar.title)
    assert longest.label == "cpu_attn.cpp"


def test_many_cores_still_fit() -> None:
    rows = "".join(f"0\t9000\t0\tCMakeFiles/t.dir/{i}.o\t{i:x}\n" for i in range(128))
    chart = layout.timeline(parse("# ninja log v7\n" + rows).sessions, {"t": "c0"})
    assert chart.bottom < 1000
    gaps = [b.at - a.at for a, b in zip(chart.lanes, chart.lanes[1:], strict=False)]
    assert min(gaps) >= 12


def test_memory_lies_on_the_time_axis_of_its_session() -> None:
    log = parse(NINJA_LOG)
    axis = layout.segments(log.sessions)
    chart = layout.memory_chart(recorded.parse_memory(MEMORY), axis)
    assert chart.peak is not None
    assert chart.peak.text == "1.7 GB"
    assert chart.peak.x == pytest.approx(axis[0].at(60.0), abs=1.0)  # not the samples after it
    assert len(chart.used) == len(chart.ceiling) == 1


def test_without_a_clock_memory_belongs_to_the_end() -> None:
    memory = recorded.parse_memory(MEMORY.split("\n", 1)[1])
    assert memory.clock is None
    chart = layout.memory_chart(memory, layout.segments(parse(NINJA_LOG).sessions))
    assert chart.peak is not None
    assert chart.peak.text == "2.0 GB"


def test_a_step_that_says_when_it_began_is_drawn_there() -> None:
    steps = recorded.parse_steps(
        {
            "steps": [
                {"id": "a", "status": "done", "seconds": 50, "started": 0},
                {"id": "b", "status": "done", "seconds": 100, "started": 0},
            ]
        }
    )
    rows = page.step_rows(steps)
    assert [(r["offset"], r["percent"]) for r in rows] == [("0.00", "50.00"), ("0.00", "100.00")]
    in_order = page.step_rows(recorded.parse_steps(JOURNAL))
    assert [(r["offset"], r["colour"]) for r in in_order] == [("0.00", "c0"), ("4.00", "failed")]


@pytest.mark.parametrize(("text", "hits"), [(CACHE, (1, 1)), ("# a.cpp\n", None), ("", None)])
def test_hits_of_the_compiler_cache_are_counted(text: str, hits: tuple[int, int] | None) -> None:
    found = recorded.parse_cache(text)
    assert (None if found is None else (found.hits, found.misses)) == hits


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations_in_words(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1500, "1.5 kB"), (2.5e6, "2.5 MB"), (3.84e9, "3.8 GB")]
)
def test_sizes_in_words(count: float, text: str) -> None:
    assert words.size(count) == text


@pytest.mark.parametrize(("width", "label"), [(200, "cpu_attn.cpp"), (70, "cpu_atto"), (30, "")])
def test_a_label_is_cut_to_fit_or_left_out(width: float, label: str) -> None:
    shown = layout.fitted("cpu_attn.cpp", width)
    assert shown == label or (shown.endswith("\u2026") and len(shown) * layout.LETTER <= width)
    assert bool(shown) == bool(label)


def call_of(tmp_path: Path, **options: str | None) -> Call:
    flags = {"state": str(tmp_path / "state")}
    given = {"run": None, "out": None, **options}
    return Call(flags=flags, options=given, verbose=False, environ={})


def test_the_verb_draws_the_last_build_beside_its_logs(tmp_path: Path) -> None:
    run = make_run(
        tmp_path / "state" / "runs" / "20260101T000000-bootstrap-1",
        journal=json.dumps(JOURNAL),
        ninja=NINJA_LOG,
        memory=MEMORY,
        cache=CACHE,
    )
    outcome = report(call_of(tmp_path))
    assert outcome.lines == [str(run / "report.html")]
    assert (run / "report.html").read_text().startswith("<!DOCTYPE html>")
    document = json.loads(jsonio.dumps(outcome.document))
    assert document["compile"]["seconds"] == 61.0
    assert document["compile"]["cores"] == 2
    assert document["compile"]["targets"]["dnnl_cpu"]["commands"] == 2
    assert document["memory"] == {"most_used": 1_980_000_000, "least_available": 20_000_000_000}
    assert document["compiler_cache"] == {"hits": 1, "misses": 1}
    assert [step["status"] for step in document["steps"]] == ["done", "failed"]


def test_the_verb_draws_a_named_run_where_it_is_told(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", journal=json.dumps(JOURNAL))
    outcome = report(call_of(tmp_path, run=str(run), out=str(tmp_path / "a" / "b.html")))
    assert (tmp_path / "a" / "b.html").is_file()
    assert outcome.document["compile"] is outcome.document["memory"] is None


@pytest.mark.parametrize("options", [{}, {"run": "nowhere"}, {"out": "file/r.html"}])
def test_the_verb_refuses_what_cannot_be_done(tmp_path: Path, options: dict[str, str]) -> None:
    if "out" in options:
        make_run(tmp_path / "state" / "runs" / "1", journal=json.dumps(JOURNAL))
        (tmp_path / "file").touch()
    given = {name: str(tmp_path / value) for name, value in options.items()}
    with pytest.raises(CpuBuildError) as caught:
        report(call_of(tmp_path, **given))
    assert caught.value.exit_code == ExitCode.SETTINGS
    assert caught.value.problems[0].remedy


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 5, "0 %"),
        (0.01, 5, "<1 %"),
        (2, 5, "40 %"),
        (4.99, 5, ">99 %"),
        (5, 5, "100 %"),
        (1, 0, "-"),
    ],
)
def test_a_share_is_neither_nothing_nor_all_unless_it_is(part, whole, text: str) -> None:
    assert words.share(part, whole) == text
