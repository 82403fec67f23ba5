"""The arithmetic of the benches, their pictures, and that the docs name each of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).resolve().parents[3]
BENCH = ROOT / "bench"
PARTS = ("lib", "picture", "traced", "bare")
COMMANDS = sorted(p.stem for p in BENCH.glob("*.py") if p.stem not in PARTS)
HOST = {
    "cpu": "a <CPU>",
    "cores": 2,
    "memory_gb": 8.0,
    "system": "an OS",
    "date": "2026-01-02T03:04:05Z",
    "load": 0.1,
}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Import a module of bench/ as its scripts do, and forget it afterwards."""
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module
    for name in {*PARTS, *COMMANDS} & (set(sys.modules) - before):
        del sys.modules[name]


def test_the_docs_name_every_command() -> None:
    text = (ROOT / "docs" / "bench.md").read_text()
    assert COMMANDS == ["cached", "check", "compile", "nothing_to_do", "verify"]
    for name in COMMANDS:
        assert f"`bench/{name}.py`" in text
        assert f"**{name}.**" in text


def test_a_ratio_is_taken_within_a_round(bench) -> None:
    lib = bench("lib")
    walls = {"base": iter([1.0, 10.0, 2.0]), "ours": iter([2.0, 5.0, 4.0])}
    order: list[str] = []

    def case(name: str, target: float | None = None):
        def run():
            order.append(name)
            return lib.Sample(wall=next(walls[name]), cpu=0.5)

        return lib.Case(name=name, run=run, target=target)

    base, ours = lib.rounds([case("base"), case("ours", 2.0)], runs=3, warm=False)
    assert order == ["base", "ours", "ours", "base", "base", "ours"]
    assert (base.median, base.ratio, base.ratios) == (2.0, None, ())
    assert ours.ratios == (2.0, 0.5, 2.0)
    assert (ours.median, ours.ratio) == (4.0, 2.0)
    result = lib.Result(bench="b", claim="C", host=HOST, rows=(base, ours), notes=("a note",))
    text = lib.table(result)
    assert "<= 2 met" in text
    assert "a note" in text
    assert "a <CPU>, 2 cores" in text
    missed = lib.table(
        lib.Result(
            bench="b", claim="C", host=HOST, rows=(base, lib.row(case("o", 1.9), *pair(lib)))
        )
    )
    assert "<= 1.9 MISSED" in missed


def pair(lib):
    return [lib.Sample(wall=2.0, cpu=0)], [lib.Sample(wall=1.0, cpu=0)]


def test_the_warm_up_does_not_count(bench) -> None:
    lib = bench("lib")
    walls = iter([100.0, 1.0, 3.0, 2.0])
    case = lib.Case(name="x", run=lambda: lib.Sample(wall=next(walls), cpu=0.0))
    (row,) = lib.rounds([case], runs=3)
    assert row.seconds == (1.0, 3.0, 2.0)


def test_a_picture_is_one_svg_and_its_bars_are_to_scale(bench) -> None:
    picture = bench("picture")
    svg = picture.bars(
        [
            picture.Bar(name="a & b", parts=(picture.Part(name="", value=4.0),), dots=(3.0, 5.0)),
            picture.Bar(name="c", parts=(picture.Part(name="", value=1.0),), note="<1"),
        ],
        title="T",
        unit="s",
        foot="f",
    )
    root = ET.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    bars = [r for r in root.iter(f"{space}rect") if r.find(f"{space}title") is not None]
    widths = [float(r.get("width", "")) + 1 for r in bars]
    assert widths[0] == pytest.approx(4 * widths[1], abs=0.3)
    assert len(list(root.iter(f"{space}circle"))) == 2
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_waiting_for_others_is_not_the_tools_own_time(bench) -> None:
    cached = bench("cached")
    parts = cached.split(
        {
            "seconds": 20.0,
            "calls": [
                [1.0, 5.0, "uv pip install"],
                [4.0, 6.0, "g++ --version"],  # one second of it while uv runs
                [8.0, 18.0, "python ask_runtime.py documents"],
            ],
        }
    )
    assert parts == {cached.VLLM: 10.0, cached.UV: 4.0, cached.OTHERS: 1.0, "the tool itself": 5.0}


def log_of(*rows: tuple[int, int, str]) -> str:
    return "# ninja log v7\n" + "".join(
        f"{a}\t{b}\t{(10**9 + a) * 10**6}\t{o}\t{i:x}\n" for i, (a, b, o) in enumerate(rows)
    )


def test_compiler_seconds_count_an_output_once(bench, tmp_path: Path) -> None:
    compiling = bench("compile")
    (tmp_path / "log").write_text(
        log_of(
            (0, 9000, "deps/CMakeFiles/dnnl_cpu.dir/a.o"),
            (9000, 11000, "deps/CMakeFiles/dnnl_cpu.dir/a.o"),
            (0, 1000, "deps/CMakeFiles/dnnl_cpu_x64.dir/b.o"),
            (0, 4000, "CMakeFiles/_C.dir/c.o"),
        )
    )
    log = compiling.read(tmp_path / "log")
    assert compiling.from_log(log) == {"_C": 4.0, "oneDNN": 3.0}
    sides, notes, judged = compiling.whole([tmp_path / "log"] * 2)
    assert not judged
    assert "NOT A WHOLE BUILD" in "\n".join(notes)
    (tmp_path / "log").write_text(log_of((0, 4000, "CMakeFiles/_C.dir/c.o"), (4000, 5000, "_C.so")))
    sides, notes, judged = compiling.whole([tmp_path / "log"] * 2)
    assert judged
    assert sides[0] == {"_C": 4.0, "link": 1.0}
    assert compiling.rows_of(sides, judged=judged)[1].ratio == 1.0


def test_a_part_is_scaled_to_the_whole_and_headers_count_once(bench) -> None:
    compiling = bench("compile")

    def command(output: str, group: str):
        return compiling.Command(argv=("c++",), output=output, group=group)

    every = [command("p.gch", "_C"), *(command(f"{i}.o", "_C") for i in range(10))]
    every += [command(f"d{i}.o", "oneDNN") for i in range(3)]
    chosen = compiling.choose(every, 2, seed=1)
    assert chosen == compiling.choose(every, 2, seed=1)
    assert sorted(c.group for c in chosen) == ["_C", "_C", "_C", "oneDNN", "oneDNN"]
    seconds = {c.output: 5.0 if c.output == "p.gch" else 2.0 for c in chosen}
    assert compiling.scaled(every, chosen, seconds) == {"_C": 25.0, "oneDNN": 6.0}
