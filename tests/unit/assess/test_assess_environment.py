"""Reading of environment values: never an exception, always the same shape."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cpubuild.assess import assess
from cpubuild.assess.container import cpu_list
from cpubuild.assess.environment import openmp_runtimes, parse_cpus
from cpubuild.assess.surroundings import missing_preloads, parse_steal, split_preload
from cpubuild.findings import Status

NAME_WORDS = """
    VLLM_TARGET_DEVICE CUDA_VISIBLE_DEVICES LD_PRELOAD CC CXX CFLAGS CXXFLAGS PYTHONPATH
    PIP_INDEX_URL PIP_EXTRA_INDEX_URL UV_INDEX_URL UV_TORCH_BACKEND VLLM_CPU_KVCACHE_SPACE
    VLLM_CPU_OMP_THREADS_BIND OMP_NUM_THREADS VLLM_VERSION_OVERRIDE CUDA_HOME https_proxy
    SETUPTOOLS_SCM_PRETEND_VERSION VLLM_X http_proxy
"""
QUIET = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@QUIET
@given(
    values=st.dictionaries(st.sampled_from(NAME_WORDS.split()), st.text(max_size=40), max_size=8)
)
def test_no_value_of_a_variable_raises(values, host, release) -> None:
    facts = replace(host, environment=tuple(values.items()))
    assert all(f.status in Status for f in assess(facts, release))


@given(st.text(max_size=60))
def test_cpu_lists_never_raise(text: str) -> None:
    ranks = parse_cpus(text)
    assert ranks is None or all(ranks)


@given(st.sets(st.integers(0, 300), min_size=1))
def test_cpu_lists_are_read_as_they_are_written(cpus: set[int]) -> None:
    assert parse_cpus(cpu_list(tuple(cpus))) == (frozenset(cpus),)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("0-3", ({0, 1, 2, 3},)),
        ("0-1|2,4", ({0, 1}, {2, 4})),
        (" 1 , 2", ({1, 2},)),
        ("3-1", None),
        ("", None),
        ("0-", None),
        ("a", None),
    ],
)
def test_cpu_lists(text: str, ranks: tuple[set[int], ...] | None) -> None:
    assert parse_cpus(text) == (None if ranks is None else tuple(map(frozenset, ranks)))


@given(st.text(max_size=60))
def test_preloads_never_raise(text: str) -> None:
    assert all(entry.strip() for entry in split_preload(text))
    openmp_runtimes(text)


@pytest.mark.parametrize(
    ("preload", "runtimes"),
    [
        ("/usr/lib/libgomp.so.1", ("libgomp",)),
        ("/v/libiomp5.so /v/torch.libs/libgomp-98df74fd.so.1.0.0", ("libiomp5", "libgomp")),
        ("/v/libomp.so.5:/v/libomp.so", ("libomp",)),
        ("/usr/lib/libtcmalloc_minimal.so.4", ()),
        ("", ()),
    ],
)
def test_openmp_runtimes(preload: str, runtimes: tuple[str, ...]) -> None:
    assert openmp_runtimes(preload) == runtimes


def test_preloads_that_name_no_file_are_found(tmp_path) -> None:
    (tmp_path / "a.so").touch()
    assert missing_preloads("/a.so:/b.so:bare.so", root=tmp_path) == ("/b.so",)


@given(st.text(max_size=200))
def test_steal_never_raises(text: str) -> None:
    share = parse_steal(text)
    assert share is None or 0 <= share <= 100


def test_steal_is_a_share_of_all_time() -> None:
    assert parse_steal("cpu  50 0 0 40 0 0 0 10 0 0\ncpu0 1 1\n") == 10.0
    assert parse_steal("cpu  1 2 3\n") is None
    assert parse_steal("") is None


@pytest.mark.parametrize(
    ("environment", "check", "status"),
    [
        ({"VLLM_TARGET_DEVICE": "cpu"}, "environment.target_device", "warn"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "environment.visible_devices", "warn"),
        ({"LD_PRELOAD": "/usr/lib/libgomp.so.1"}, "environment.ld_preload", "ok"),
        ({"CC": "gcc-13", "CXX": "g++-13"}, "environment.compilers", "ok"),
        ({"CXX": "g++-13"}, "environment.compilers", "warn"),
        ({"CXXFLAGS": "-march=native"}, "environment.flags", "warn"),
        ({"CXXFLAGS": "-pipe"}, "environment.flags", "ok"),
        ({"VLLM_CPU_KVCACHE_SPACE": "4"}, "environment.kv_space", "ok"),
        ({"VLLM_CPU_KVCACHE_SPACE": "4G"}, "environment.kv_space", "warn"),
        ({"VLLM_CPU_KVCACHE_SPACE": "4000"}, "environment.kv_space", "warn"),
        ({"VLLM_CPU_OMP_THREADS_BIND": "0-7"}, "environment.omp_bind", "ok"),
        ({"VLLM_CPU_OMP_THREADS_BIND": "0-3|4-7"}, "environment.omp_bind", "warn"),
        ({"VLLM_CPU_OMP_THREADS_BIND": "all of them"}, "environment.omp_bind", "warn"),
        ({"VLLM_VERSION_OVERRIDE": "0.32.0+cpu"}, "environment.version_override", "ok"),
        ({"VLLM_LOGGING_LEVEL": "DEBUG"}, "environment.vllm_names", "ok"),
        ({"VLLM_LOGING_LEVEL": "DEBUG"}, "environment.vllm_names", "warn"),
        ({"PIP_EXTRA_INDEX_URL": "https://download.pytorch.org/whl/cpu"}, "environment.pip", "ok"),
        ({"https_proxy": "proxy:3128"}, "environment.proxy", "warn"),
        ({"https_proxy": "http://proxy:3128"}, "environment.proxy", "ok"),
        ({"http_proxy": "http://proxy:3128"}, "environment.proxy", "warn"),
    ],
)
def test_variables(environment, check, status, host, release, change) -> None:
    found = {f.id: f for f in assess(change(host, environment=environment), release)}
    assert found[check].status.value == status


def test_a_misspelt_variable_gets_the_right_name(host, release, change) -> None:
    facts = change(host, environment={"VLLM_LOGING_LEVEL": "DEBUG", "VLLM_CPU_SGL_KERNEL": "1"})
    found = {f.id: f for f in assess(facts, release)}["environment.vllm_names"]
    assert any("VLLM_LOGGING_LEVEL" in line for line in found.remedy)
    assert any("gone" in line for line in found.remedy)


def test_where_names_were_not_read_nothing_is_claimed(host, release, change) -> None:
    facts = change(host, environment={"VLLM_X": "1"})
    unread = replace(release, env_names=frozenset())
    found = {f.id: f for f in assess(facts, unread)}
    assert found["environment.vllm_names"].status is Status.UNKNOWN
