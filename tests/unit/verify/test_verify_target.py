"""The clean environment, interpreters, and how processes ended."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from cpubuild.errors import CpuBuildError
from cpubuild.run import Completed
from cpubuild.verify import crash
from cpubuild.verify.target import (
    Answer,
    Target,
    biting,
    clean_environment,
    interpreter,
    read_document,
    script,
)

CALLER = {
    "PATH": "/usr/bin",
    "HOME": "/home/x",
    "LD_LIBRARY_PATH": "/opt/lib",
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_USE_V1": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONPATH": "/src",
    "PYTHONHOME": "",
    "LD_PRELOAD": "/x.so",
    "OMP_NUM_THREADS": "1",
    "TORCHINDUCTOR_CACHE_DIR": "/elsewhere",
    "https_proxy": "http://proxy",
}


def test_a_clean_environment_keeps_what_is_needed_and_drops_what_misleads() -> None:
    kept = clean_environment(CALLER)
    assert {n for n in CALLER if n in kept} == {"PATH", "HOME", "LD_LIBRARY_PATH", "https_proxy"}
    assert kept["HF_HUB_OFFLINE"] == "1"
    assert kept["PYTHONSAFEPATH"] == "1"


def test_caches_lie_in_the_folder() -> None:
    target = Target(python=Path("/env/bin/python"), folder=Path("/state"), environ=CALLER)
    kept = target.clean()
    assert kept["VLLM_CACHE_ROOT"].startswith("/state/")
    assert kept["TORCHINDUCTOR_CACHE_DIR"].startswith("/state/")
    assert "VLLM_TARGET_DEVICE" not in kept


def test_only_what_can_change_the_platform_bites() -> None:
    assert set(biting(CALLER)) == {"VLLM_TARGET_DEVICE", "PYTHONPATH", "LD_PRELOAD"}
    assert biting({"PATH": "/usr/bin"}) == {}


def test_a_target_is_an_interpreter_or_a_folder(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.touch(mode=0o755)
    assert interpreter(tmp_path) == python
    assert interpreter(python) == python
    python.chmod(0o644)
    with pytest.raises(CpuBuildError, match="no Python interpreter"):
        interpreter(tmp_path)


def test_documents_that_are_not_whole_are_none(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    assert read_document(path) is None
    path.write_text('{"a": ')
    assert read_document(path) is None
    path.write_text("[1]")
    assert read_document(path) is None
    path.write_text('{"a": 1}')
    assert read_document(path) == {"a": 1}


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    target = Target(python=Path("/p"), folder=tmp_path / "file", environ={})
    with pytest.raises(CpuBuildError, match="cannot write"):
        target.prepare(fresh_caches=False)


@pytest.mark.parametrize("name", ["ask_identity.py", "ask_runtime.py"])
def test_probe_scripts_are_files(name: str) -> None:
    assert script(name).is_file()


def test_every_stage_of_the_runtime_has_its_script() -> None:
    text = script("ask_runtime.py").read_text()
    for line in text.split("MODULES = {")[1].split("}")[0].splitlines():
        if ":" in line:
            module = line.split('"')[3]
            assert script(f"{module}.py").is_file(), module


def answer(returncode: int, log: str = "", tmp: Path | None = None, **given: object) -> Answer:
    path = None
    if tmp is not None:
        path = tmp / "log"
        path.write_text(log)
    done = Completed(
        argv=("python",),
        returncode=returncode,
        stdout=log,
        stderr="",
        seconds=9.0,
        log=path,
        timed_out=bool(given.get("timed_out")),
    )
    documents = {"eager": {"error": given["error"]}} if "error" in given else {}
    return Answer(completed=done, documents=documents, stages=("eager",))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGILL, "an instruction this CPU does not have"),
        (signal.SIGSEGV, "two builds that do not fit together"),
        (signal.SIGKILL, "memory ran out"),
        (signal.SIGBUS, "shared memory"),
    ],
)
def test_signals_are_explained(number: signal.Signals, words: str) -> None:
    why = crash.explain(answer(-number), "eager")
    assert number.name in why.summary
    assert words in why.summary
    assert why.remedy


def test_a_signal_without_an_entry_is_still_named() -> None:
    assert crash.explain_signal(signal.SIGUSR1)[0] == "SIGUSR1"
    assert crash.explain_signal(200)[0] == "signal 200"


def test_a_worker_that_died_is_found_in_the_log(tmp_path: Path) -> None:
    log = "INFO start\nERROR Worker proc VllmWorker-0 died unexpectedly (exit code: -4)\nlast\n"
    why = crash.explain(answer(3, log, tmp_path), "eager")
    assert "SIGILL" in why.summary


def test_a_timeout_is_said() -> None:
    why = crash.explain(answer(-15, timed_out=True), "eager")
    assert "no answer within 9 s" in why.summary


def test_the_root_error_wins_over_its_consequence(tmp_path: Path) -> None:
    log = (
        "(Worker) TypeError: f() got an unexpected keyword argument 'KV_CACHE_BLOCK_SIZE'\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    error = {
        "type": "RuntimeError",
        "message": "Engine core initialization failed",
        "traceback": "",
    }
    why = crash.explain(answer(3, log, tmp_path, error=error), "eager")
    assert "unexpected keyword argument" in why.summary
    assert any("log:" in line for line in why.evidence)
    assert any(line.startswith("(Worker) TypeError") for line in why.evidence)


def test_a_process_without_any_word_says_how_it_ended() -> None:
    assert "exit status 7" in crash.explain(answer(7), "eager").summary
