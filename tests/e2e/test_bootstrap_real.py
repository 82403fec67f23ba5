"""What `make bootstrap` leaves on this machine, looked at from outside."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from tests.e2e.compiling import compiling, left_running, seeded

from cpubuild.settings import DEFAULT_VLLM

pytestmark = pytest.mark.e2e


def env_of(document: dict[str, Any]) -> Path:
    return Path(document["environment"])


def holds(document: dict[str, Any], name: str) -> None:
    """Validate against a schema; the schemas refer to each other by file name."""
    folder = resources.files("cpubuild").joinpath("data", "schemas")
    schemas = {f.name: json.loads(f.read_text()) for f in folder.iterdir()}
    registry = Registry().with_resources(
        (key, Resource.from_contents(value)) for key, value in schemas.items()
    )
    Draft202012Validator(schemas[f"{name}.json"], registry=registry).validate(document)


def test_documents_follow_their_schemas(installed: dict[str, Any], tool: Any) -> None:
    holds(installed, "bootstrap")
    holds(installed["receipt"], "receipt")
    holds(tool.document("status"), "status")
    holds(tool.document("plan"), "plan")


def test_the_receipt_says_what_was_built_from_what(installed: dict[str, Any]) -> None:
    receipt = installed["receipt"]
    assert receipt["vllm"]["version"] == f"{DEFAULT_VLLM}+cpu"
    assert {"vllm", "torch", "python", "compiler", "onednn"} <= set(receipt["sources"])
    assert receipt["verify"]["verdict"] == "pass"
    assert receipt["verify"]["platform"]["is_cpu"] is True
    wheel = receipt["wheel"]
    assert len(wheel["sha256"]) == 64
    assert any(p.startswith("host-target-only:") for p in wheel["inputs"]["patches"])
    pinned, used = (
        receipt["sources"]["onednn"]["record"]["tag"],
        receipt["wheel"]["inputs"]["onednn"],
    )
    if not used.startswith(pinned.removeprefix("v")):
        assert any(pinned.removeprefix("v") in text for text in receipt["warnings"])


def test_a_second_bootstrap_has_nothing_to_do(installed: dict[str, Any], tool: Any) -> None:
    again = tool.document("bootstrap")
    assert again["changed"] is False
    assert again["environment"] == installed["environment"]
    assert tool.document("plan")["changes"] is False


def test_current_is_what_was_proved(installed: dict[str, Any], state: Path) -> None:
    assert (state / "current").resolve() == env_of(installed).resolve()


def test_verify_says_it_again(installed: dict[str, Any], tool: Any) -> None:
    report = tool.document("verify")
    assert report["verdict"] == "pass"
    assert report["vllm"]["version"].endswith("+cpu")
    assert report["platform"]["class"].endswith("CpuPlatform")
    assert report["kernels"]["library"]
    assert report["smoke"]["tokens"]


def test_the_masking_variable_changes_nothing(installed: dict[str, Any], tool: Any) -> None:
    masked = {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "0"}
    report = tool.document("verify", "--quick", env=masked)
    assert report["verdict"] == "pass"


def test_vllm_answers_on_the_command_line(installed: dict[str, Any]) -> None:
    vllm = env_of(installed) / "bin" / "vllm"
    done = subprocess.run([vllm, "--version"], capture_output=True, text=True, check=True)
    assert f"{DEFAULT_VLLM}+cpu" in done.stdout


def test_pip_check_is_clean(installed: dict[str, Any]) -> None:
    python = env_of(installed) / "bin" / "python"
    argv = [sys.executable, "-m", "pip", "--python", str(python), "check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_env_file_can_be_sourced(installed: dict[str, Any], state: Path) -> None:
    script = f". {state}/current/env.sh && command -v vllm && printf '%s' \"$LD_PRELOAD\""
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=True)
    vllm, _, preload = done.stdout.partition("\n")
    assert Path(vllm).resolve().parent == (env_of(installed) / "bin").resolve()
    libraries = [Path(p) for p in preload.split(":") if p]
    assert all(p.is_file() for p in libraries)
    assert sum("omp" in p.name for p in libraries) <= 1


def test_a_patch_that_does_not_fit_leaves_current_alone(
    installed: dict[str, Any], tool: Any, state: Path, tmp_path: Path
) -> None:
    before = (state / "current").readlink()
    source = next(p for p in (state / "sources").glob("vllm-*") if has_version(p, DEFAULT_VLLM))
    tree = tmp_path / "broken"
    shutil.copytree(source / "tree", tree, ignore=shutil.ignore_patterns(".deps"))
    setup = tree / "setup.py"
    setup.write_text(setup.read_text().replace('name="vllm._C_AVX2"', 'name="vllm._C_" + "AVX2"'))
    done = tool.call("bootstrap", "--vllm", str(tree))
    assert done.returncode == 6, done.stderr[-2000:]
    assert "setup.py" in done.stderr
    assert (state / "current").readlink() == before


def has_version(tree: Path, version: str) -> bool:
    info = next(iter(tree.glob("tree/PKG-INFO")), None)
    return info is not None and f"\nVersion: {version}\n" in info.read_text()


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--vllm", "0.32.99"), 2, "0.32.99"),
        (("--python", "/no/such/python"), 2, "/no/such/python"),
        (("--jobs", "none"), 2, "--jobs"),
        (("--profile", "huge"), 2, "--profile"),
    ],
)
def test_bad_settings_are_named_and_nothing_moves(
    installed: dict[str, Any],
    tool: Any,
    state: Path,
    flags: tuple[str, ...],
    code: int,
    words: str,
) -> None:
    before = (state / "current").readlink()
    done = tool.call("bootstrap", *flags)
    assert done.returncode == code, done.stderr[-2000:]
    assert words in done.stderr
    assert (state / "current").readlink() == before


def test_a_killed_compile_goes_on(installed: dict[str, Any], state: Path, tmp_path: Path) -> None:
    """kill -9 of the tool in the middle of a compile; the next run takes up the objects."""
    root = seeded(state, tmp_path / "state")
    with compiling(root) as first:
        counted = first.until(objects=6)
        first.process.kill()
    with compiling(root) as second:
        assert second.until(objects=1)[1] <= counted[1] - 6
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(timeout=60) == 75
    assert not left_running(root)
