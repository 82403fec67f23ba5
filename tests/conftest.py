"""What all tests share: the same examples on every run, and the marker of each folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

HERE = Path(__file__).parent
MARKED = {"integration": HERE / "integration", "e2e": HERE / "e2e"}

# Examples come from the test itself, so that a red test is red again; a slow machine is no failure.
settings.register_profile("cpubuild", derandomize=True, deadline=None, database=None)
settings.load_profile("cpubuild")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker, folder in MARKED.items():
            if item.path.is_relative_to(folder):
                item.add_marker(marker)
