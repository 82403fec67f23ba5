"""Records, keys and launches: what is believed, what is refused, who can read it."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from cpubuild import jsonio
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.serving import key as keys
from cpubuild.serving import launch, lifecycle, record, supervisor
from cpubuild.serving.launch import Launch
from cpubuild.serving.record import Files, Mark, Record
from cpubuild.state import State
from cpubuild.tune.model import Option, Tuning, Variable

OURS = Mark(pid=os.getpid(), started=psutil.Process().create_time())


def some(tmp_path: Path, **changes: Any) -> Record:
    made = Record(
        model="/models/qwen",
        name="qwen",
        host="127.0.0.1",
        port=8000,
        env=Path("/env"),
        release="0.32.0+cpu",
        tuned=True,
        log=tmp_path / "log",
        key_file=tmp_path / "key",
        supervisor=OURS,
        server=OURS,
        started="2026-12-01T00:00:00Z",
    )
    return dataclasses.replace(made, **changes)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(folder=tmp_path / "server")
    made.prepare()
    return made


def exit_code(call: Any, *arguments: Any, **named: Any) -> tuple[ExitCode, str]:
    with pytest.raises(CpuBuildError) as caught:
        call(*arguments, **named)
    assert caught.value.problems[0].remedy
    return caught.value.exit_code, str(caught.value)


# --- records -----------------------------------------------------------------------------------


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    for made in (some(tmp_path), some(tmp_path, server=None, ended="x", returncode=-9)):
        record.save(made, tmp_path / "r.json")
        assert record.load(tmp_path / "r.json") == made


@pytest.mark.parametrize(
    "damage",
    [
        {"port": "x"},
        {"supervisor": None},
        {"supervisor": {"pid": 1, "started": 1.0}},
        {"server": {"pid": "many", "started": 1.0}},
        {"model": None, "env": None},
    ],
)
def test_a_damaged_record_is_none(tmp_path: Path, damage: dict[str, Any]) -> None:
    value = jsonio.plain(some(tmp_path)) | damage
    jsonio.write(tmp_path / "r.json", value)
    assert record.load(tmp_path / "r.json") is None


def test_no_record_and_no_json_are_none(tmp_path: Path) -> None:
    assert record.load(tmp_path / "none") is None
    (tmp_path / "r.json").write_text("{", encoding="utf-8")
    assert record.load(tmp_path / "r.json") is None


def test_a_number_that_went_to_another_process_is_not_believed(
    tmp_path: Path, files: Files
) -> None:
    reused = Mark(pid=os.getpid(), started=OURS.started - 3600)
    assert some(tmp_path).alive
    stale = some(tmp_path, supervisor=reused, server=reused)
    assert not stale.alive
    record.save(stale, files.record)
    assert lifecycle.running(files) is None
    assert lifecycle.crashed(files) == stale
    # Nothing is ended by a number alone: this process would be.
    assert lifecycle.end(stale, files) == []
    assert not files.record.exists()


def test_cleaning_spares_what_a_server_works_with(tmp_path: Path) -> None:
    state = State(root=tmp_path)
    made = record.files_of(state)
    made.prepare()
    lifecycle.spare(state, everything=True)
    env = tmp_path / "envs" / "one"
    env.mkdir(parents=True)
    (env / "receipt.json").write_text("{}", encoding="utf-8")
    state.activate(env)
    record.save(some(tmp_path, env=env), made.record)
    lifecycle.spare(state, everything=False)
    assert exit_code(lifecycle.spare, state, everything=True)[0] is ExitCode.BUSY
    record.save(some(tmp_path, env=tmp_path / "old"), made.record)
    assert exit_code(lifecycle.spare, state, everything=False)[0] is ExitCode.BUSY


def test_what_has_ended_does_not_run(tmp_path: Path) -> None:
    assert not some(tmp_path, ended="2026-12-01T00:00:01Z", returncode=1).alive


def test_memory_and_family_are_those_of_living_processes(tmp_path: Path) -> None:
    found = record.family(some(tmp_path))
    assert os.getpid() in [p.pid for p in found]
    used = record.memory(found)
    assert used["pss"] > 0
    assert used["processes"] >= 1


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("::1", "http://[::1]:8000"),
        ("localhost", "http://localhost:8000"),
    ],
)
def test_where_a_client_on_this_host_goes(tmp_path: Path, host: str, url: str) -> None:
    assert some(tmp_path, host=host).url == url


def test_the_folder_is_this_user_s_alone(files: Files) -> None:
    assert stat.S_IMODE(files.folder.stat().st_mode) == 0o700


# --- how it ended ------------------------------------------------------------------------------


def test_a_killed_server_is_explained_by_its_signal(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a\n\nb\n", encoding="utf-8")
    error = lifecycle.explained(some(tmp_path, returncode=-9, ended="x"))
    assert error.exit_code is ExitCode.VERIFY
    assert "SIGKILL" in str(error)
    assert "memory" in error.problems[0].why
    assert error.tail == ("a", "b")


def test_a_server_that_ended_by_itself_is_left_to_diagnose(tmp_path: Path) -> None:
    error = lifecycle.explained(some(tmp_path, returncode=1, ended="x"))
    assert "exit status 1" in str(error)
    assert error.log == tmp_path / "log"
    assert error.problems[0].remedy == ()


@pytest.mark.parametrize("status", [0, -15, 143])
def test_a_server_that_somebody_else_ended_is_told_apart(tmp_path: Path, status: int) -> None:
    log = tmp_path / "log"
    log.write_text("INFO shutdown triggered\nnanobind: leaked 3 types!\n", encoding="utf-8")
    error = lifecycle.explained(some(tmp_path, returncode=status, ended="x"))
    assert "something else asked it to end" in error.problems[0].why
    assert error.tail == ("INFO shutdown triggered",)
    log.write_text("vllm.v1.engine.exceptions.EngineDeadError: EngineCore\n", encoding="utf-8")
    error = lifecycle.explained(some(tmp_path, returncode=status, ended="x"))
    assert error.problems[0].remedy == ()


def test_milestones_are_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    log = tmp_path / "log"
    assert lifecycle.milestone(log, "", said.append) == ""
    log.write_text("INFO Loading safetensors checkpoint shards\n", encoding="utf-8")
    last = lifecycle.milestone(log, "", said.append)
    last = lifecycle.milestone(log, last, said.append)
    log.write_text("x\nINFO:     Application startup complete.\n", encoding="utf-8")
    lifecycle.milestone(log, last, said.append)
    assert said == ["the weights are being loaded", "the server answers"]


def test_the_log_begins_anew_when_it_is_full(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of the server before\n", encoding="utf-8")
    with supervisor.rotating(log, size=1000) as write:
        for number in range(200):
            write(f"line {number:03d} 你好")
    parts = sorted(p.name for p in tmp_path.iterdir())
    assert parts == ["log", "log.1", "log.2", "log.3"]
    assert all(p.stat().st_size <= 1000 for p in tmp_path.iterdir())
    assert log.read_text(encoding="utf-8").splitlines()[-1] == "line 199 你好"


# --- keys --------------------------------------------------------------------------------------


def test_a_key_is_made_once_and_only_this_user_reads_it(tmp_path: Path) -> None:
    path, before = tmp_path / "key", os.umask(0)
    try:
        made = keys.settle(path, None)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(made) >= 32
    assert keys.settle(path, None) == made
    assert keys.settle(path, "given") == "given"
    assert keys.kept(path) == "given"
    path.chmod(0o644)
    assert keys.kept(path) == "given"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["key"]


def test_a_kept_key_that_cannot_be_used_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("two words\n", encoding="utf-8")
    assert keys.kept(path) is None
    assert keys.settle(path, None) != "two words"


def test_a_key_comes_from_option_file_or_variable(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.write_text("in-file\n", encoding="utf-8")
    assert keys.given("in-option", None, {}) == "in-option"
    assert keys.given(None, str(path), {"VLLM_API_KEY": "x"}) == "in-file"
    assert keys.given(None, None, {"VLLM_API_KEY": "in-variable"}) == "in-variable"
    assert keys.given(None, None, {"VLLM_API_KEY": ""}) is None


def test_keys_that_cannot_be_used_are_not_shown(tmp_path: Path) -> None:
    for bad in ("", "  ", "my secret", "schlüssel", "a\x00b"):
        code, text = exit_code(keys.given, bad, None, {})
        assert code is ExitCode.SETTINGS
        assert not bad.strip() or bad not in text
    assert exit_code(keys.given, "a", "b", {})[0] is ExitCode.SETTINGS
    assert exit_code(keys.given, None, str(tmp_path / "none"), {})[0] is ExitCode.SETTINGS
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert exit_code(keys.given, None, str(tmp_path / "binary"), {})[0] is ExitCode.SETTINGS


# --- launches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_others_need_a_key_that_somebody_gave(host: str) -> None:
    code, text = exit_code(launch.guard, host, key_given=False)
    assert (code, host in text) == (ExitCode.SETTINGS, True)
    launch.guard(host, key_given=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_the_loopback_needs_none(host: str) -> None:
    launch.guard(host, key_given=False)


@pytest.mark.parametrize(("text", "port"), [(None, 8000), ("0", 0), ("65535", 65535)])
def test_ports(text: str | None, port: int) -> None:
    assert launch.port_of(text) == port


@pytest.mark.parametrize("text", ["65536", "-1", "x", "", "８０"])
def test_ports_that_are_none(text: str) -> None:
    assert exit_code(launch.port_of, text)[0] is ExitCode.SETTINGS


@pytest.mark.parametrize("word", ["--host", "--port=1", "--api_key", "--served-model-name"])
def test_what_this_tool_sets_is_not_set_behind_its_back(word: str) -> None:
    assert exit_code(launch.extras, ["--x", word])[0] is ExitCode.SETTINGS


def tuning(env: Path) -> Tuning:
    return Tuning(
        env=env,
        release="0.32.0",
        model=None,
        variables=(Variable(name="VLLM_CPU_KVCACHE_SPACE", value="2", reason="r"),),
        options=(Option(name="--max-num-seqs", value="8", reason="r"),),
        removed=(("OMP_NUM_THREADS", "it bites"),),
        launcher=("numactl", "-m", "0"),
    )


def environment(tmp_path: Path, source: str = "VLLM_API_KEY") -> Path:
    env = tmp_path / "env"
    package = env / "lib/python3.11/site-packages/vllm"
    package.mkdir(parents=True)
    (package / "envs.py").write_text(source, encoding="utf-8")
    (package.parent / "vllm-0.9.2+cpu.dist-info").mkdir()
    (env / "bin").mkdir()
    for name in ("python", "vllm"):
        (env / "bin" / name).touch()
    return env


def composed(env: Path, tmp_path: Path, **changes: Any) -> Launch:
    given: dict[str, Any] = {
        "env": env,
        "release": "0.32.0",
        "model": "/m",
        "name": "m",
        "host": "127.0.0.1",
        "port": 8000,
        "key": "s3cret",
        "tuning": tuning(env),
        "more": ("--max-num-seqs", "2"),
        "base": {"PATH": "/bin", "OMP_NUM_THREADS": "1", "PYTHONPATH": "/x", "CPUBUILD_JSON": "1"},
        "cache": tmp_path / "cache",
    }
    return launch.compose(**(given | changes))


def test_a_launch_is_tuned_and_keeps_its_key_out_of_sight(tmp_path: Path) -> None:
    env = environment(tmp_path)
    made = composed(env, tmp_path)
    assert made.argv[:6] == (
        *("numactl", "-m", "0"),
        *(str(env / "bin/python"), str(env / "bin/vllm"), "serve"),
    )
    assert "s3cret" not in " ".join(made.argv)
    assert made.env["VLLM_API_KEY"] == "s3cret"
    assert made.env["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert made.env["PATH"] == f"{env / 'bin'}:/bin"
    assert not {"OMP_NUM_THREADS", "PYTHONPATH", "CPUBUILD_JSON"} & set(made.env)
    assert made.argv[-4:] == ("--max-num-seqs", "8", "--max-num-seqs", "2")


def test_a_release_that_reads_no_variable_gets_the_option(tmp_path: Path) -> None:
    made = composed(environment(tmp_path, "nothing"), tmp_path, tuning=None)
    assert made.argv[made.argv.index("--api-key") + 1] == "s3cret"
    assert "VLLM_API_KEY" not in made.env
    assert not made.tuned


def test_a_launch_reaches_the_supervisor_as_it_is(tmp_path: Path) -> None:
    made = composed(environment(tmp_path), tmp_path, base={"PATH": "/b", "ODD": "\udcff"})
    text = supervisor.to_text(made, tmp_path)
    assert supervisor.from_text(text) == (made, Files(folder=tmp_path))
    assert json.loads(text.encode("ascii"))


def test_the_environment_to_serve_from(tmp_path: Path) -> None:
    env, state = environment(tmp_path), State(root=tmp_path / "state")
    assert launch.target_of(state, str(env)) == (env, "0.9.2")
    assert launch.target_of(state, str(env / "bin/python"))[0] == env
    assert exit_code(launch.target_of, state, None)[0] is ExitCode.SETTINGS
    assert exit_code(launch.target_of, state, str(tmp_path / "none"))[0] is ExitCode.SETTINGS


def test_a_keeper_writes_each_change(files: Files, tmp_path: Path) -> None:
    keeper = supervisor.Keeper(some(tmp_path), files.record)
    keeper.change(ready="2026-12-01T00:00:09Z")
    kept = record.load(files.record)
    assert kept is not None
    assert kept.ready == "2026-12-01T00:00:09Z"
    assert kept.supervisor.started <= time.time()
