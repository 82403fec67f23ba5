"""Which patches are taken: every condition, each with its words."""

from __future__ import annotations

import dataclasses

import pytest

from cpubuild.patching import select
from cpubuild.patching.model import When
from cpubuild.patching.predicate import CLAUSES, holds, in_releases
from cpubuild.release import UrlRequirement

TRITON = UrlRequirement(name="triton", url="https://example.org/triton.whl", marker="")


def ids(release, context, phase="source"):
    return [one.id for one in select(release, context, phase=phase)]


def test_every_condition_has_a_clause():
    assert {f.name for f in dataclasses.fields(When)} == set(CLAUSES)


def test_debian_12_takes_what_0_32_needs(make_release, make_context):
    assert ids(make_release("0.32.0"), make_context()) == [
        "compiler-floor",
        "host-target-only",
        "requirement-profile",
        "flash-mla-gcc12",
        "slot-mapping-stand-in",
    ]


def test_a_full_profile_with_a_new_compiler_needs_none(make_release, make_context):
    context = make_context(gcc_version="14.2.0", profile="full", triton=True, x86_target=None)
    assert ids(make_release("0.33.0", url_requirements=(TRITON,)), context) == []


def test_the_reason_names_the_values(make_release, make_context):
    reasons = {one.id: one.reason for one in select(make_release(), make_context())}
    assert "g++ 12.2.0 is below the tree's floor 12.3" in reasons["compiler-floor"]
    assert "loader takes _C on this host" in reasons["host-target-only"]
    assert "one of the releases ==0.32.*" in reasons["slot-mapping-stand-in"]
    assert all(reason.endswith(".") for reason in reasons.values())


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ({"gcc_version": "12.3.0"}, {"compiler-floor", "flash-mla-gcc12"}),
        ({"gcc_version": None}, {"compiler-floor", "flash-mla-gcc12"}),
        ({"gcc_probe_ok": False}, {"compiler-floor"}),
        ({"x86_target": None}, {"host-target-only"}),
        ({"triton": True}, {"slot-mapping-stand-in"}),
        ({"profile": "full"}, {"requirement-profile"}),
        ({"arch": "aarch64"}, {"compiler-floor", "host-target-only", "flash-mla-gcc12"}),
    ],
)
def test_each_condition_decides(make_release, make_context, change, gone):
    release = make_release("0.32.0")
    assert set(ids(release, make_context())) - set(ids(release, make_context(**change))) == gone


def test_a_tree_without_a_floor_or_with_one_target_is_left_alone(make_release, make_context):
    release = make_release("0.28.0", gcc_floor=None, targets=("_C",))
    assert ids(release, make_context()) == ["requirement-profile"]


def test_rejected_options_and_dropped_names_are_asked_for(make_release, make_context):
    context = make_context(profile="full", rejected_options=("-mfoo",), drop_requirements=("x",))
    chosen = {one.id: one.reason for one in select(make_release("0.28.0"), context)}
    assert "does not know -mfoo" in chosen["unknown-gcc-options"]
    assert "x shall not be required" in chosen["requirement-profile"]


def test_a_url_requirement_is_dropped_in_the_full_profile_too(make_release, make_context):
    release = make_release("0.33.0", url_requirements=(TRITON,))
    full = make_context(profile="full")
    assert "requirement-profile" in ids(release, full)
    assert "requirement-profile" not in ids(release, dataclasses.replace(full, triton=True))


@pytest.mark.parametrize(
    ("version", "yields", "expected"),
    [("0.6.3.post1", False, True), ("0.6.3.post1", True, False), ("0.9.2", False, False)],
)
def test_platform_patch_is_for_releases_where_cuda_wins(
    make_release, make_context, version, yields, expected
):
    release = make_release(version, cuda_yields_to_cpu=yields)
    assert ("platform-cpu-detection" in ids(release, make_context())) is expected
    assert ("platform-cpu-detection" in ids(release, make_context(), "installed")) is expected


def test_an_nvidia_library_is_named(make_release, make_context):
    release = make_release("0.6.3.post1", cuda_yields_to_cpu=False)
    chosen = {one.id: one for one in select(release, make_context(nvidia_library=True))}
    assert "has an NVIDIA library" in chosen["platform-cpu-detection"].reason


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.6.3.post1", True), ("0.8.5", True), ("0.10.2", True), ("0.11.2", False)],
)
def test_async_output_check_ends_with_0_11(make_release, make_context, version, expected):
    assert ("async-output-check" in ids(make_release(version), make_context())) is expected


def test_installed_phase_states_that_the_package_is_a_cpu_build(make_release, make_context):
    assert ids(make_release("0.28.0"), make_context(), "installed") == ["platform-cpu-statement"]


@pytest.mark.parametrize(
    ("specifier", "version", "expected"),
    [
        ("==0.32.*", "0.32.0+cpu", True),
        ("==0.32.*", "0.32.1.dev7+gabc", True),
        (">=0.30", "0.34.0rc1", True),
        ("<0.7", "0.6.3.post1", True),
        (">=0.7,<0.20", "0.20.0", False),
    ],
)
def test_releases_include_local_and_development_versions(specifier, version, expected):
    assert in_releases(specifier, version) is expected


def test_conditions_of_one_set_must_all_hold(make_release, make_context):
    when = When(releases=">=0.30", profile=("full",))
    assert holds(when, make_release(), make_context()) is None
    assert holds(when, make_release(), make_context(profile="full")) is not None
