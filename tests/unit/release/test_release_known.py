"""The table of recorded releases, and the command that writes it."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

from packaging.version import Version
from tests.unit.release.release_trees import make_tree

from cpubuild.release import known_release, known_versions, provenance, read_release, record
from cpubuild.release.known import from_document


def test_known_versions_are_in_order_and_whole():
    versions = known_versions()
    assert list(versions) == sorted(versions, key=Version)
    assert {"0.6.3.post1", "0.32.0"} <= set(versions)
    for version in versions:
        recorded = provenance(version)
        assert recorded is not None
        assert len(recorded.sha256) == 64
        for arch in ("x86_64", "aarch64"):
            release = known_release(version, arch)
            assert release is not None
            assert (release.version, release.arch) == (version, arch)
            assert release.env_names


def test_a_local_part_does_not_matter_and_unknown_is_none():
    assert known_release("0.32.0+cpu", "x86_64") == known_release("0.32.0", "x86_64")
    assert known_release("0.0.1", "x86_64") is None
    assert known_release("0.32.0", "loongarch64") is None
    assert known_release("main", "x86_64") is None
    assert provenance("0.0.1") is None


def test_an_architecture_is_known_from_the_release_that_names_a_torch_for_it():
    for arch, oldest in {"ppc64le": "0.9.2", "s390x": "0.11.2", "riscv64": "0.20.0"}.items():
        release = known_release(oldest, arch)
        assert release is not None
        assert (release.arch, release.arch_refusal, release.targets) == (arch, None, ("_C",))
        assert known_release("0.32.0", arch) is not None
    assert known_release("0.17.1", "riscv64") is None
    assert known_release("0.6.3.post1", "ppc64le") is None


def test_variables_come_and_go_with_releases():
    names = {v: known_release(v, "x86_64").env_names for v in known_versions()}
    assert "VLLM_CPU_MOE_PREPACK" in names["0.11.2"]
    assert "VLLM_CPU_MOE_PREPACK" not in names["0.14.1"]
    assert "VLLM_CPU_SGL_KERNEL" not in names["0.32.0"]


def test_a_recorded_sdist_comes_back_as_it_was_read(tmp_path: Path):
    archives = [sdist(tmp_path, "1.0", "VLLM_OLD"), sdist(tmp_path, "1.1", "VLLM_NEW")]
    table = json.loads(json.dumps(record.record(archives)))["releases"]
    assert list(table) == ["1.0", "1.1"]
    assert table["1.1"]["env_names"] == {"added": ["VLLM_NEW"], "removed": ["VLLM_OLD"]}
    entry = table["1.1"]
    back = from_document(
        {
            **entry["all"],
            **entry["arch"]["aarch64"],
            "version": "1.1",
            "arch": "aarch64",
            "env_names": ["VLLM_NEW"],
            "env_names_elsewhere": table["1.0"]["env_names_elsewhere"]["added"],
        }
    )
    assert back == read_release(tmp_path / "vllm-1.1", arch="aarch64")


def test_the_command_ends_with_the_class_of_the_error(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr(record, "TARGET", tmp_path / "releases.json")
    assert record.main([]) == 2
    good = sdist(tmp_path, "1.0", "VLLM_OLD")
    assert record.main([str(good)]) == 0
    assert (tmp_path / "releases.json").is_file()
    (tmp_path / "vllm-1.0/setup.py").unlink()
    assert record.main([str(pack(tmp_path / "vllm-1.0"))]) == 2
    assert "setup.py" in capsys.readouterr().err


def sdist(folder: Path, version: str, variable: str) -> Path:
    tree = make_tree(
        folder / f"vllm-{version}",
        PKG_INFO=f"Name: vllm\nVersion: {version}\n",
        vllm_envs_py=f'environment_variables = {{"{variable}": 1}}\n',
    )
    return pack(tree)


def pack(tree: Path) -> Path:
    archive = tree.parent / f"{tree.name}.tar.gz"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(tree, arcname=tree.name)
    archive.write_bytes(buffer.getvalue())
    return archive
