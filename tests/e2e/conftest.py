"""The real thing: one bootstrap of the default release, shared by every test of this folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CPUBUILD = Path(sys.executable).parent / "cpubuild"
TWO_HOURS = 2 * 3600.0


@dataclass(frozen=True)
class Tool:
    """Calls the console script with one state root."""

    state: Path

    def call(
        self, *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        surroundings = {k: v for k, v in os.environ.items() if not k.startswith("CPUBUILD_")}
        surroundings |= {"CPUBUILD_STATE": str(self.state)} | dict(env or {})
        return subprocess.run(
            [str(CPUBUILD), *argv],
            env=surroundings,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TWO_HOURS,
            check=False,
        )

    def document(self, *argv: str, code: int = 0, **more: Any) -> dict[str, Any]:
        done = self.call(*argv, "--json", **more)
        assert done.returncode == code, f"{argv}: {done.returncode}\n{done.stderr[-4000:]}"
        value: dict[str, Any] = json.loads(done.stdout)
        return value


@pytest.fixture(scope="session")
def state() -> Path:
    """The state root of `make bootstrap`, or that of CPUBUILD_STATE."""
    import platformdirs

    named = os.environ.get("CPUBUILD_STATE")
    return Path(named) if named else Path(platformdirs.user_state_path("vllm-cpu-build"))


@pytest.fixture(scope="session")
def tool(state: Path) -> Tool:
    return Tool(state)


@pytest.fixture(scope="session")
def installed(tool: Tool) -> dict[str, Any]:
    """The outcome of a real bootstrap; on a machine that has none it takes the compile's time."""
    return tool.document("bootstrap")


def tail(lines: Sequence[str], count: int = 20) -> str:
    return "\n".join(lines[-count:])
