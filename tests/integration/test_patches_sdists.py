"""The series on every real sdist: applies, is found again, reverses byte for byte."""

from __future__ import annotations

import pytest

from cpubuild import patching
from cpubuild.patching import Outcome

from .patchcases import copy_of, debian_12, hashes, release_of
from .sdists import VERSIONS

pytestmark = pytest.mark.integration

SINCE_0_30 = {
    "compiler-floor",
    "host-target-only",
    "requirement-profile",
    "flash-mla-gcc12",
}
APPLIES = {
    "0.6.3.post1": {
        "compiler-floor",
        "requirement-profile",
        "platform-cpu-detection",
        "async-output-check",
    },
    "0.9.2": {
        "compiler-floor",
        "requirement-profile",
        "cpu-version-suffix",
        "async-output-check",
    },
    "0.11.2": {"compiler-floor", "requirement-profile", "cpu-version-suffix"},
    "0.14.1": {"compiler-floor", "requirement-profile", "cpu-version-suffix"},
    "0.17.1": {
        "compiler-floor",
        "host-target-only",
        "requirement-profile",
        "cpu-version-suffix",
    },
    "0.20.0": {"compiler-floor", "host-target-only", "requirement-profile"},
    "0.24.0": {"compiler-floor", "host-target-only", "requirement-profile"},
    "0.28.0": {"compiler-floor", "host-target-only", "requirement-profile"},
    "0.30.0": SINCE_0_30,
    "0.31.0": SINCE_0_30,
    "0.32.0": SINCE_0_30 | {"slot-mapping-stand-in"},
    "0.33.0": SINCE_0_30,
}
CONTEXTS = {
    "debian-12": debian_12(rejected_options=("-mno-avx256-split-unaligned-load",)),
    "avx2": debian_12(x86_target="_C_AVX2", drop_requirements=("mistral_common",)),
    "new-gcc-full": debian_12(gcc_version="14.2.0", profile="full"),
    "aarch64": debian_12(arch="aarch64", x86_target=None),
}


def test_the_table_names_every_sdist():
    assert set(APPLIES) == set(VERSIONS)


@pytest.mark.parametrize("version", VERSIONS)
def test_debian_12_gets_exactly_the_patches_it_needs(version, tmp_path):
    tree = copy_of(version, tmp_path / "tree")
    chosen = patching.select(release_of(version), CONTEXTS["debian-12"])
    checked = patching.check(tree, chosen)
    applies = {one.id for one in checked if one.outcome is Outcome.APPLIES}
    assert applies == APPLIES[version]
    rest = {one.id for one in checked} - applies
    assert rest == {"unknown-gcc-options"}  # no release so far uses the option


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize("phase", ["source", "installed"])
def test_the_series_applies_and_reverses(version, name, phase, tmp_path):
    context = CONTEXTS[name]
    release = release_of(version, context.arch)
    if context.x86_target not in release.targets:
        context = debian_12(arch=context.arch, x86_target=None)
    tree = copy_of(version, tmp_path / "tree")
    before = hashes(tree)
    chosen = patching.select(release, context, phase=phase)
    applied = patching.apply(tree, chosen)
    after = hashes(tree)
    touched = {t.path for one in applied for t in one.files}
    assert {path for path in before if before[path] != after[path]} == touched
    assert before.keys() == after.keys()

    again = patching.apply(tree, chosen)
    assert Outcome.APPLIES not in {one.outcome for one in again}
    assert hashes(tree) == after

    patching.reverse(tree, applied)
    assert hashes(tree) == before


@pytest.mark.parametrize("version", VERSIONS)
def test_each_patch_applies_and_reverses_alone(version, tmp_path):
    tree = copy_of(version, tmp_path / "tree")
    before = hashes(tree)
    for one in patching.select(release_of(version), debian_12()):
        applied = patching.apply(tree, [one])
        assert applied[0].outcome is Outcome.APPLIES
        patching.reverse(tree, applied)
        assert hashes(tree) == before, one.id


def test_a_patched_0_32_stand_in_is_the_code_of_0_33(tmp_path):
    tree = copy_of("0.32.0", tmp_path / "a")
    chosen = patching.select(release_of("0.32.0"), debian_12())
    patching.apply(tree, [one for one in chosen if one.id == "slot-mapping-stand-in"])
    later = copy_of("0.33.0", tmp_path / "b")
    path = "vllm/utils/cpu_triton_utils.py"
    assert (tree / path).read_bytes() == (later / path).read_bytes()


def test_a_tree_that_has_lost_its_floor_is_refused_by_name(tmp_path):
    tree = copy_of("0.33.0", tmp_path / "tree")
    path = tree / "cmake/cpu_extension.cmake"
    path.write_text(path.read_text().replace("VERSION_GREATER_EQUAL 12.3", "VERSION_GREATER 12"))
    before = hashes(tree)
    chosen = patching.select(release_of("0.33.0"), debian_12())
    with pytest.raises(patching.engine.CpuBuildError, match=r"compiler-floor: cmake/cpu_ext"):
        patching.apply(tree, chosen)
    assert hashes(tree) == before


def test_a_later_release_without_the_defect_has_nothing_to_do(tmp_path):
    tree = copy_of("0.33.0", tmp_path / "tree")
    (tree / "csrc/cpu/sgl-kernels/flash_mla.cpp").unlink()
    chosen = patching.select(release_of("0.33.0"), debian_12())
    outcomes = {one.id: one.outcome for one in patching.apply(tree, chosen)}
    assert outcomes["flash-mla-gcc12"] is Outcome.NOT_NEEDED
    assert outcomes["compiler-floor"] is Outcome.APPLIES
