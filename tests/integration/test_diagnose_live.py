"""Failures made to happen here and now, with the tools this machine has, and diagnosed."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from cpubuild.diagnose import diagnose_paths, run_and_diagnose

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CXX = shutil.which("c++")
needs_cxx = pytest.mark.skipif(CXX is None, reason="needs a C++ compiler")
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def can_unshare(*options: str) -> bool:
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run(["unshare", *options, "true"], capture_output=True, check=False)
    return done.returncode == 0


def first(argv: Sequence[str | Path], folder: Path, **env: str) -> str | None:
    done, found = run_and_diagnose(
        [str(a) for a in argv],
        folder=folder / "run",
        cwd=folder,
        env=os.environ | env,
        timeout=120,
    )
    assert not done.ok
    assert not found.healthy
    return found.causes[0].id if found.causes else None


@needs_cxx
@pytest.mark.parametrize(
    ("source", "options", "cause"),
    [
        ("#include <nowhere/at_all.h>\n", ["-c"], "header-missing"),
        ("int main() {}\n", ["-mno-such-option", "-c"], "unknown-compiler-option"),
        ("int main() {}\n", ["-lnosuchlibrary"], "library-not-linked"),
        ("int f(); int main() { return f(); }\n", [], "undefined-reference"),
        ("int main() { return widget; }\n", ["-c"], "generic-compile-error"),
    ],
)
def test_a_compiler_says_it(tmp_path: Path, source: str, options: list[str], cause: str) -> None:
    (tmp_path / "x.cpp").write_text(source)
    argv = [CXX or "c++", "x.cpp", "-o", "x.out", *options]
    assert first(argv, tmp_path) == cause


@needs_cxx
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86 instructions")
def test_an_assembler_says_it(tmp_path: Path) -> None:
    (tmp_path / "x.s").write_text("\tfrobnicate %zmm1,%zmm2\n")
    assert first([CXX or "c++", "-c", "x.s"], tmp_path) == "assembler-rejects"


@needs_cxx
def test_a_compiler_out_of_memory(tmp_path: Path) -> None:
    (tmp_path / "x.cpp").write_text("#include <map>\n#include <string>\n#include <regex>\n")
    script = f"ulimit -v 60000; exec {CXX} -c x.cpp"
    assert first(["sh", "-c", script], tmp_path) == "oom-compile-host-freeze"


@needs_git
def test_a_repository_of_another_owner(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give a folder away")
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", repository], check=True)
    os.chown(repository, 65534, 65534)
    os.chown(repository / ".git", 65534, 65534)
    argv = ["git", "-C", repository, "describe", "--tags"]
    assert first(argv, tmp_path, HOME=str(tmp_path)) == "git-dubious-ownership"


@needs_git
@pytest.mark.skipif(not can_unshare("-n"), reason="needs network namespaces")
def test_no_network_at_all(tmp_path: Path) -> None:
    argv = ["unshare", "-n", "git", "clone", "https://github.com/vllm-project/vllm.git"]
    assert first(argv, tmp_path) == "dns-failed"


@pytest.mark.skipif(not can_unshare("-m"), reason="needs mount namespaces")
def test_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    program = "open('small/x', 'wb').write(bytes(1 << 20))"
    script = f'mount -t tmpfs -o size=64k t small && exec {sys.executable} -c "{program}"'
    assert first(["unshare", "-m", "sh", "-c", script], tmp_path) == "tmp-disk-full"


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    program = (
        "import socket\na = socket.socket()\na.bind(('127.0.0.1', 0))\n"
        "b = socket.socket()\nb.bind(a.getsockname())\n"
    )
    assert first([sys.executable, "-c", program], tmp_path) == "port-in-use"


@pytest.mark.parametrize(
    ("signal", "cause"),
    [("KILL", "killed-exit-status"), ("ILL", "sigill-prebuilt-avx512"), ("BUS", "shm-too-small")],
)
def test_a_signal_is_enough(tmp_path: Path, signal: str, cause: str) -> None:
    assert first(["sh", "-c", f"kill -{signal} $$"], tmp_path) == cause


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    assert first(["/nowhere/vllm-serve"], tmp_path) in {"program-not-found", None}
    assert first(["sh", "-c", "numactl-of-nobody --show"], tmp_path) == "program-not-found"


def test_what_goes_well_has_no_cause(tmp_path: Path) -> None:
    done, found = run_and_diagnose(
        [sys.executable, "-c", "print('hello')"], folder=tmp_path / "run"
    )
    assert done.ok
    assert found.healthy


def test_a_large_log_streams(tmp_path: Path) -> None:
    line = "[1/455] Building CXX object CMakeFiles/dnnl.dir/src/cpu/x64/jit_avx_kernel.cpp.o\n"
    path = tmp_path / "large.log.gz"
    with gzip.open(path, "wt", compresslevel=1) as log:
        for _ in range(40):
            log.write(line * 20_000)
        log.write("  X86 backend requires gcc/g++ >= 12.3\n")
    started = time.process_time()
    found = diagnose_paths([path])
    assert found.causes[0].evidence[0].line == 800_001
    assert time.process_time() - started < 60
