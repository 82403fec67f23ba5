"""Tuning against real releases, and its results in the hands of the real programs."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.sdists import VERSIONS, sdist_tree

from cpubuild import deploy
from cpubuild.choose.tables import table
from cpubuild.facts.collect import collect, replay
from cpubuild.facts.model import NumaNode
from cpubuild.origin import Origin
from cpubuild.tune import compute, quantised, threads
from cpubuild.tune.tree import Tree, read_site

pytestmark = pytest.mark.integration
AMX = Path(__file__).parents[1] / "hosts" / "amx-bf16--sapphire-rapids-vm"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_names_of_a_real_release(version):
    tree = read_site(sdist_tree(version))
    assert tree.variables is not None
    assert threads.BIND in tree.variables
    assert tree.unbound == ("all" if version in ("0.6.3.post1", "0.9.2") else "nobind")
    for name in ("--dtype", "--max-model-len", "--max-num-seqs", "--host", "--api-key"):
        assert tree.takes(name)
    assert tree.takes("--kv-cache-memory-bytes") == (version not in ("0.6.3.post1", "0.9.2"))
    assert tree.takes("--device") == (version in ("0.6.3.post1", "0.9.2"))
    assert tree.methods is not None
    assert "awq" in tree.methods


@pytest.mark.parametrize("row", table("tune.toml")["option"], ids=lambda row: row["name"])
def test_an_option_of_the_table_is_known_until_then_and_not_later(row):
    know = [v for v in VERSIONS if read_site(sdist_tree(v)).takes(row["name"])]
    last = VERSIONS.index(row["last"])
    assert know
    assert know[-1] == row["last"]
    assert last < len(VERSIONS) - 1
    if row["action"] == "rename":
        assert all(read_site(sdist_tree(v)).takes(row["to"][0]) for v in VERSIONS[last + 1 :])


INT4 = ("int4-awq", "int4-gptq", "int4-packed")


@pytest.mark.parametrize(
    ("version", "kinds"),
    [
        ("0.6.3.post1", ()),
        ("0.9.2", ("int8-w8a8",)),
        ("0.11.2", ("int8-w8a8",)),
        ("0.14.1", ("int8-w8a8", *INT4)),
        ("0.20.0", ("int8-w8a8", *INT4)),
        ("0.24.0", ("int8-w8a8", *INT4, "fp8")),
        ("0.32.0", ("int8-w8a8", *INT4, "fp8")),
        ("0.33.0", ("int8-w8a8", *INT4, "fp8")),
    ],
)
def test_what_a_real_release_runs_quantised(version, kinds):
    assert quantised.kinds(read_site(sdist_tree(version)), replay(AMX).cpu) == kinds


@pytest.mark.parametrize("arch", ["x86_64", "riscv64"])
def test_riscv_alone_computes_contexts_in_one_step(arch):
    from cpubuild.tune.api import chunks

    assert chunks(read_site(sdist_tree("0.32.0")), arch) == (arch == "x86_64")


def denied(facts):
    """This host with two memory nodes and a container that refuses to bind memory."""
    cpus = facts.cpu.allowed
    nodes = tuple(NumaNode(id=i, cpus=(cpu,)) for i, cpu in enumerate(cpus[:2]))
    refused = replace(facts.container, get_mempolicy="ok", mbind="EPERM")
    return replace(facts, numa=nodes, container=refused, cpu=replace(facts.cpu, quota=None))


@pytest.mark.parametrize("program", ["numactl", "taskset"])
def test_the_launcher_keeps_a_process_on_its_node(program, tmp_path):
    path = shutil.which(program)
    facts = collect(Path("/"), disks={})
    if path is None or len(facts.cpu.allowed) < 2:
        pytest.skip(f"no {program}, or only one CPU")
    (tmp_path / program).symlink_to(path)
    placed = threads.decide(
        denied(facts), Tree(site=None), ranks=1, reason="r", environ={"PATH": str(tmp_path)}
    )
    assert placed.launcher
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    done = subprocess.run(
        [*placed.launcher, sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert ast.literal_eval(done.stdout) == [facts.cpu.allowed[0]]


def test_a_shell_reads_the_file_and_preloads_without_a_word(tmp_path):
    env = tmp_path / "env"
    (env / "lib/python3.11/site-packages/vllm").mkdir(parents=True)
    facts = collect(Path("/"), disks={})
    tuning = compute(env, facts, release="0.32.0", model=None, environ={"PYTHONHOME": "x"})
    job = deploy.Job(
        tuning=tuning,
        facts=facts,
        more=(),
        state=tmp_path,
        name="",
        origin=Origin(checkout=None),
    )
    shell, _ = deploy.write(tmp_path, job).files
    done = subprocess.run(
        ["/bin/sh", "-c", f". {shell} && exec env"],
        env={"PATH": os.environ["PATH"], "PYTHONHOME": "x"},
        capture_output=True,
        text=True,
        check=True,
    )
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert done.stderr == ""  # the loader complains there of what cannot be preloaded
    assert {v.name: v.value for v in tuning.variables}.items() <= seen.items()
    assert "PYTHONHOME" not in seen
    for path in seen.get("LD_PRELOAD", "").split(":"):
        assert not path or Path(path).is_file()
