"""The verb: environment, model and options in; table, document and files out."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from cpubuild import cli, jsonio, receipt, tuning
from cpubuild.calls import Call
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.origin import Origin
from cpubuild.tune import measure
from cpubuild.tune.trials import DEFAULT, Measured

GIB = 1 << 30
EITHER = ("env.sh", "env.systemd")
IMAGE = ("Dockerfile", "Dockerfile.dockerignore", "compose.yaml")
OPTIONS = ("model", "target", "options", "out", "measure", "quick")


@pytest.fixture
def call(monkeypatch, make_host, make_site, tmp_path):
    """Call the verb on a recorded host with an environment of the test."""
    host = make_host(memory={"available": 20 * GIB, "limit": None})
    env = make_site()
    (env / "bin").mkdir()

    def run(facts=host, **options):
        monkeypatch.setattr(tuning, "observe", lambda settings, state: facts)
        monkeypatch.setattr(tuning, "origin", lambda environ: Origin(checkout=tmp_path / "tool"))
        given = dict.fromkeys(OPTIONS) | {"target": str(env)} | options
        flags = {"state": str(tmp_path / "state")}
        made = Call(flags=flags, options=given, verbose=False, environ={"PATH": "/bin"})
        return tuning.tune(made)

    run.env = env
    return run


def valid(outcome):
    schema = json.loads(
        resources.files("cpubuild").joinpath("data/schemas/tune.json").read_text("utf-8")
    )
    document = jsonio.plain(outcome.document)
    errors = [e.message for e in Draft202012Validator(schema).iter_errors(document)]
    assert errors == []
    return document


def test_the_document_keeps_to_its_schema(call, make_model):
    assert valid(call())["model"] is None
    document = valid(call(model=str(make_model())))
    assert document["fits"] is True
    assert "--max-model-len" in document["arguments"]


def test_the_table_has_value_and_reason_of_each_setting(call, make_model):
    text = "\n".join(call(model=str(make_model())).lines)
    for word in ("VLLM_CPU_OMP_THREADS_BIND", "0-1", "one thread on each", "--dtype", "AMX"):
        assert word in text


def test_a_model_that_does_not_fit_ends_with_its_exit_code(call, make_host, make_model):
    tight = make_host(memory={"available": GIB, "limit": None})
    outcome = call(facts=tight, model=str(make_model()))
    assert outcome.exit_code is ExitCode.UNSUPPORTED
    assert valid(outcome)["fits"] is False
    assert any("bytes are missing" in line for line in outcome.lines)


def test_files_are_written_where_they_are_wanted(call, make_model, tmp_path):
    model = make_model()
    jsonio.write(call.env / "receipt.json", {"vllm": {"version": "0.32.0+cpu"}})
    document = valid(call(model=str(model), out=str(tmp_path / "out")))
    names = (*EITHER, "vllm.service", *IMAGE, "cloud-init.yaml")
    assert document["left_out"] == []
    assert document["files"] == [str(tmp_path / "out" / n) for n in names]
    shell, systemd = ((tmp_path / "out" / n).read_text() for n in EITHER)
    assert "export VLLM_CPU_OMP_THREADS_BIND=0-1\n" in shell
    assert 'VLLM_CPU_OMP_THREADS_BIND="0-1"\n' in systemd
    assert f"# vllm serve {model} --dtype bfloat16" in shell
    assert (
        f'serve "{model}" --name "model" --foreground'
        in (tmp_path / "out" / "vllm.service").read_text()
    )
    document = valid(call(out=str(tmp_path / "any")))
    assert [Path(f).name for f in document["files"]] == list(EITHER)


def test_what_cannot_be_written_is_told_with_the_reason(call, make_host, make_model, tmp_path):
    outcome = call(model=str(make_model()), out=str(tmp_path / "out"))  # no release is known
    assert {row["name"] for row in valid(outcome)["left_out"]} == {*IMAGE, "cloud-init.yaml"}
    assert any(
        line.startswith("not written: Dockerfile: the release of this") for line in outcome.lines
    )
    tight = make_host(memory={"available": GIB, "limit": None})
    outcome = call(facts=tight, model=str(tmp_path / "model"), out=str(tmp_path / "tight"))
    assert [Path(f).name for f in valid(outcome)["files"]] == list(EITHER)
    assert {row["reason"] for row in valid(outcome)["left_out"]} == {
        "the model cannot be served here"
    }


def test_the_models_name_is_the_one_that_serve_gives_it(tmp_path):
    assert tuning.served_name(str(tmp_path), tmp_path) == tmp_path.name
    assert tuning.served_name("qwen2.5-0.5b", tmp_path) == "qwen2.5-0.5b"
    assert tuning.served_name(None, None) == ""


def test_a_folder_that_cannot_be_written_is_named(call, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CpuBuildError, match="--out") as caught:
        call(out=str(tmp_path / "file" / "below"))
    assert caught.value.exit_code is ExitCode.SETTINGS


def test_a_users_options_win_and_changes_are_told(call, make_model, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("dtype: float32\ndevice: cpu\nport: 9000\napi-key: k\n")
    path.write_text(path.read_text().replace("port: 9000\n", ""))
    outcome = call(model=str(make_model()), options=str(path))
    document = valid(outcome)
    assert document["arguments"][-4:] == ["--dtype", "float32", "--api-key", "k"]
    assert [c["given"] for c in document["changes"]] == ["--device cpu"]
    assert any("--device cpu -> left out" in line for line in outcome.lines)


def test_without_an_environment_it_says_what_to_do(call):
    with pytest.raises(CpuBuildError, match="nothing is installed") as caught:
        call(target=None)
    assert "cpubuild bootstrap" in caught.value.problems[0].remedy


def test_a_target_without_vllm_is_named(call, tmp_path):
    with pytest.raises(CpuBuildError, match="no vllm is installed"):
        call(target=str(tmp_path))


def test_quick_without_measure_is_refused(call):
    with pytest.raises(CpuBuildError, match="--quick without --measure"):
        call(quick=True)


@pytest.mark.parametrize(
    ("named", "quick", "stays"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_measurement_is_kept_for_a_real_model_only(
    call, make_model, monkeypatch, named, quick, stays
):
    def fake(target, computed, more, wanted, *, quick, say):
        return tuple(
            Measured(trial=t, single=5.0 if t.name == DEFAULT else 8.0, batch=47.0) for t in wanted
        )

    monkeypatch.setattr(measure, "measure", fake)
    model = str(make_model()) if named else None
    outcome = call(measure=True, quick=quick, model=model)
    document = valid(outcome)
    assert (document["measured"]["kept"] is not None) is stays
    assert document["measured"]["chosen"] == "as computed"
    again = valid(call(model=model))
    assert any(f["id"] == "tune.measured" for f in again["findings"]) is stays


def test_the_model_may_stand_without_its_option():
    assert cli.with_options(["tune", "qwen", "--measure"]) == [
        "tune",
        "--model",
        "qwen",
        "--measure",
    ]
    assert cli.with_options(["tune", "--out", "x", "m"]) == ["tune", "--out", "x", "--model", "m"]


def test_the_release_is_told_by_the_receipt_or_the_package(call):
    site = call.env / "lib/python3.11/site-packages"
    assert receipt.release_of(call.env) == "unknown"
    (site / "vllm-0.31.0+cpu.dist-info").mkdir()
    assert receipt.release_of(call.env) == "0.31.0"
    jsonio.write(call.env / "receipt.json", {"vllm": {"version": "0.32.0+cpu"}})
    assert receipt.release_of(call.env) == "0.32.0"


def test_a_compiler_that_vllm_needs_is_in_the_files(call, make_host, tmp_path):
    facts = make_host(memory={"available": 20 * GIB})
    jsonio.write(call.env / "receipt.json", {"environment_variables": {"CXX": "/usr/bin/g++-14"}})
    call(facts=replace(facts, compilers=()), out=str(tmp_path / "o"))
    assert "export CXX=/usr/bin/g++-14" in (tmp_path / "o" / "env.sh").read_text()
