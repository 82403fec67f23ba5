"""Types and quantised checkpoints: by the processor, and by what the release's files hold."""

from __future__ import annotations

import pytest

from cpubuild.choose.tables import table
from cpubuild.errors import ExitCode
from cpubuild.findings import Status
from cpubuild.tune import dtypes, quantised
from cpubuild.tune.shape import read_shape
from cpubuild.tune.tree import Tree, read_tree

MUCH = 1 << 60


@pytest.mark.parametrize(
    ("host", "dtype", "other"),
    [
        ("amx-bf16--sapphire-rapids", "bfloat16", None),
        ("avx512-bf16--zen4", "bfloat16", None),
        ("avx512--ice-lake", "bfloat16", "float32"),
        ("avx2--haswell", "float32", "bfloat16"),
        ("neon-bf16-i8mm--graviton3", "bfloat16", None),
        ("neon--graviton2", "float32", "bfloat16"),
        ("vsx-mma--power10", "bfloat16", None),
        ("vxe--z15", "float32", "bfloat16"),
        ("rvv--spacemit-x60", "float32", None),
    ],
)
def test_the_type_by_the_processor(make_host, make_model, host, dtype, other):
    found = dtypes.choose(make_host(host).cpu, read_shape(make_model()), room=MUCH)
    assert (found.name, found.other) == (dtype, other)
    assert found.reason


def test_where_float32_does_not_fit_it_is_bfloat16(make_host, make_model):
    shape = read_shape(make_model())
    cpu = make_host("avx2--haswell").cpu
    assert dtypes.choose(cpu, shape, room=3_000_000).name == "bfloat16"
    assert dtypes.choose(cpu, shape, room=4_000_000).name == "float32"
    assert dtypes.choose(cpu, shape, room=1_000_000).name == "float32"  # neither fits: no reason


def test_a_type_that_would_not_fit_is_not_tried(make_host, make_model):
    shape = read_shape(make_model())
    cpu = make_host("avx512--ice-lake").cpu
    assert dtypes.choose(cpu, shape, room=3_000_000).other is None


@pytest.mark.parametrize(
    ("own", "run", "word"),
    [
        ("bfloat16", "bfloat16", "own type"),
        ("float16", "bfloat16", "no overflow"),
        ("float32", "bfloat16", "rounded"),
        ("bfloat16", "float32", "widened"),
    ],
)
def test_what_becomes_of_the_models_own_type_is_said(own, run, word):
    assert word in dtypes.conversion(own, run)


def test_an_architecture_without_a_row_keeps_the_models_type(make_host, make_model):
    cpu = make_host(cpu={"arch": "loongarch64"}).cpu
    assert dtypes.choose(cpu, read_shape(make_model()), room=MUCH).name == "bfloat16"


AWQ = {"quant_method": "awq", "bits": 4}
CPU_AWQ = {
    "vllm/model_executor/layers/quantization/auto_awq.py": "if current_platform.is_cpu():\n    0\n"
}
INT8 = {"vllm/model_executor/kernels/linear/scaled_mm/cpu.py": "class CPUInt8ScaledMM: ...\n"}


def judge(make_model, tree, cpu, quantization):
    shape = read_shape(make_model(quantization_config=quantization))
    return quantised.judge(shape, tree, cpu, "0.32.0")


def test_a_kind_that_the_release_has_kernels_for(make_host, make_model, make_site):
    tree = read_tree(make_site(files=CPU_AWQ))
    (found,) = judge(make_model, tree, make_host().cpu, AWQ)
    assert found.status is Status.OK
    assert "quarter" in found.why  # the price is told


def test_a_kind_without_kernels_is_refused_with_what_there_is(make_host, make_model, make_site):
    tree = read_tree(make_site(files=INT8))
    (found,) = judge(make_model, tree, make_host().cpu, AWQ)
    assert (found.status, found.exit_code) == (Status.BLOCKER, ExitCode.UNSUPPORTED)
    assert "int8-w8a8" in found.needed
    assert "no kernel" in found.why


def test_a_kind_that_nobody_runs_on_a_cpu(make_host, make_model, make_site):
    tree = read_tree(make_site(files=CPU_AWQ))
    (found,) = judge(make_model, tree, make_host().cpu, {"quant_method": "bitsandbytes"})
    assert found.status is Status.BLOCKER
    assert "bitsandbytes" in found.found


def test_a_kernel_that_this_processor_cannot_run(make_host, make_model, make_site):
    tree = read_tree(make_site(files=INT8))
    int8 = {
        "quant_method": "compressed-tensors",
        "config_groups": {"a": {"weights": {"num_bits": 8}, "input_activations": {"num_bits": 8}}},
    }
    (found,) = judge(make_model, tree, make_host("avx2--haswell").cpu, int8)
    assert found.status is Status.BLOCKER
    assert "AVX512_VNNI" in found.why


def test_a_kind_left_to_an_extension_needs_it_installed(make_host, make_model, make_site):
    files = {"vllm/model_executor/layers/quantization/ipex_quant.py": "names = ['awq']\n"}
    env = make_site(files=files)
    shape = read_shape(make_model(quantization_config=AWQ))
    cpu = make_host().cpu
    assert "not installed" in quantised.judge(shape, read_tree(env), cpu, "0.9.2")[0].why
    (env / "lib/python3.11/site-packages/intel_extension_for_pytorch").mkdir()
    assert quantised.judge(shape, read_tree(env), cpu, "0.9.2")[0].status is Status.OK


def test_without_the_files_it_is_unknown_and_a_plain_model_is_no_question(make_host, make_model):
    tree = Tree(site=None)
    shape = read_shape(make_model(quantization_config=AWQ))
    cpu = make_host().cpu
    assert quantised.judge(shape, tree, cpu, "0.32.0")[0].status is Status.UNKNOWN
    assert quantised.judge(read_shape(make_model("plain")), tree, cpu, "0.32.0") == ()


def test_the_tables_name_instruction_sets_that_there_are():
    known = {(row["arch"], row["name"]) for row in table("isa.toml")["isa"]}
    rows = table("tune.toml")
    asked = {(r["arch"], name) for r in rows["dtype"] for name in r["isa"]}
    asked |= {
        (arch, name)
        for r in rows["quantised"]
        for arch, names in r.get("isa", {}).items()
        for name in names
    }
    assert asked <= known
    assert {r["dtype"] for r in rows["dtype"]} <= {"bfloat16", "float32"}
    last = {r["arch"]: r["isa"] for r in rows["dtype"]}
    assert all(isa == [] for isa in last.values())  # every architecture has a row for the rest
