"""What brings a model to service: every value survives its file's syntax, or is refused."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from cpubuild import deploy, jsonio, origin, render
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.facts.model import NumaNode
from cpubuild.models import store
from cpubuild.models.store import Stored
from cpubuild.origin import Origin
from cpubuild.serving import launch
from cpubuild.tune import Tuning
from cpubuild.tune.useroptions import Given, as_option

GIB = 1 << 30
PRINTABLE = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]))
HOSTILE = (
    "plain",
    "two words",
    """it's "quoted" `id`""",
    "$HOME ${VLLM_API_KEY:?x} $(id) $$",
    "100% %n %%h",
    "back\\slash\\",
    "模型 ünï 😀",
    "a: b #c",
    "{{ model }} {% raw %}",
    "- x",
    " edges ",
    "*&!|>",
)


def loaded(path):
    return YAML(typ="safe").load(path.read_text("utf-8"))


@pytest.fixture
def job(tmp_path, make_host):
    """A job for a model, on a recorded host with one memory node."""

    def make(model=None, *, facts=None, fits=True, checkout=True, receipt=True, **changes):
        env = tmp_path / "env"
        (env / "lib/python3.11").mkdir(parents=True, exist_ok=True)
        if receipt:
            rows = {"vllm": "0.32.0", "profile": "text", "targets": "all"}
            settings = {name: {"value": value} for name, value in rows.items()}
            kept = {"settings": settings, "sources": {"vllm": {"record": {"kind": "git"}}}}
            jsonio.write(env / "receipt.json", kept)
        folder = model or tmp_path / "model"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").touch()
        where = Origin(checkout=tmp_path / "tool") if checkout else Origin(checkout=None)
        given = {
            "tuning": Tuning(
                env=env,
                release="0.32.0",
                model=folder,
                variables=(),
                options=(),
                findings=() if fits else (blocker(),),
                memory=5 * GIB,
            ),
            "facts": facts or make_host(),
            "more": (),
            "state": tmp_path / "state",
            "name": folder.name,
            "origin": where,
        }
        return deploy.Job(**given | changes)

    return make


def blocker():
    from cpubuild.findings import Finding, Status

    return Finding(id="x", status=Status.BLOCKER, title="it does not fit")


# --- values that would break a syntax ---------------------------------------------------------


def exec_words(unit: str) -> list[str]:
    """The words of ExecStart as systemd.service(5) reads them: quotes, then %% and $$."""
    line = re.search(r"(?m)^ExecStart=(.*)$", unit)[1]
    words = re.findall(r'"((?:\\.|[^"\\])*)"|(\S+)', line)
    read = [re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for quoted, plain in words]
    return [word.replace("%%", "%").replace("$$", "$") for word in read]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_survives_every_file(job, tmp_path, name):
    model = tmp_path / "models" / name
    out = tmp_path / name / "out"
    written = deploy.write(out, job(model, origin=Origin(checkout=tmp_path / name / "tool")))
    assert written.left_out == ()

    service = loaded(out / "compose.yaml")["services"]["vllm"]
    kept = json.dumps({k: v for k, v in service.items() if k != "environment"})
    assert "$" not in kept.replace("$$", ""), "compose would replace it"
    assert service["volumes"][0]["source"].replace("$$", "$") == str(model)
    assert service["command"][-1].replace("$$", "$") == name
    assert service["build"]["context"].replace("$$", "$") == str(tmp_path / name / "tool")
    assert service["build"]["dockerfile"].replace("$$", "$") == str(out / "Dockerfile")

    unit = (out / "vllm.service").read_text("utf-8")
    assert exec_words(unit)[1:5] == ["serve", str(model), "--name", name]
    assert not re.search(r"(?m)\\$", unit), "systemd would join the next line"

    script, inner = (f["content"] for f in loaded(out / "cloud-init.yaml")["write_files"])
    assert exec_words(inner)[1:5] == ["serve", str(model), "--name", name]
    assert shlex.quote(str(model)) in script
    assert f"{model}/config.json" in shlex.split(script, comments=True)

    image = (out / "Dockerfile").read_text("utf-8")
    outside = [line for line in image.splitlines() if name in line and name != "plain"]
    assert all(line.startswith("#") for line in outside)


@pytest.mark.parametrize(
    "name",
    ["a\nb", "a\rb", "a\tb", "a\x1bb", "a\x7fb", "a\x85b", "a\u2028b", "a\ufeffb", "a\udcffb"],
)
def test_what_no_line_can_hold_is_refused_before_anything_is_written(job, tmp_path, name):
    out = tmp_path / "out"
    with pytest.raises(CpuBuildError, match="cannot stand in a file") as caught:
        deploy.write(out, job(name=name))
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert not out.exists()
    with pytest.raises(CpuBuildError, match="cannot stand in a file"):
        deploy.write(tmp_path / name, job())


def dockerfile_reads(text: str) -> str:
    """A double-quoted word of a Dockerfile: a backslash takes the next letter as it is."""
    assert text[0] == text[-1] == '"'
    body, read = text[1:-1], ""
    while body:
        assert body[0] not in '"$'
        step = 2 if body[0] == "\\" else 1
        read, body = read + body[step - 1], body[step:]
    return read


@given(PRINTABLE)
def test_values_survive_the_quoting_of_a_dockerfile(value):
    assert dockerfile_reads(render.dockerfile_quote(value)) == value


@given(PRINTABLE)
def test_values_survive_yaml_and_compose(value):
    read = YAML(typ="safe").load(f"x: {render.json_quote(value)}\n")["x"]
    assert read == value
    read = YAML(typ="safe").load(f"x: {render.compose_quote([value])}\n")["x"][0]
    assert "$" not in read.replace("$$", "")
    assert read.replace("$$", "$") == value


# --- what the files say -----------------------------------------------------------------------


def test_the_image_is_built_from_what_the_environment_was_built_from(job, tmp_path):
    deploy.write(tmp_path / "out", job())
    image = (tmp_path / "out/Dockerfile").read_text()
    for line in ('ARG VLLM="0.32.0"', 'ARG PROFILE="text"', 'ARG TARGETS="all"'):
        assert f"\n{line}\n" in image
    assert "\nARG BASE=debian:12\n" in image
    assert re.findall(r"(?m)^FROM (.*)$", image) == ["${BASE} AS base", "base AS build", "base"]
    last = image.rpartition("\nFROM ")[2]
    assert "\nUSER 10001:10001\n" in last
    assert "API_KEY" not in re.sub(r"(?m)^#.*$", "", image)
    ignored = (tmp_path / "out/Dockerfile.dockerignore").read_text().splitlines()
    copied = set(re.findall(r"(?m)^COPY ([\w. ]+) \S+$", image))
    names = {n for words in copied for n in words.split()}
    assert {f"!{n}" for n in names} == {line for line in ignored if line.startswith("!")}


def test_the_image_holds_what_vllm_needs_to_run_and_the_build_stage_the_rest(job, tmp_path):
    base, reason, packages = deploy.base_of("3.11")
    assert base == "debian:12"
    assert {"g++", "libnuma1", "python3", "python3.11-dev", "util-linux"} <= set(packages)
    assert not {"git", "make", "libnuma-dev"} & set(packages)
    assert "3.11" in reason


@pytest.mark.parametrize(
    ("python", "base", "why"),
    [
        ("3.11", "debian:12", "has the Python 3.11"),
        ("3.12", "ubuntu:24.04", "has the Python 3.12"),
        ("3.13", "debian:13", "has the Python 3.13"),
        ("3.10", "debian:12", "No base image has Python 3.10: in debian:12 vLLM is built for 3.11"),
    ],
)
def test_the_base_image_follows_the_environments_python(python, base, why):
    found, reason, _ = deploy.base_of(python)
    assert found == base
    assert why in reason


def test_the_compose_file_limits_what_the_plan_takes(job, make_host, tmp_path):
    facts = make_host(cpu={"quota": 1.5, "allowed": (0, 1, 2, 5)})
    deploy.write(tmp_path / "out", job(facts=facts))
    service = loaded(tmp_path / "out/compose.yaml")["services"]["vllm"]
    assert service["mem_limit"] == "6144m"
    assert service["cpuset"] == "0-2,5"
    assert service["cpus"] == 1.5
    assert service["ports"] == ["127.0.0.1:8000:8000"]
    assert service["volumes"][0]["read_only"] is True
    assert service["environment"]["VLLM_API_KEY"].startswith("${VLLM_API_KEY:?")
    unit = (tmp_path / "out/vllm.service").read_text()
    assert "MemoryMax=6144M\n" in unit


@pytest.mark.parametrize(
    ("paths", "private"),
    [
        (("/srv/model", "/var/lib/x"), True),
        (("/srv/model", "/tmp/state"), False),
        (("/var/tmp/model",), False),
        (("/tmpfiles/model",), True),
    ],
)
def test_what_lies_in_tmp_is_not_hidden_from_the_service(paths, private):
    assert deploy.temporary(*(Path(p) for p in paths)) is not private


def test_a_link_into_tmp_counts_and_the_unit_says_so(job, tmp_path, monkeypatch):
    link = tmp_path / "link"
    link.symlink_to("/tmp")
    assert deploy.temporary(link / "model")
    for there, line in ((True, "ReadWritePaths=/tmp /var/tmp"), (False, "PrivateTmp=yes")):
        monkeypatch.setattr(deploy, "temporary", lambda *paths, there=there: there)
        deploy.write(tmp_path / "out", job())
        assert f"\n{line}\n" in (tmp_path / "out/vllm.service").read_text()


def test_unit_image_and_compose_file_agree(job, tmp_path):
    deploy.write(tmp_path / "out", job())
    service = loaded(tmp_path / "out/compose.yaml")["services"]["vllm"]
    image = (tmp_path / "out/Dockerfile").read_text()
    probe = json.loads(re.search(r"(?m)^HEALTHCHECK .* CMD (\[.*\])$", image)[1])
    assert service["healthcheck"]["test"] == ["CMD", *probe]
    entry = json.loads(re.search(r"(?m)^ENTRYPOINT (\[.*\])$", image)[1])
    assert entry == deploy.ENTRYPOINT
    assert "TimeoutStopSec=90\n" in (tmp_path / "out/vllm.service").read_text()
    assert service["stop_grace_period"] == "90s"


@pytest.mark.parametrize(
    ("nodes", "container", "needed"),
    [
        (1, {}, False),
        (2, {}, True),
        (0, {}, True),
        (1, {"mbind": "EPERM"}, True),
        (1, {"get_mempolicy": "EPERM"}, True),
    ],
)
def test_sys_nice_is_asked_for_where_memory_is_to_be_bound(
    job, make_host, tmp_path, nodes, container, needed
):
    numa = tuple(NumaNode(id=n, cpus=(n,)) for n in range(nodes))
    facts = make_host(numa=numa, container={"get_mempolicy": "ok", "mbind": "ok", **container})
    deploy.write(tmp_path / "out", job(facts=facts))
    service = loaded(tmp_path / "out/compose.yaml")["services"]["vllm"]
    assert service.get("cap_add") == (["SYS_NICE"] if needed else None)
    assert service["cap_drop"] == ["ALL"]
    assert service["shm_size"] == f"{512 * max(1, nodes)}m"


def test_pips_configuration_comes_along_as_a_secret(job, tmp_path):
    where = Origin(checkout=tmp_path / "tool", pip=tmp_path / "pip $x.conf")
    deploy.write(tmp_path / "out", job(origin=where))
    document = loaded(tmp_path / "out/compose.yaml")
    assert document["services"]["vllm"]["build"]["secrets"] == ["pip"]
    assert document["secrets"]["pip"]["file"] == str(tmp_path / "pip $$x.conf")
    deploy.write(tmp_path / "none", job())
    assert "secrets" not in loaded(tmp_path / "none/compose.yaml")


def test_a_users_own_options_go_with_the_service_but_for_a_key(job, tmp_path):
    given = (
        Given(name="--max-num-seqs", values=("4",)),
        Given(name="--override", values=('{"a b": "$x%"}',)),
        Given(name="--enforce-eager"),
        Given(name="--api-key", values=("s3cr3t",)),
    )
    words = ["--", "--max-num-seqs", "4", "--override", '{"a b": "$x%"}', "--enforce-eager"]
    plain = job()
    tuning = replace(plain.tuning, options=tuple(as_option(g, "my.yaml") for g in given))
    written = deploy.write(tmp_path / "out", replace(plain, own=given, tuning=tuning))
    service = loaded(tmp_path / "out/compose.yaml")["services"]["vllm"]
    assert [w.replace("$$", "$") for w in service["command"][3:]] == words
    units = [(tmp_path / "out/vllm.service").read_text()]
    units.append(loaded(tmp_path / "out/cloud-init.yaml")["write_files"][1]["content"])
    assert all(exec_words(unit)[-len(words) :] == words for unit in units)
    assert not any("s3cr3t" in path.read_text("utf-8") for path in written.files)
    assert any(note.startswith("--api-key is not in") for note in written.notes)
    assert set(launch.OWN) == deploy.OWN, "serve refuses these behind --"


# --- what is left out -------------------------------------------------------------------------


def test_without_a_model_there_is_nothing_to_serve(job, tmp_path):
    tuning = Tuning(env=tmp_path, release="0.32.0", model=None, variables=(), options=())
    written = deploy.write(tmp_path / "out", job(tuning=tuning))
    assert [p.name for p in written.files] == ["env.sh", "env.systemd"]
    assert written.left_out == ()


@pytest.mark.parametrize(
    ("source", "vllm", "why"),
    [
        ({"kind": "path"}, "/src/vllm", "built from a path, /src/vllm"),
        ({"kind": "sdist"}, "latest", None),
    ],
)
def test_a_path_of_this_host_cannot_be_built_elsewhere(job, tmp_path, source, vllm, why):
    given = job()
    kept = {"settings": {"vllm": {"value": vllm}}, "sources": {"vllm": {"record": source}}}
    jsonio.write(given.tuning.env / "receipt.json", kept)
    written = deploy.write(tmp_path / "out", given)
    if why is None:
        assert written.left_out == ()
        assert 'ARG VLLM="0.32.0"' in (tmp_path / "out/Dockerfile").read_text()
        return
    assert {n for n, _ in written.left_out} == {
        "Dockerfile",
        "Dockerfile.dockerignore",
        "compose.yaml",
        "cloud-init.yaml",
    }
    assert all(why in reason for _, reason in written.left_out)
    assert (tmp_path / "out/vllm.service").is_file()


def test_a_tool_without_its_checkout_builds_no_image(job, tmp_path):
    written = deploy.write(tmp_path / "out", job(checkout=False))
    assert {n for n, _ in written.left_out} == {
        "Dockerfile",
        "Dockerfile.dockerignore",
        "compose.yaml",
    }
    assert (tmp_path / "out/cloud-init.yaml").is_file()


def test_a_model_that_does_not_fit_gets_no_service(job, tmp_path):
    written = deploy.write(tmp_path / "out", job(fits=False))
    assert [p.name for p in written.files] == ["env.sh", "env.systemd"]
    assert len(written.left_out) == len(deploy.OUTPUTS)


# --- models -----------------------------------------------------------------------------------


def test_a_hubs_cache_is_mounted_with_the_files_its_links_lead_to(job, tmp_path):
    repo = tmp_path / "models--Qwen"
    model = repo / "snapshots" / "abc"
    blob = repo / "blobs" / "1"
    blob.parent.mkdir(parents=True)
    blob.touch()
    model.mkdir(parents=True)
    (model / "model.safetensors").symlink_to("../../blobs/1")
    deploy.write(tmp_path / "out", job(model))
    service = loaded(tmp_path / "out/compose.yaml")["services"]["vllm"]
    assert service["volumes"][0]["source"] == str(repo)
    assert service["command"][0] == "/model/snapshots/abc"

    (model / "tokenizer.json").symlink_to("/elsewhere/tokenizer.json")
    written = deploy.write(tmp_path / "other", job(model))
    assert dict(written.left_out)["compose.yaml"].startswith("the model's files are links")


@pytest.mark.parametrize(
    ("hub", "kind", "there"),
    [("hf", "fetched", "Qwen/Qwen2"), ("local", "linked", "/srv/qwen2")],
)
def test_cloud_init_gets_a_stored_model_as_it_was_got(job, tmp_path, hub, kind, there):
    model = tmp_path / "entry" / store.FILES
    entry = Stored(
        entry=model.parent,
        id="Qwen/Qwen2",
        hub=hub,
        revision="0123abc",
        kind=kind,
        source="/srv/qwen2",
        created="2026-12-01",
        size=1,
        parameters=1,
        dtype="bfloat16",
        files=(),
    )
    model.mkdir(parents=True)
    store.write(entry, model.parent, {})
    deploy.write(tmp_path / "out", job(model, name="qwen2"))
    script, unit = (f["content"] for f in loaded(tmp_path / "out/cloud-init.yaml")["write_files"])
    got = f"model get {there} --from {hub} --revision 0123abc" in script
    assert got is (kind == "fetched")
    assert (f"{there}/config.json" in script) is (kind == "linked")
    assert exec_words(unit)[2:5] == [there, "--name", "qwen2"]


def test_files_that_the_container_cannot_read_are_told(job, tmp_path):
    given = job()
    (given.model / "config.json").chmod(0o600)
    said = deploy.write(tmp_path / "out", given).notes
    assert any("config.json: chmod -R o+rX" in text for text in said)
    (given.model / "config.json").chmod(0o644)
    given.model.chmod(0o755)
    assert not any("chmod" in text for text in deploy.write(tmp_path / "out", given).notes)


# --- where the tool comes from ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("https://example.com/a/tool.git", "https://example.com/a/tool.git"),
        ("https://me:secret@example.com:8443/tool", "https://example.com:8443/tool"),
        ("ssh://git@example.com/tool.git", "ssh://git@example.com/tool.git"),
        ("git@example.com:a/tool.git", None),
        ("/srv/git/tool", None),
        ("file:///srv/git/tool", None),
        ("https:///tool", None),
        ("https://example.com/a\u2028b", None),
    ],
)
def test_a_remote_as_others_can_use_it(url, public):
    assert origin.cloned_from(url) == public


def test_cloud_init_clones_the_commit_that_is_checked_out(job, tmp_path):
    where = Origin(checkout=tmp_path, repository="https://example.com/t?a=1&b=$2", commit="0abc")
    written = deploy.write(tmp_path / "out", job(origin=where))
    script = loaded(tmp_path / "out/cloud-init.yaml")["write_files"][0]["content"]
    words = shlex.split(script, comments=True)
    at = words.index("clone")
    assert words[at + 3 : at + 5] == [where.repository, deploy.HOME]
    assert words[words.index("--detach") + 1] == "0abc"
    assert written.notes == ()
    said = deploy.write(tmp_path / "out", job()).notes
    assert any("this checkout has no remote" in text for text in said)


def test_pips_file_is_the_one_pip_reads(tmp_path):
    home = tmp_path / "home"
    for name in (".config/pip/pip.conf", ".pip/pip.conf", "named"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    environ = {"HOME": str(home)}
    assert origin.pip_file(environ) == home / ".config/pip/pip.conf"
    assert origin.pip_file(environ | {"XDG_CONFIG_HOME": "/none"}) == home / ".pip/pip.conf"
    assert origin.pip_file(environ | {"PIP_CONFIG_FILE": str(home / "named")}) == home / "named"
    assert origin.pip_file(environ | {"PIP_CONFIG_FILE": "/dev/null"}) is None


def test_what_the_table_names_is_written(job, tmp_path):
    written = deploy.write(tmp_path / "out", job())
    names = ["env.sh", "env.systemd", *(name for _, name, _ in deploy.OUTPUTS)]
    assert (
        [p.name for p in written.files] == names == [p.name for p in written.files if p.is_file()]
    )
