"""Every known failure is named first, as it was printed and as logs reach a tool: dirty."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from cpubuild.diagnose import diagnose_lines, diagnose_paths

CASES = Path(__file__).parents[2] / "cases"
REPORTS = sorted((CASES / "reports").glob("*.log"))
REAL = sorted((CASES / "real").glob("*.log"))
HEALTHY = sorted((CASES / "healthy").glob("*.log"))
NINJA = (CASES / "healthy" / "build-0.32.log").read_text().splitlines()
CONFIGURE = (CASES / "healthy" / "configure-0.32.log").read_text().splitlines()

Lines = list[str]


def expected(path: Path) -> str:
    return path.stem.split("__")[0]


def colour(lines: Lines) -> Lines:
    return [
        "\x1b[0;31m" + re.sub("(?i)(error)", "\x1b[1m\\1\x1b[22m", line) + "\x1b[0m"
        for line in lines
    ]


def buildkit(lines: Lines) -> Lines:
    return [f"#42 {511.5 + i / 10:.1f} {line}" for i, line in enumerate(lines)]


def excerpt(lines: Lines) -> Lines:
    return [f"{27.05 + i / 10:.2f} {line}" for i, line in enumerate(lines)]


def worker(lines: Lines) -> Lines:
    return [f"(EngineCore_DP0 pid=7) ERROR 11-18 13:44:09 [core.py:842] {line}" for line in lines]


def stamped(lines: Lines) -> Lines:
    return [f"2025-11-18T13:44:09.123456789Z {line}" for line in lines]


def kubectl(lines: Lines) -> Lines:
    return [f"[pod/vllm-0/server] 2025-11-18T13:44:09.1Z stderr F {line}" for line in lines]


def journal(lines: Lines) -> Lines:
    return [f"Nov 18 13:44:09 host vllm[77]: {line}" for line in lines]


def compose(lines: Lines) -> Lines:
    return [f"vllm-1  | {line}" for line in lines]


def boxed(lines: Lines) -> Lines:
    return [f"      │ {line}" for line in lines]


def quoted(lines: Lines) -> Lines:
    return [re.sub("'([^']*)'", "\u2018\\1\u2019", line) for line in lines]


def windows(lines: Lines) -> Lines:
    return [line + "\r\n" for line in lines]


def redrawn(lines: Lines) -> Lines:
    return [" 10%|#   |\r 55%|##  |\r" + line for line in lines]


def wrapped(lines: Lines) -> Lines:
    return [w for line in lines for w in textwrap.wrap(line, 75, subsequent_indent="  ") or [line]]


def broken(lines: Lines) -> Lines:
    return [w for line in lines for w in textwrap.wrap(line, 75) or [line]]


def amid(lines: Lines) -> Lines:
    return [*CONFIGURE, *NINJA, *lines, "ninja: build stopped: subcommand failed."]


def composed(*steps: Callable[[Lines], Lines]) -> Callable[[Lines], Lines]:
    def apply(lines: Lines) -> Lines:
        for step in steps:
            lines = step(lines)
        return lines

    return apply


DIRT = {
    "plain": list[str],
    "colour": colour,
    "buildkit": buildkit,
    "excerpt": excerpt,
    "worker": worker,
    "stamped": stamped,
    "kubectl": kubectl,
    "journal": journal,
    "compose": compose,
    "boxed": boxed,
    "quoted": quoted,
    "windows": windows,
    "redrawn": redrawn,
    "wrapped": wrapped,
    "broken": broken,
    "wrapped then buildkit": composed(wrapped, buildkit),
    "broken then worker": composed(broken, worker),
    "colour then buildkit": composed(colour, buildkit),
    "buildkit then colour": composed(buildkit, colour),
    "amid ninja": amid,
    "amid ninja, all of it": composed(quoted, wrapped, amid, colour, buildkit),
}


@pytest.mark.parametrize("dirt", DIRT)
@pytest.mark.parametrize("path", REPORTS, ids=lambda p: p.stem)
def test_a_reported_failure_is_the_first_cause(path: Path, dirt: str) -> None:
    lines = DIRT[dirt](path.read_text().splitlines())
    causes = diagnose_lines(lines).causes
    assert [c.id for c in causes[:1]] == [expected(path)]


# A bare `Killed` among ninja's lines is a compiler's, so that log is not mixed with them.
OWN = [
    pytest.param(path, dirt, id=f"{path.stem}-{dirt}")
    for path in REAL
    for dirt in ("plain", "buildkit", "amid ninja, all of it")
    if not (path.stem == "oom-killed-run" and "ninja" in dirt)
]


@pytest.mark.parametrize(("path", "dirt"), OWN)
def test_a_failure_of_our_own_is_the_first_cause(path: Path, dirt: str) -> None:
    lines = DIRT[dirt](path.read_text().splitlines())
    causes = diagnose_lines(lines).causes
    assert [c.id for c in causes[:1]] == [expected(path)]


@pytest.mark.parametrize("path", REAL + REPORTS, ids=lambda p: p.stem)
def test_evidence_is_the_line_it_says(path: Path) -> None:
    lines = path.read_text().splitlines()
    (*causes,) = diagnose_paths([path]).causes
    for evidence in causes[0].evidence:
        assert lines[evidence.line - 1].rstrip().startswith(evidence.text[:300])


# What this tool prints is indented by meaning, which wrapping here would take away.
UNWRAPPED = {"bootstrap-0.30"}


@pytest.mark.parametrize(
    ("path", "dirt"),
    [
        pytest.param(path, dirt, id=f"{path.stem}-{dirt}")
        for path in HEALTHY
        for dirt in ("plain", "colour", "buildkit", "stamped", "wrapped")
        if not (dirt == "wrapped" and path.stem in UNWRAPPED)
    ],
)
def test_a_healthy_log_has_no_finding(path: Path, dirt: str) -> None:
    found = diagnose_lines(DIRT[dirt](path.read_text().splitlines()))
    assert [c.id for c in found.causes] == []
    assert (found.unknown, found.first_error) == (False, None)
    assert found.healthy


def test_every_real_log_has_its_note() -> None:
    import tomllib

    notes = tomllib.loads((CASES / "real" / "NOTES.toml").read_text())
    assert set(notes) == {p.stem for p in REAL}


def test_the_cases_name_no_place_they_came_from() -> None:
    for path in CASES.rglob("*.*"):
        text = path.read_text("utf-8", "replace")
        assert not re.search(r"/tmp/w/|/work/|pypi\.org|deb\.debian\.org", text), path.name
