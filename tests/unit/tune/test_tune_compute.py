"""A whole tuning: host, installed release and model in; settings, removed names, findings out."""

from __future__ import annotations

import dataclasses

import pytest

from cpubuild.facts.model import NumaNode
from cpubuild.findings import Status
from cpubuild.tune import compute
from cpubuild.tune.shape import read_shape

GIB = 1 << 30
LIBC = "/usr/lib/tcmalloc.so"


@pytest.fixture
def run(make_host, make_site, tmp_path):
    """Compute in an environment with vLLM; the kernel's files are those of an empty folder."""

    def go(*, host=None, env=None, model=None, environ=None, root=None):
        return compute(
            env or make_site(),
            host or make_host(memory={"available": 20 * GIB, "limit": None}),
            release="0.32.0",
            model=model,
            environ=environ or {},
            root=root or tmp_path,
        )

    return go


def values(tuning):
    return {v.name: v.value for v in tuning.variables}


def options(tuning):
    return {o.name: o.value for o in tuning.options}


def ids(tuning, status):
    return {f.id for f in tuning.findings if f.status is status}


def test_for_any_model_there_are_variables_and_no_options(run):
    tuning = run()
    assert values(tuning)["VLLM_CPU_KVCACHE_SPACE"] == "8"
    assert values(tuning)["VLLM_CPU_OMP_THREADS_BIND"] == "0-1"
    assert tuning.options == ()
    assert tuning.fits


def test_for_a_model_the_cache_is_an_option_and_no_variable(run, make_model):
    tuning = run(model=make_model())
    assert "VLLM_CPU_KVCACHE_SPACE" not in values(tuning)
    assert options(tuning) == {
        "--dtype": "bfloat16",
        "--kv-cache-memory-bytes": str(128 * (4096 + 128) * 256),
        "--max-model-len": "4096",
        "--max-num-seqs": "128",
        "--max-num-batched-tokens": "2048",
    }
    assert tuning.arguments()[:2] == ["--dtype", "bfloat16"]
    assert all(o.reason for o in tuning.options)


def test_a_variable_that_would_win_over_the_option_is_taken_out(run, make_model):
    model, environ = make_model(), {"VLLM_CPU_KVCACHE_SPACE": "40", "LANG": "C"}
    tuning = run(model=model, environ=environ)
    assert dict(tuning.removed)["VLLM_CPU_KVCACHE_SPACE"]
    assert "VLLM_CPU_KVCACHE_SPACE" not in tuning.environ(environ)
    assert tuning.environ(environ)["LANG"] == "C"


def test_a_release_without_the_option_has_the_variable_in_whole_gib(run, make_site, make_model):
    env = make_site(options=("--dtype", "--max-model-len", "--max-num-seqs"))
    tuning = run(env=env, model=make_model())
    assert values(tuning)["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert set(options(tuning)) == {"--dtype", "--max-model-len", "--max-num-seqs"}
    assert any("--kv-cache-memory-bytes" in f.title for f in tuning.findings)


def test_where_names_cannot_be_read_no_option_is_given(run, tmp_path, make_model):
    (tmp_path / "bare").mkdir()
    tuning = run(env=tmp_path / "bare", model=make_model())
    assert tuning.options == ()
    assert "tune.names" in ids(tuning, Status.UNKNOWN)


def test_a_model_that_does_not_fit_is_a_blocker_and_gets_no_options(run, make_host, make_model):
    host = make_host(memory={"available": 20 * GIB, "limit": 2 * GIB, "used": 0})
    tuning = run(host=host, model=make_model())
    assert not tuning.fits
    assert tuning.options == ()
    assert ids(tuning, Status.BLOCKER) == {"tune.memory"}


def test_a_model_that_just_fits_is_not_compiled(run, make_host, make_model):
    host = make_host(memory={"available": int(2.6 * GIB), "limit": None})
    tuning = run(host=host, model=make_model())
    assert tuning.fits
    assert "--enforce-eager" in options(tuning)
    assert "slower" in tuning.options[-1].reason


def test_a_quantised_model_without_kernels_is_a_blocker(run, make_model):
    tuning = run(model=make_model(quantization_config={"quant_method": "gguf"}))
    assert ids(tuning, Status.BLOCKER) == {"tune.quantisation"}


def nodes(make_host, *, cores=8):
    made = tuple(
        NumaNode(id=n, cpus=tuple(range(n * cores, (n + 1) * cores)), memory_total=64 * GIB)
        for n in (0, 1)
    )
    cpu = {
        "siblings": tuple((n,) for n in range(2 * cores)),
        "logical": 2 * cores,
        "physical": 2 * cores,
        "allowed": tuple(range(2 * cores)),
        "quota": None,
    }
    memory = {"total": 128 * GIB, "available": 120 * GIB, "limit": None}
    return make_host(cpu=cpu, memory=memory, numa=made)


def test_a_large_model_gets_a_worker_for_each_node(run, make_host, make_model):
    large = make_model(tensors={"w": ("BF16", (1 << 17, 1 << 16))})
    tuning = run(host=nodes(make_host), model=large)
    assert options(tuning)["--tensor-parallel-size"] == "2"
    assert values(tuning)["VLLM_CPU_OMP_THREADS_BIND"] == "0-6|8-14"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "rule of thumb"),
        ({"tensors": {"w": ("BF16", (1 << 17, 1 << 16))}, "num_key_value_heads": 1}, "evenly"),
    ],
)
def test_else_one_worker_and_the_reason(run, make_host, make_model, changes, word):
    tuning = run(host=nodes(make_host), model=make_model(**changes))
    assert "--tensor-parallel-size" not in options(tuning)
    assert word in next(f for f in tuning.findings if f.id == "tune.threads").why


def test_riscv_computes_a_context_in_one_step(run, make_host, make_site, make_model):
    text = (
        "if current_platform.is_cpu() and current_platform.get_cpu_architecture() in (\n"
        "    CpuArchEnum.RISCV,\n):\n    0\n"
    )
    env = make_site()
    path = env / "lib/python3.11/site-packages/vllm/engine/arg_utils.py"
    path.write_text(text + path.read_text())
    model = make_model()
    riscv = make_host("rvv--spacemit-x60")
    assert options(run(host=riscv, env=env, model=model))["--max-model-len"] == "2048"
    assert options(run(env=env, model=model))["--max-model-len"] == "4096"


def test_surroundings_that_would_bite(run, tmp_path):
    gone = str(tmp_path / "gone.so")
    environ = {
        "VLLM_TARGET_DEVICE": "cpu",
        "CUDA_VISIBLE_DEVICES": "0",
        "KMP_AFFINITY": "compact",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": "/somewhere",
        "LD_PRELOAD": gone,
        "VLLM_CPU_MOE_PREPACK": "1",
        "HOME": "/root",
    }
    tuning = run(environ=environ)
    names = {n for n, _ in tuning.removed}
    kept = set(environ) - names
    assert kept == {"VLLM_CPU_MOE_PREPACK", "HOME"}
    assert ids(tuning, Status.WARN) >= {
        "environment.ld_preload",
        "environment.threads",
        "environment.vllm_names",
        "environment.pythonpath",
    }
    assert all(reason for _, reason in tuning.removed)


def test_two_openmp_runtimes_are_taken_out_and_a_good_preload_stays(run, tmp_path):
    paths = [tmp_path / name for name in ("libgomp.so.1", "libiomp5.so", "jemalloc.so")]
    for path in paths:
        path.touch()
    two = {"LD_PRELOAD": f"{paths[0]}:{paths[1]}"}
    assert dict(run(environ=two).removed)["LD_PRELOAD"]
    assert run(environ={"LD_PRELOAD": str(paths[2])}).removed == ()


def test_threads_of_a_quota_are_counted_by_the_variable(run, make_host):
    host = make_host("avx512--cgroup-v1")
    tuning = run(host=host, environ={"OMP_NUM_THREADS": "64"})
    assert tuning.removed == ()  # ours replaces it
    assert tuning.environ({"OMP_NUM_THREADS": "64"})["OMP_NUM_THREADS"] == "1"


def test_a_value_that_gives_way_is_told(run):
    bind = "VLLM_CPU_OMP_THREADS_BIND"
    told = [f for f in run(environ={bind: "0"}).findings if f.id == "tune.replaced"]
    assert f"{bind}=0, now 0-1" in told[0].found
    same = run(environ={bind: "0-1", "VIRTUAL_ENV": "/other"}).findings
    assert not [f for f in same if f.id == "tune.replaced"]


def test_the_memory_that_a_server_takes_is_told(run, make_model):
    tuning = run(model=make_model())
    cache = int(options(tuning)["--kv-cache-memory-bytes"])
    assert tuning.memory is not None
    assert 2 * GIB + cache < tuning.memory < 4 * GIB
    assert tuning.cache_tokens == 128 * (4096 + 128)
    assert (run().memory, run().cache_tokens) == (None, None)


def test_only_files_that_are_there_are_preloaded_and_one_openmp_runtime(run, make_host, make_site):
    env = make_site()
    site = env / "lib/python3.11/site-packages"
    host = make_host(memory={"available": 20 * GIB}, libraries={"tcmalloc": LIBC})
    assert "LD_PRELOAD" not in values(run(env=env, host=host))
    inside = site / "vllm" / "libs" / "libtcmalloc_minimal.so.4"
    for path in (inside, env / "lib" / "libiomp5.so", site / "torch/lib/libiomp5.so"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = values(run(env=env, host=host))["LD_PRELOAD"]
    assert found == f"{inside}:{env / 'lib' / 'libiomp5.so'}"
    arm = make_host("neon--graviton2")
    assert values(run(env=env, host=arm))["LD_PRELOAD"] == str(inside)


@pytest.mark.parametrize(
    ("overcommit", "huge", "warned"),
    [("0\n", "always [madvise] never\n", set()), ("2\n", "[never]\n", {"tune.overcommit"})],
)
def test_the_kernels_own_settings_are_explained(run, tmp_path, overcommit, huge, warned):
    root = tmp_path / "root"
    for name, text in (
        ("proc/sys/vm/overcommit_memory", overcommit),
        ("sys/kernel/mm/transparent_hugepage/enabled", huge),
    ):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    tuning = run(root=root)
    assert ids(tuning, Status.WARN) == warned
    assert {"tune.swap", "tune.overcommit", "tune.huge_pages"} <= {f.id for f in tuning.findings}


def test_what_the_kernel_does_not_tell_is_unknown(run):
    assert ids(run(), Status.UNKNOWN) == {"tune.overcommit", "tune.huge_pages"}


def test_the_same_twice_is_the_same(run, make_model):
    model = make_model()
    assert run(model=model) == run(model=model)
    assert dataclasses.is_dataclass(read_shape(model))
