from __future__ import annotations

import zipfile

import pytest

from cpubuild.facts.model import Interpreter
from cpubuild.sources.index import IndexFile, IndexRelease, Listing, group, local_links
from cpubuild.sources.pipconfig import PipConfig
from cpubuild.sources.torch import (
    Candidates,
    TorchChoice,
    TorchMissing,
    python_tag_of,
    pythons_with_torch,
    select,
    torch_sha256,
)
from cpubuild.sources.wheels import (
    Build,
    build_of,
    metadata_build,
    platforms,
    supported,
    why_not_tagged,
)

MB = 1_000_000
CONFIG = PipConfig()


def wheel(name, *, url=None, size=None, origin="index", sha256=None):
    version = name.split("-")[1]
    return IndexFile(
        project="torch",
        version=version,
        filename=name,
        url=url or f"https://mirror.example/files/{name}",
        kind="wheel",
        origin=origin,
        size=size,
        sha256=sha256,
    )


def chosen(pin, *files, python="cp311", arch="x86_64", glibc="2.36"):
    found = Candidates(project="torch", pin=pin, files=files, failed=())
    return select(found, python_tag=python, arch=arch, glibc=glibc, config=CONFIG)


def make_wheel(folder, name, *members, metadata="Name: torch\n"):
    path = folder / name
    with zipfile.ZipFile(path, "w") as z:
        for member in members:
            z.writestr(member, "x")
        z.writestr("torch-1.dist-info/METADATA", metadata)
    return path


def test_platforms_stop_at_the_hosts_glibc():
    names = platforms("x86_64", "2.17")
    assert names[0] == "manylinux_2_17_x86_64"
    assert "manylinux2014_x86_64" in names
    assert "manylinux1_x86_64" in names
    assert "manylinux_2_28_x86_64" not in names
    assert platforms("aarch64", None) == ["linux_aarch64"]
    assert platforms("aarch64", "2.31")[-2:] == ["manylinux2014_aarch64", "linux_aarch64"]


def test_tags_are_the_targets_not_the_tools():
    tags = supported("cp313t", "aarch64", "2.31")
    assert "cp313-cp313t-manylinux_2_28_aarch64" in tags
    assert "cp313-cp313-manylinux_2_28_aarch64" not in tags
    ordinary = supported("cp311", "x86_64", "2.36")
    assert "cp38-abi3-manylinux_2_34_x86_64" in ordinary
    assert "py3-none-any" in ordinary
    assert ordinary["cp311-cp311-manylinux_2_36_x86_64"] < ordinary["py3-none-any"]
    assert supported("pp310", "x86_64", "2.36") == {}


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("torch-2.13.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl", "another Python than cp311"),
        ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_39_x86_64.whl", "this host has glibc 2.36"),
        ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_aarch64.whl", "another system"),
        ("torch-2.13.0+cpu-cp311-cp311-win_amd64.whl", "another system"),
        ("torch.whl", "cannot be read"),
        ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", ""),
    ],
)
def test_a_wheel_that_does_not_fit_says_why(name, word):
    tags = supported("cp311", "x86_64", "2.36")
    why = why_not_tagged(name, tags, "cp311", "x86_64", "2.36")
    assert word in why
    assert bool(word) == bool(why)


def test_the_marked_cpu_build_is_taken_and_the_cuda_build_refused():
    result = chosen(
        "2.13.0+cpu",
        wheel("torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl", size=527 * MB),
        wheel("torch-2.13.0+cu130-cp311-cp311-manylinux_2_28_x86_64.whl"),
        wheel("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", sha256="ab"),
    )
    assert isinstance(result, TorchChoice)
    assert result.version == "2.13.0+cpu"
    assert torch_sha256(result) == "ab"
    whys = {r.what.split(" ")[0]: r.why for r in result.rejected}
    assert "CUDA build" in whys["torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl"]
    assert "527 MB" in whys["torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl"]
    assert "cu130 build" in whys["torch-2.13.0+cu130-cp311-cp311-manylinux_2_28_x86_64.whl"]


def test_a_cuda_build_alone_is_no_choice():
    result = chosen(
        "2.13.0", wheel("torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl", size=527 * MB)
    )
    assert isinstance(result, TorchMissing)
    assert "CUDA build" in result.rejected[0].why
    assert result.remedy


def test_a_pin_without_local_part_is_met_by_the_cpu_build():
    result = chosen("2.11.0", wheel("torch-2.11.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"))
    assert isinstance(result, TorchChoice)


def test_a_pin_with_cpu_is_not_met_by_an_unmarked_wheel():
    name = "torch-2.11.0-cp311-cp311-manylinux_2_28_aarch64.whl"
    result = chosen("2.11.0+cpu", wheel(name, size=100 * MB), arch="aarch64")
    assert isinstance(result, TorchMissing)
    assert "carries no +cpu" in result.rejected[0].why


def test_nothing_seen_at_all_is_said():
    result = chosen("2.13.0+cpu")
    assert isinstance(result, TorchMissing)
    assert "no place" in result.why


@pytest.mark.parametrize(
    ("arch", "size", "origin", "expected"),
    [
        ("aarch64", 104 * MB, "index", Build.CPU),
        ("aarch64", 900 * MB, "index", Build.CUDA),
        ("aarch64", None, "index", Build.UNKNOWN),
        ("x86_64", None, "index", Build.CUDA),
        ("s390x", None, "index", Build.CPU),
        ("aarch64", None, "https://download.pytorch.org/whl/cpu", Build.CPU),
    ],
)
def test_an_unmarked_wheel_is_judged_by_what_can_be_seen(arch, size, origin, expected):
    name = f"torch-2.9.1-cp311-cp311-manylinux_2_28_{arch}.whl"
    assert build_of(wheel(name, size=size, origin=origin), arch, CONFIG).build is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Requires-Dist: nvidia-cublas==13.1; platform_system == 'Linux'", Build.CUDA),
        ("Requires-Dist: cuda-bindings<14", Build.CUDA),
        ("Requires-Dist: filelock", Build.CPU),
        ("Summary: nvidia-cublas is not needed", Build.CPU),
    ],
)
def test_metadata_tells_cuda(line, expected):
    assert metadata_build(f"Name: torch\n{line}\n").build is expected


def test_a_local_wheel_is_judged_by_its_content(tmp_path):
    name = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
    make_wheel(tmp_path, name, "torch/lib/libtorch_cpu.so")
    (file,) = local_links("torch", tmp_path, "links")
    good = chosen("2.13.0+cpu", file)
    assert isinstance(good, TorchChoice)
    assert good.path == str(tmp_path / name)
    assert torch_sha256(good)
    make_wheel(tmp_path, name, "torch/lib/libtorch_cuda.so")
    bad = chosen("2.13.0+cpu", file)
    assert isinstance(bad, TorchMissing)
    assert "libtorch_cuda" in bad.rejected[0].why
    (tmp_path / name).write_bytes(b"not a zip")
    assert isinstance(chosen("2.13.0+cpu", file), TorchMissing)


def test_a_local_wheel_comes_before_a_remote_one(tmp_path):
    name = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
    make_wheel(tmp_path, name, "torch/lib/libtorch_cpu.so")
    (file,) = local_links("torch", tmp_path, "links")
    result = chosen("2.13.0+cpu", wheel(name, sha256="ab"), file)
    assert isinstance(result, TorchChoice)
    assert result.path


def test_which_interpreter_has_it(tmp_path):
    make_wheel(tmp_path, "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", "a")
    constraint = tmp_path / "c.txt"
    constraint.write_text("# cap\ntorch<=2.13.1\n")
    pythons = [
        Interpreter(path=f"/p{v}", version=v, implementation="cpython", headers=True, venv=True)
        for v in ("3.11.7", "3.12.1")
    ]
    config = PipConfig(no_index=True, find_links=(str(tmp_path),), constraints=(str(constraint),))
    answers = pythons_with_torch(
        "2.13.0+cpu", pythons, arch="x86_64", glibc="2.36", config=config, offline=True
    )
    assert [(i.version, isinstance(a, TorchChoice)) for i, a in answers] == [
        ("3.11.7", True),
        ("3.12.1", False),
    ]
    constraint.write_text("# cap\ntorch<=2.12\n")
    ((_, refused),) = pythons_with_torch(
        "2.13.0+cpu", pythons[:1], arch="x86_64", glibc="2.36", config=config, offline=True
    )
    assert isinstance(refused, TorchMissing)
    assert f"{constraint}, line 2" in refused.why
    assert "torch<=2.12" in refused.why


def test_tags_of_interpreters():
    def tag(version, implementation, free=False):
        return python_tag_of(
            Interpreter(
                path="p",
                version=version,
                implementation=implementation,
                headers=True,
                venv=True,
                free_threaded=free,
            )
        )

    assert tag("3.13.1", "CPython", True) == "cp313t"
    assert tag("3.10.2", "pypy") == "pp310"


def test_files_are_grouped_newest_first_and_yanked_needs_all():
    def one(version, yanked=False):
        return IndexFile(
            project="vllm",
            version=version,
            filename=f"vllm-{version}.tar.gz",
            url="https://h/f",
            kind="sdist",
            origin="i",
            yanked=yanked,
        )

    found = group([one("0.9.2"), one("0.32.0", True), one("0.10.0"), one("bad!"), one("0.32.0")])
    assert [r.version for r in found] == ["0.32.0", "0.10.0", "0.9.2"]
    assert not found[0].yanked
    assert IndexRelease(version="1", files=(one("1", True),)).yanked
    listing = Listing(project="vllm", releases=found, asked=())
    assert listing.find("0.10") is found[1]
