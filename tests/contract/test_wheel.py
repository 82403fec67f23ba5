"""The built wheel holds every module, table, probe, patch and template, and works on its own."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cpubuild import __version__
from cpubuild.installer import uv_program

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "build" / "cpubuild"
SHIPPED = ("patches", "templates")


def files(folder: Path) -> set[str]:
    found = (p for p in folder.rglob("*") if p.is_file())
    return {
        p.relative_to(folder).as_posix()
        for p in found
        if "__pycache__" not in p.parts and p.suffix != ".pyc"
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, made from the source distribution: so that is complete too."""
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [uv_program(), "build", "--out-dir", out, ROOT],
        capture_output=True,
        text=True,
        timeout=600,
        env={k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"},
    )
    assert done.returncode == 0, done.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.mark.integration
def test_the_wheel_holds_exactly_what_the_checkout_holds(unpacked):
    here = {f"cpubuild/{name}" for name in files(PACKAGE)}
    for folder in SHIPPED:
        here |= {f"cpubuild/_shipped/{folder}/{name}" for name in files(ROOT / folder)}
    packed = {name for name in files(unpacked) if ".dist-info/" not in name}
    assert sorted(packed - here) == []
    assert sorted(here - packed) == []
    assert len(here) > 100


@pytest.mark.integration
def test_every_file_arrives_as_it_is(unpacked):
    for name in files(PACKAGE):
        assert (unpacked / "cpubuild" / name).read_bytes() == (PACKAGE / name).read_bytes(), name
    for folder in SHIPPED:
        for name in files(ROOT / folder):
            packed = unpacked / "cpubuild" / "_shipped" / folder / name
            assert packed.read_bytes() == (ROOT / folder / name).read_bytes(), name


@pytest.mark.integration
def test_the_wheel_says_what_it_is(unpacked):
    (info,) = unpacked.glob("*.dist-info")
    metadata = email.message_from_string((info / "METADATA").read_text(encoding="utf-8"))
    assert (metadata["Name"], metadata["Version"]) == ("vllm-cpu-build", __version__)
    assert metadata["Requires-Python"] == ">=3.11"
    wanted = " ".join(metadata.get_all("Requires-Dist", []))
    assert "torch" not in wanted
    assert "vllm" not in wanted
    assert "cpubuild = cpubuild.cli:main" in (info / "entry_points.txt").read_text()
    assert "Tag: py3-none-any" in (info / "WHEEL").read_text()


@pytest.mark.integration
def test_it_works_from_its_own_files(unpacked):
    code = """
import cpubuild, sys
from cpubuild import patching, render
assert cpubuild.__file__.startswith(sys.argv[1]), cpubuild.__file__
for name in ("patches", "templates"):
    assert str(render.shipped(name)).startswith(sys.argv[1]), render.shipped(name)
    assert any(render.shipped(name).iterdir())
sys.argv = ["cpubuild", "check", "--list"]
from cpubuild.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, unpacked],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=unpacked,
        env={"PYTHONPATH": str(unpacked), "PATH": os.environ["PATH"], "HOME": str(unpacked)},
    )
    assert done.returncode == 0, done.stderr
    assert "toolchain" in done.stdout


@pytest.mark.integration
@pytest.mark.parametrize("rule", ["build/", "build", "**/build/**", "/build"])
def test_no_ignore_rule_of_a_user_hides_the_source_root(tmp_path, rule):
    ignore = tmp_path / "ignore"
    ignore.write_text(rule + "\n")
    done = subprocess.run(
        ["git", "-c", f"core.excludesFile={ignore}", "check-ignore", "--no-index", "-q", "build"],
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, "git ignores build/"


def test_the_source_root_is_kept_and_holds_nothing_but_the_package():
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert "!/build/" in lines
    assert not {"build", "build/", "/build", "/build/"} & set(lines)
    assert [p.name for p in (ROOT / "build").iterdir()] == ["cpubuild"]
