"""docs/patches.md names every patch and every condition."""

from __future__ import annotations

import re
from pathlib import Path

from cpubuild.patching.predicate import CLAUSES
from cpubuild.patching.series import load

DOCS = Path(__file__).parents[3] / "docs" / "patches.md"


def test_the_table_lists_the_series_in_order():
    listed = re.findall(r"(?m)^\| `([a-z0-9-]+)` \|", DOCS.read_text())
    assert listed == [patch.id for patch in load()]


def test_every_condition_is_listed():
    keys = DOCS.read_text().partition("The keys:")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", keys)) == set(CLAUSES)
