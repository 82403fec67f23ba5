"""What `tune --out` writes in the hands of those who read it: systemd, hadolint, compose, sh."""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from tests.tinymodel import write_model

from cpubuild import deploy, jsonio
from cpubuild.facts.collect import replay
from cpubuild.origin import STAGE0, Origin, origin
from cpubuild.tune import Tuning

pytestmark = pytest.mark.integration
HOST = Path(__file__).parents[1] / "hosts" / "amx-bf16--sapphire-rapids-vm"
BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]
NAMES = ("plain", 'a 100% "m$del" it\'s ${X} \\')


@pytest.fixture(params=NAMES, ids=["plain", "hostile"])
def out(request, tmp_path):
    """A folder with everything, for a model of a plain name and one of a hostile name."""
    return written(tmp_path, request.param, Origin(checkout=ROOT))


def written(tmp_path: Path, name: str, where: Origin) -> Path:
    model = tmp_path / "models" / name
    model.mkdir(parents=True)
    env = tmp_path / "env"
    jsonio.write(env / "receipt.json", {"settings": {"vllm": {"value": "0.32.0"}}})
    tuning = Tuning(
        env=env, release="0.32.0", model=model, variables=(), options=(), memory=5 << 30
    )
    job = deploy.Job(
        tuning=tuning,
        facts=replay(HOST),
        more=(),
        state=tmp_path / "state",
        name=name,
        origin=where,
    )
    done = deploy.write(tmp_path / "out", job)
    assert done.left_out == ()
    return tmp_path / "out"


def run(*argv: object, **options) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in argv]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, **options)


def user_data(out: Path) -> dict[str, str]:
    config = YAML(typ="safe").load((out / "cloud-init.yaml").read_text("utf-8"))
    return {file["path"]: file["content"] for file in config["write_files"]}


# --- the owners' own tools --------------------------------------------------------------------


def needed(program: str, package: str) -> str:
    """The path of a program that this machine must have for the checks to be worth their name."""
    found = shutil.which(program)
    if found is None:
        pytest.fail(f"this test needs {program}; do: apt-get install {package}")
    return found


def test_systemd_takes_both_units(out, tmp_path):
    program = needed("systemd-analyze", "systemd")
    inner = tmp_path / "inner" / "vllm.service"
    inner.parent.mkdir()
    text = user_data(out)["/etc/systemd/system/vllm.service"]
    inner.write_text(text.replace(f"{deploy.HOME}/.venv/bin", str(BIN)), encoding="utf-8")
    for unit in (out / "vllm.service", inner):
        done = run(program, "verify", unit)
        assert (done.returncode, done.stderr) == (0, "")
        # Root without DynamicUser, the network, files and NUMA calls are what is left of exposure.
        strict = ("security", "--offline=true", "--no-pager", "--threshold=25", unit)
        done = run(program, *strict)
        assert done.returncode == 0, done.stdout
        assert run(program, *strict[:-2], "--threshold=10", unit).returncode != 0
    text = (out / "vllm.service").read_text("utf-8")
    assert "MemoryMax=6144M\n" in text
    assert "api-key" not in text

    broken = tmp_path / "broken.service"
    broken.write_text(text.replace("ExecStart=", "ExecStart=/no/such/program "))
    assert run(program, "verify", broken).returncode != 0, "the check cannot fail"


def test_hadolint_finds_nothing_in_the_dockerfile(out, tmp_path):
    done = run(BIN / "hadolint", "--no-color", out / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")
    broken = tmp_path / "Broken"
    broken.write_text((out / "Dockerfile").read_text("utf-8") + "FROM debian\nRUN cd /x\n")
    assert run(BIN / "hadolint", broken).returncode != 0, "the check cannot fail"


def test_the_compose_file_keeps_to_the_compose_specification(out, tmp_path):
    check = (BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec")
    done = run(*check, out / "compose.yaml")
    assert done.returncode == 0, done.stdout
    broken = tmp_path / "broken.yaml"
    text = (out / "compose.yaml").read_text("utf-8")
    broken.write_text(text.replace("read_only: true\n    tmpfs", "readonly: true\n    tmpfs"))
    assert run(*check, broken).returncode != 0, "the check cannot fail"


def reader(tmp_path: Path) -> tuple[list[str], str]:
    """What reads compose files here, and its search path: docker's own where it is, else podman's.

    Not docker-compose 1.29 of Debian 12: it knows neither a project's name, nor secrets of a build,
    nor create_host_path. podman-compose asks podman for its version before it reads; no more of
    podman is needed, so a stand-in answers.
    """
    path = os.environ["PATH"]
    program = shutil.which("docker")
    if program and run(program, "compose", "version").returncode == 0:
        return [program, "compose"], path
    program = str(BIN / "podman-compose")
    if not Path(program).is_file():
        pytest.fail("this test needs podman-compose; do: make .venv/.dev")
    podman = tmp_path / "bin" / "podman"
    podman.parent.mkdir()
    podman.write_text("#!/bin/sh\necho podman version 4.3.1\n")
    podman.chmod(0o755)
    return [program], f"{podman.parent}:{path}"


def test_compose_reads_back_what_was_meant(out, tmp_path):
    program, path = reader(tmp_path)
    show = (*program, "-f", out / "compose.yaml", "config")
    environ = {"PATH": path, "HOME": os.environ.get("HOME", "/")}
    for keyless in ({}, {"VLLM_API_KEY": ""}):
        done = run(*show, env=environ | keyless)
        assert done.returncode != 0
        assert "VLLM_API_KEY" in done.stderr
    done = run(*show, env=environ | {"VLLM_API_KEY": "k"})
    assert done.returncode == 0, done.stderr
    service = YAML(typ="safe").load(done.stdout)["services"]["vllm"]
    model = next((out.parent / "models").iterdir())
    # docker prints a dollar doubled again, so that its output is a compose file.
    assert service["volumes"][0]["source"].replace("$$", "$") == str(model)
    assert service["command"][-1].replace("$$", "$") == model.name
    assert service["environment"]["VLLM_API_KEY"] == "k"


def test_cloud_init_takes_the_user_data(out, tmp_path):
    program = needed("cloud-init", "cloud-init")
    done = run(program, "schema", "-c", out / "cloud-init.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    broken = tmp_path / "broken.yaml"
    text = (out / "cloud-init.yaml").read_text("utf-8")
    broken.write_text(text.replace('permissions: "0755"', "permissions: 755"))
    assert run(program, "schema", "-c", broken).returncode != 0, "the check cannot fail"


def test_user_data_fits_what_clouds_take(out):
    assert (out / "cloud-init.yaml").stat().st_size < 16384  # the least of the large ones


# --- what runs on the machine and in the image ------------------------------------------------

FAKE = """#!/bin/sh
echo "${0##*/} $*" >>"$LOG"
case "$FAILS" in "${0##*/} $1 "*) exit "${FAILS##* }" ;; esac
"""
CASES = [
    ("", 0, ["make", "cpubuild bootstrap", "systemctl daemon-reload", "systemctl enable"]),
    ("make -s 2", 4, ["make"]),
    ("cpubuild bootstrap 7", 7, ["make", "cpubuild bootstrap"]),
    (
        "systemctl enable 1",
        1,
        ["make", "cpubuild bootstrap", "systemctl daemon-reload", "systemctl enable"],
    ),
]


STAND_INS = ("make", "systemctl", "git", "cpubuild")


def provision(
    out: Path, home: Path, fails: str, stand_ins: tuple[str, ...] = STAND_INS
) -> tuple[subprocess.CompletedProcess, list[str]]:
    """Run the machine's script with programs that only note how they were called."""
    log, tools = home.parent / "log", home.parent / "bin"
    log.write_text("")
    for name in stand_ins:
        path = (home / ".venv/bin" if name == "cpubuild" else tools) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FAKE)
        path.chmod(0o755)
    script = user_data(out)["/usr/local/sbin/provision-vllm"].replace(deploy.HOME, str(home))
    env = {"PATH": f"{tools}:/usr/bin:/bin", "LOG": str(log), "FAILS": fails}
    done = run("sh", "-c", script, env=env)
    called = [" ".join(line.split(" ")[:2]) for line in log.read_text().splitlines()]
    return done, [c.removesuffix(" -s").removesuffix(" -C") for c in called]


@pytest.mark.parametrize(("fails", "code", "calls"), CASES)
def test_the_machines_script_ends_with_the_code_of_what_failed(out, tmp_path, fails, code, calls):
    home = tmp_path / "tool"
    home.mkdir()
    (home / "Makefile").touch()
    model = next((tmp_path / "models").iterdir())
    (model / "config.json").touch()
    done, called = provision(out, home, fails)
    assert (done.returncode, called) == (code, calls), done.stderr
    assert ("exit code" in done.stderr) is (code != 0)


def test_a_machine_without_tool_or_model_says_so(out, tmp_path):
    home = tmp_path / "tool"
    done, called = provision(out, home, "")
    assert (done.returncode, called) == (4, [])
    assert "put the tool into" in done.stderr
    (home / "Makefile").touch()
    done, called = provision(out, home, "")
    assert done.returncode == 4
    assert f"no model lies in {next((tmp_path / 'models').iterdir())}: exit code 4" in done.stderr


def test_a_machine_clones_the_tool_where_it_comes_from(tmp_path):
    where = Origin(checkout=ROOT, repository="https://example.com/tool?a=1&b=$(x)", commit="0abc")
    out = written(tmp_path, "plain", where)
    (tmp_path / "models/plain/config.json").touch()
    done, called = provision(out, tmp_path / "tool", "")
    assert done.returncode == 0, done.stderr
    assert called[:3] == ["git clone", "git", "make"]
    cloned = (tmp_path / "log").read_text().splitlines()[0]
    assert cloned == f"git clone --quiet --no-checkout {where.repository} {tmp_path / 'tool'}"
    done, called = provision(out, tmp_path / "tool2", "git clone 128")
    assert (done.returncode, called) == (5, ["git clone"])


def test_a_machine_without_the_commit_does_not_go_on_with_another(tmp_path):
    """Real git, a commit that is not there: neither the first run nor the next takes the branch."""
    there = tmp_path / "there"
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", there)
    assert run("git", "init", "--quiet", there).returncode == 0
    (there / "Makefile").touch()
    (there / ".venv/bin").mkdir(parents=True)
    (there / ".venv/bin/cpubuild").write_text(FAKE)
    (there / ".venv/bin/cpubuild").chmod(0o755)
    assert run(*git, "add", "--force", ".").returncode == 0
    assert run(*git, "commit", "--quiet", "-m", "x").returncode == 0
    commit = run(*git, "rev-parse", "HEAD").stdout.strip()
    home = tmp_path / "tool"
    for name, asked, code in (("a", "0" * 40, 5), ("b", "0" * 40, 5), ("c", commit, 0)):
        where = Origin(checkout=ROOT, repository=there.as_uri(), commit=asked)
        out = written(tmp_path, name, where)
        (tmp_path / "models" / name / "config.json").touch()
        done, _ = provision(out, home, "", stand_ins=("make", "systemctl"))
        assert done.returncode == code, done.stderr
        assert (home / "Makefile").exists() is (code == 0)


@pytest.fixture(params=[200, 503])
def answering(request):
    """A server that answers /health with one status."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(request.param if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            del words

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield request.param, server.server_port
        server.shutdown()
        thread.join()


def test_the_health_check_asks_past_any_proxy(answering):
    status, port = answering
    words = [str(w).replace(str(deploy.PORT), str(port)) for w in deploy.HEALTH["test"][1:]]
    proxied = {"http_proxy": "http://127.0.0.1:9", "PATH": os.environ["PATH"]}
    assert (run(sys.executable, *words, env=proxied).returncode == 0) is (status == 200)


@pytest.mark.parametrize("key", [None, ""])
def test_the_image_serves_nobody_without_a_key(tmp_path, key):
    """In a container vLLM listens on all addresses: nothing is started until there is a key."""
    words = [w.replace(f"{deploy.HOME}/.venv/bin", str(BIN)) for w in deploy.ENTRYPOINT]
    env = {"PATH": os.environ["PATH"], "CPUBUILD_STATE": str(tmp_path / "state")}
    env |= {"HOME": str(tmp_path)} | ({} if key is None else {"VLLM_API_KEY": key})
    done = run(*words, write_model(tmp_path / "model"), "--name", "m", env=env)
    assert done.returncode == 2
    assert "no key was given" in done.stderr
    keyed = run(*words, tmp_path / "model", "--name", "m", env=env | {"VLLM_API_KEY": "k"})
    assert "no key was given" not in keyed.stderr
    assert f"{deploy.BUILT_STATE}/current" in keyed.stderr  # there is none on this host


def test_everything_that_is_copied_into_the_image_is_there():
    found = origin({"PATH": os.environ["PATH"], "HOME": "/nonexistent"})
    assert found.checkout == ROOT
    text = (ROOT / "templates/Dockerfile.j2").read_text()
    names = [n for words in re.findall(r"(?m)^COPY ([\w. ]+) \S+$", text) for n in words.split()]
    assert names
    assert all((ROOT / name).exists() for name in names)
    assert {name.partition("/")[0] for name in STAGE0} <= set(names)


def test_the_words_of_the_entry_point_are_options_that_there_are():
    from cpubuild import tasks

    serve = next(task for task in tasks.TASKS if task.name == "serve")
    given = {w.removeprefix("--") for w in deploy.ENTRYPOINT if w.startswith("--")}
    assert given <= set(serve.help)
    assert json.loads(json.dumps(deploy.ENTRYPOINT)) == deploy.ENTRYPOINT
