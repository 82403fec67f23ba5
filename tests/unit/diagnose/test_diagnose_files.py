from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from cpubuild.diagnose import bundle, diagnose_paths, refuse_place, render_diagnosis
from cpubuild.diagnose.inputs import CHUNK, log_files, read_lines, split_lines
from cpubuild.diagnose.redact import redactor
from cpubuild.errors import CpuBuildError, ExitCode

FLOOR = "X86 backend requires gcc/g++ >= 12.3\n"


def test_a_folder_is_read_as_one_log(tmp_path: Path) -> None:
    (tmp_path / "01-clone").mkdir()
    (tmp_path / "01-clone" / "log").write_text("Cloning\n")
    (tmp_path / "02-compile").mkdir()
    (tmp_path / "02-compile" / "log").write_text("hello\n" + FLOOR)
    (tmp_path / "02-compile" / "cmd.sh").write_text("No module named 'setuptools_rust'\n")
    (tmp_path / "core").write_bytes(b"\0\1No module named 'setuptools_rust'\n")
    (cause,) = diagnose_paths([tmp_path]).causes
    assert cause.id == "gcc-12-3-floor"
    assert cause.evidence[0].line == 2
    assert cause.evidence[0].file == str(tmp_path / "02-compile" / "log")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le-bom", "gzip"])
def test_a_file_is_read_whatever_wrote_it(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / ("build.log.gz" if encoding == "gzip" else "build.log")
    if encoding == "gzip":
        path.write_bytes(gzip.compress(FLOOR.encode()))
    elif encoding == "utf-16-le-bom":
        path.write_bytes(b"\xff\xfe" + FLOOR.encode("utf-16-le"))
    else:
        path.write_bytes(FLOOR.encode(encoding))
    assert diagnose_paths([path]).causes[0].id == "gcc-12-3-floor"
    assert log_files([tmp_path]) == (path,)


def test_a_damaged_archive_ends_where_the_damage_is(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(FLOOR.encode() * 1000)[:40])
    assert diagnose_paths([path]).causes == ()
    path.write_bytes(b"no gzip at all")
    assert list(read_lines(path)) == []


def test_a_path_that_is_not_there_is_a_setting_that_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(CpuBuildError) as caught:
        diagnose_paths([tmp_path / "none.log"])
    assert caught.value.exit_code is ExitCode.SETTINGS


def test_a_line_without_end_is_bounded() -> None:
    stream = io.BytesIO(b"head" + b"x" * (9 * CHUNK) + b"tail\n" + FLOOR.encode())
    first, second = split_lines(stream)
    assert len(first) < 3 * CHUNK
    assert first.startswith("head")
    assert first.endswith("tail")
    assert second == FLOOR.strip()


SECRETS = {
    "HF_TOKEN=hf_abcdefghijklmnopqrst": "hf_abcdefghijklmnopqrst",
    "Authorization: Bearer abc.def-ghi": "abc.def-ghi",
    "https://alice:s3cr3t@index.example/simple": "s3cr3t",
    "--api-key topsecretkey": "topsecretkey",
    "VLLM_API_KEY='k3y with spaces'": "k3y with spaces",
    "git clone https://ghp_abcdefghijklmnop1234@github.com/x/y": "ghp_abcdefghijklmnop1234",
    "OPENAI_API_KEY=sk-proj-abcdefghijkl": "sk-proj-abcdefghijkl",
    "/home/alice/vllm/setup.py": "alice",
    "/Users/alice/vllm": "alice",
    "C:\\Users\\alice\\vllm": "alice",
    "alice@mail.example.com wrote": "alice",
    "connect to 10.11.12.13:8000": "10.11.12.13",
    "Nov 18 13:44:09 bigiron vllm[1]: x": "bigiron",
    "aa:bb:cc:dd:ee:ff": "aa:bb:cc",
}


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_and_names_are_taken_out(text: str) -> None:
    assert SECRETS[text] not in redactor(["alice", "bigiron"])(text)


@pytest.mark.parametrize(
    "text",
    [
        "tokenizer.json: 100%",
        "--max-num-batched-tokens 2048",
        "torch 2.13.0+cpu on 127.0.0.1",
        "undefined symbol: _ZN3c1013MessageLoggerC1EPKciib",
        "/root/vllm/setup.py line 12",
    ],
)
def test_what_a_reader_needs_is_left(text: str) -> None:
    assert redactor(["root", "vllm"])(text) == text


def test_a_bundle_holds_the_logs_and_the_diagnosis_and_no_secret(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "log").write_text(f"HF_TOKEN=hf_abcdefghijkl on bigiron\n{FLOOR}")
    (run / "env.sh").write_text("export SECRET=1\n")
    (run / "receipt.json").write_text('{"host": "bigiron"}')
    out = bundle(
        [run], tmp_path / "report.tar.gz", documents={"facts.json": "{}"}, names=["bigiron"]
    )
    with tarfile.open(out) as archive:
        texts = {
            m.name: (archive.extractfile(m) or io.BytesIO()).read().decode()
            for m in archive.getmembers()
        }
    assert any("gcc-12-3-floor" in t for n, t in texts.items() if n.endswith("diagnosis.txt"))
    assert any(n.endswith("receipt.json") for n in texts)
    assert any(n.endswith("facts.json") for n in texts)
    assert not any(n.endswith("env.sh") for n in texts)
    assert not any("bigiron" in t or "hf_abcdefghijkl" in t for t in texts.values())


def test_a_bundle_is_the_same_each_time(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(FLOOR)
    one = bundle([log], tmp_path / "1.tar.gz", names=[]).read_bytes()
    assert bundle([log], tmp_path / "2.tar.gz", names=[]).read_bytes() == one


def test_a_bundle_that_cannot_be_written_is_a_setting_that_is_wrong(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(FLOOR)
    with pytest.raises(CpuBuildError) as caught:
        bundle([log], log / "x.tar.gz", names=[])
    assert caught.value.exit_code is ExitCode.SETTINGS


@pytest.mark.parametrize("name", ["made/here.tar.gz", "folder", "a.log/x.tar.gz"])
def test_a_place_for_a_bundle_is_looked_at_and_never_made(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.log").write_text(FLOOR)
    with pytest.raises(CpuBuildError, match=name) as caught:
        refuse_place(tmp_path / name)
    assert caught.value.exit_code is ExitCode.SETTINGS
    with pytest.raises(CpuBuildError):
        bundle([tmp_path / "a.log"], tmp_path / name, names=[])
    assert not (tmp_path / "made").exists()
    refuse_place(tmp_path / "folder" / "report.tar.gz")


def test_a_named_pipe_or_a_device_is_refused_unopened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for path, kind in (
        (tmp_path / "pipe", "a named pipe"),
        (tmp_path / "link", "a named pipe"),
        (Path("/dev/zero"), "a device"),
    ):
        with pytest.raises(CpuBuildError, match=f"{path} is {kind}") as caught:
            diagnose_paths([path])
        assert caught.value.exit_code is ExitCode.SETTINGS
    (tmp_path / "log").write_text(FLOOR)
    assert log_files([tmp_path]) == (tmp_path / "log",)


def test_a_pipe_that_a_shell_has_opened_is_read() -> None:
    end, other = os.pipe()
    os.write(other, FLOOR.encode())
    os.close(other)
    try:
        assert diagnose_paths([Path(f"/dev/fd/{end}")]).causes
    finally:
        os.close(end)


def test_the_answer_reads_as_text(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("hello\n" + FLOOR + "-- Configuring incomplete, errors occurred!\n")
    text = "\n".join(render_diagnosis(diagnose_paths([log]), verbose=True))
    for part in ("gcc-12-3-floor", "(sure)", "line 2:", "why:", "remedy:", "toolchain.gxx"):
        assert part in text


def test_health_and_the_unknown_read_as_text(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("hello\n")
    assert render_diagnosis(diagnose_paths([log])) == (
        "Nothing in 1 lines says that anything failed.",
    )
    log.write_text("FrobnicationError: the widget\n")
    text = "\n".join(render_diagnosis(diagnose_paths([log], exit_status=3)))
    for part in ("unknown", "FrobnicationError: the widget", "exit status 3", "to collect"):
        assert part in text
