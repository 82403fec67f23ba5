"""Failures in other words than the reported ones: other releases, systems, tools and languages."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path

import pytest

from cpubuild.diagnose import diagnose_lines
from cpubuild.diagnose.languages import english, phrases

CASES = Path(__file__).parents[2] / "cases"
WRITTEN = sorted((CASES / "written").glob("*.log"))
TOOLS = {"apt": "apt-get", "dnf": "dnf", "zypper": "zypper", "pacman": "pacman"}


def lines_of(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8").split("\n")


def test_there_are_logs_to_read() -> None:
    assert len(WRITTEN) >= 80


@pytest.mark.parametrize("path", WRITTEN, ids=lambda p: p.stem)
def test_the_kind_is_named_first(path: Path) -> None:
    found = diagnose_lines(lines_of(path))
    assert [c.id for c in found.causes[:1]] == [path.stem.split("__")[0]]
    assert found.causes[0].evidence
    assert found.causes[0].remedies


@pytest.mark.parametrize("family", TOOLS)
def test_a_remedy_is_for_the_packages_of_this_host(family: str) -> None:
    others = [tool for name, tool in TOOLS.items() if name != family]
    for path in WRITTEN:
        for cause in diagnose_lines(lines_of(path), family=family).causes:
            for remedy in cause.remedies:
                assert not any(f"sudo {tool} " in remedy for tool in others), path.stem


def test_phrases_of_other_languages_are_read_in_english() -> None:
    line = "/src/utils.cpp:2:10: erreur fatale : numa.h : Aucun fichier ou dossier de ce type"
    assert english(line) == "/src/utils.cpp:2:10: fatal error: numa.h: No such file or directory"
    assert english("Speicherzugriffsfehler (core dumped)") == "Segmentation fault (core dumped)"
    assert english("/usr/bin/ld: 找不到 -lnuma") == "/usr/bin/ld: cannot find -lnuma"


@pytest.mark.parametrize("line", ["ferro: an iron", "[1/2] Building a.o", "Erreurs: 0", "ok 错"])
def test_what_is_no_phrase_stays(line: str) -> None:
    assert english(line) == line


def test_every_phrase_becomes_english_and_stays_so() -> None:
    for foreign, text in phrases().items():
        assert english(foreign) == text
        assert english(text) == text


def test_no_phrase_is_written_twice() -> None:
    path = resources.files("cpubuild").joinpath("data", "rules", "languages.toml")
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    assert sum(map(len, tables.values())) == len(phrases())
