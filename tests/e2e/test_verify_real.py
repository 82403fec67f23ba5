"""Verification of a real vLLM, and of copies of it that were made wrong on purpose.

The real one is what the bootstrap of this folder's conftest installed. A copy is a virtual
environment whose site-packages link to the real ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from copy import deepcopy as copy_of
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from cpubuild.verify import Check, VerifyReport, change, verify
from cpubuild.verify.server import verify_server
from cpubuild.verify.target import Target

TARGET = ""
pytestmark = [
    pytest.mark.e2e,
]

HOOK = """
import importlib.abc, importlib.util, sys
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            patch(module)
        spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, Finder())
"""

ONE_WEIGHT = """
MODULE = "vllm.model_executor.models.qwen2"
def patch(module):
    load = module.Qwen2ForCausalLM.load_weights
    def changed(weights):
        for name, tensor in weights:
            if name == "model.layers.1.mlp.down_proj.weight":
                tensor = tensor.clone()
                tensor[3, 7] += 0.25
            yield name, tensor
    module.Qwen2ForCausalLM.load_weights = lambda self, weights: load(self, changed(weights))
"""

ATTENTION = """
MODULE = "vllm._custom_ops"
def patch(module):
    real = module.cpu_attention_with_kv_cache
    def wrong(*args, **kwargs):
        answer = real(*args, **kwargs)
        kwargs.get("output", args[3] if len(args) > 3 else None).mul_(1.002)
        return answer
    module.cpu_attention_with_kv_cache = wrong
"""

ONLY = ["words.tokenizer", "words.greedy_float32"]


@pytest.fixture(scope="module", autouse=True)
def _target(installed: dict[str, Any]) -> None:
    global TARGET
    TARGET = str(Path(installed["environment"]) / "bin" / "python")


class Copy:
    """A virtual environment that sees the packages of the real one through links."""

    def __init__(self, root: Path) -> None:
        # by the target's own interpreter: it may be another Python than the tool's
        argv = [TARGET, "-m", "venv", "--without-pip", "--symlinks", str(root / "env")]
        subprocess.run(argv, check=True)
        self.root = root
        self.python = root / "env" / "bin" / "python"
        self.site = self.packages(self.python)
        for path in self.packages(Path(TARGET)).iterdir():
            if path.name != "__pycache__" and not (self.site / path.name).exists():
                (self.site / path.name).symlink_to(path.resolve())

    @staticmethod
    def packages(python: Path) -> Path:
        done = subprocess.run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        )
        return Path(done.stdout.strip())

    def hook(self, text: str) -> None:
        (self.site / "made_wrong.py").write_text(text + HOOK)
        (self.site / "made_wrong.pth").write_text("import made_wrong\n")

    def metadata(self, version: str) -> None:
        found = next(self.site.glob("vllm-*.dist-info"))
        real = found.resolve()
        found.unlink()
        shutil.copytree(real, self.site / f"vllm-{version}.dist-info")
        path = self.site / f"vllm-{version}.dist-info" / "METADATA"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text(
            "".join(f"Version: {version}\n" if s.startswith("Version:") else s for s in lines)
        )

    def verify(self, **given: Any) -> VerifyReport:
        options: dict[str, Any] = {"folder": self.root / "state", "cwd": self.root}
        return verify(self.python, **(options | given))


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def found(report: VerifyReport, id_: str) -> Check:
    check = report.check(id_)
    assert check is not None, report.lines(verbose=True)
    return check


@dataclass(frozen=True, kw_only=True)
class Proved:
    """One whole verification of the real target, and the folder it left."""

    report: VerifyReport
    folder: Path

    def document(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "documents" / f"{name}.json").read_text())
        return found


@pytest.fixture(scope="module")
def proved(_target: None, tmp_path_factory: pytest.TempPathFactory) -> Proved:
    folder = tmp_path_factory.mktemp("proved")
    return Proved(report=verify(Path(TARGET), folder=folder, server=True), folder=folder)


@pytest.fixture
def model(proved: Proved, tmp_path: Path) -> Path:
    """The small model as files of its own."""
    made = shutil.copytree(proved.folder / "documents" / "model", tmp_path / "model")
    return Path(made)


def test_everything_passes(proved: Proved) -> None:
    report = proved.report
    assert report.verdict == "pass", "\n".join(report.lines(verbose=True))
    assert report.smoke is not None
    assert report.smoke.tokens > 0
    assert "cpu" in str(report.vllm.version)
    assert report.platform.is_cpu
    assert report.kernels.library in dict(report.kernels.files)
    assert report.smoke.speed is not None
    assert report.smoke.speed.best > 0
    assert report.unproved == ()


def test_the_same_installation_has_not_changed(proved: Proved, installed: dict[str, Any]) -> None:
    kept = json.loads((Path(installed["environment"]) / "receipt.json").read_text())
    receipt = {**kept, "verify": proved.report.to_json()}
    folder = proved.folder / "again"
    report = verify(Path(TARGET), folder=folder, receipt=receipt, only=["change"])
    assert report.verdict == "pass", "\n".join(report.lines(verbose=True))
    for name in ("packages", "library", "answers"):
        assert found(report, f"change.{name}").status == "pass"
    assert found(report, "change.speed").status in ("pass", "warn", "unknown")  # a busy host

    other = copy_of(receipt)
    speed = other["verify"]["smoke"]["speed"]
    assert report.smoke is not None
    assert report.smoke.speed is not None
    speed["runs"] = [s / 10 for s in report.smoke.speed.runs]
    other["verify"]["smoke"]["digest"] = "0" * 64
    assert change.answers(other, report.smoke).status == "fail"
    assert change.speed(other, report.smoke).status in ("warn", "unknown")


def test_a_source_checkout_as_working_directory_is_not_asked(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = sorted(state.glob("sources/vllm-*/tree")) or sorted(state.glob("builds/*/tree"))
    if not trees:
        pytest.skip("the wheel was not built here: there is no source tree")
    monkeypatch.chdir(trees[0])
    report = verify(Path(TARGET), level="quick", folder=tmp_path)
    assert report.verdict == "pass", "\n".join(report.lines(verbose=True))
    check = found(report, "identity.duplicates")
    assert check.status == "warn"
    assert str(trees[0] / "vllm") in check.summary
    report = verify(
        Path(TARGET),
        level="quick",
        folder=tmp_path,
        environ={**os.environ, "PYTHONPATH": str(trees[0])},
        only=["platform"],
    )
    assert found(report, "platform.environment").status in ("warn", "fail")
    assert found(report, "platform.class").status == "pass"


WITHOUT_NUMA = """
set -e
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$2"
rm "$2"/libnuma.so.1*
shift 2
exec "$@"
"""


def hidden(library: Path, scratch: Path) -> list[str]:
    """The start of a command line that runs the rest where ``library`` is not there."""
    scratch.mkdir()
    given = [str(scratch), str(library.parent)]
    return ["unshare", "--mount", "sh", "-c", WITHOUT_NUMA, "sh", *given]


def test_without_libnuma_it_is_named_with_its_package(tmp_path: Path) -> None:
    now = change.host_now(os.environ)
    if now.libnuma is None or shutil.which("unshare") is None:
        pytest.skip("needs libnuma and unshare")
    start = hidden(Path(now.libnuma).resolve(), tmp_path / "scratch")
    if subprocess.run([*start, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a private overlay cannot be mounted here")
    argv = [str(Path(sys.executable).parent / "cpubuild"), "verify", "--quick", "--json"]
    done = subprocess.run(
        [*start, *argv, "--state", str(tmp_path / "state"), "--target", TARGET],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 8, done.stderr
    checks = {c["id"]: c for c in json.loads(done.stdout)["checks"]}
    assert checks["kernels.symbols"]["status"] == "fail"
    assert "libnuma.so.1" in checks["kernels.symbols"]["summary"]
    assert "libnuma1" in checks["kernels.symbols"]["remedy"][0]
    assert checks["kernels.library"]["status"] == "fail"
    assert "libnuma" in checks["kernels.library"]["summary"]
    assert Path(now.libnuma).exists()


def asked(model: Path | str, folder: Path, **given: Any) -> VerifyReport:
    return verify(Path(TARGET), level="quick", folder=folder, model=model, only=["model"], **given)


def test_damaged_models_are_named_before_an_engine_starts(model: Path, tmp_path: Path) -> None:
    weights = model / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1000])
    report = asked(model, tmp_path / "state")
    assert report.verdict == "fail"
    assert "model.safetensors is truncated" in found(report, "model.files").summary
    assert found(report, "model.answers").status == "skip"
    assert not list((tmp_path / "state" / "logs").glob("model-*"))

    weights.write_bytes(whole)
    (model / "tokenizer.json").unlink()
    report = asked(model, tmp_path / "state")
    assert "no tokenizer" in found(report, "model.files").summary
    assert found(report, "model.answers").status == "skip"


def test_a_model_too_large_is_said_before_it_is_tried(model: Path, tmp_path: Path) -> None:
    size = 1 << 43
    header = {"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    text = json.dumps(header).encode()
    with (model / "model.safetensors").open("wb") as sink:
        sink.write(len(text).to_bytes(8, "little") + text)
        try:
            sink.truncate(8 + len(text) + size)
        except OSError:
            pytest.skip("this filesystem holds no sparse file of that size")
    report = asked(model, tmp_path / "state")
    assert found(report, "model.files").status == "pass"
    assert "can be taken" in found(report, "model.memory").summary
    assert found(report, "model.memory").status == "fail"
    assert found(report, "model.answers").status == "skip"


def test_a_hub_that_does_not_answer_is_said_in_one_sentence(tmp_path: Path) -> None:
    environ = {
        **{n: v for n, v in os.environ.items() if "proxy" not in n.lower()},
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HOME": str(tmp_path / "hf"),
    }
    report = asked("Qwen/Qwen2.5-0.5B-Instruct", tmp_path / "state", environ=environ)
    check = found(report, "model.files")
    assert check.status == "fail"
    assert "Hugging Face did not give it" in check.summary
    assert any("--model FOLDER" in line for line in check.remedy)


class Hub:
    """As much of Hugging Face as its client asks for when it fetches a model."""

    COMMIT = "0123456789abcdef0123456789abcdef01234567"

    def __init__(self, server: HTTPServer, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.files = [p.name for p in sorted(folder.iterdir())]
        server.expect_request(re.compile(f"/api/models/{name}/revision/.*")).respond_with_handler(
            self.info
        )
        server.expect_request(re.compile(f"/api/models/{name}/tree/.*")).respond_with_handler(
            self.tree
        )
        server.expect_request(re.compile(f"/{name}/resolve/.*")).respond_with_handler(self.file)

    def info(self, request: Request) -> Response:
        answer = {
            "id": self.name,
            "modelId": self.name,
            "sha": self.COMMIT,
            "siblings": [{"rfilename": n} for n in self.files],
        }
        return Response(json.dumps(answer), content_type="application/json")

    def tree(self, request: Request) -> Response:
        answer = [
            {"type": "file", "path": n, "size": (self.folder / n).stat().st_size, "oid": "0" * 40}
            for n in self.files
        ]
        return Response(json.dumps(answer), content_type="application/json")

    def file(self, request: Request) -> Response:
        data = (self.folder / request.path.rsplit("/", 1)[-1]).read_bytes()
        response = Response(data, content_type="application/octet-stream")
        response.headers["ETag"] = f'"{hashlib.sha256(data).hexdigest()}"'
        response.headers["X-Repo-Commit"] = self.COMMIT
        return response


def test_a_model_comes_from_a_hub_by_its_own_client(
    model: Path, tmp_path: Path, httpserver: HTTPServer
) -> None:
    (model / "pytorch_model.bin").write_bytes(b"not asked for")
    Hub(httpserver, "Qwen/tiny", model)
    environ = {
        **{n: v for n, v in os.environ.items() if "proxy" not in n.lower()},
        "HF_ENDPOINT": httpserver.url_for("").rstrip("/"),
        "HF_HOME": str(tmp_path / "hf"),
    }
    first = asked("Qwen/tiny", tmp_path / "state", environ=environ, skip=["model.answers"])
    check = found(first, "model.files")
    assert check.status == "pass", "\n".join(first.lines(verbose=True))
    assert "have the hub's hash" in check.summary
    (snapshot,) = (tmp_path / "hf" / "hub").glob("models--*/snapshots/*")
    assert not (snapshot / "pytorch_model.bin").exists()
    httpserver.clear()
    again = asked("Qwen/tiny", tmp_path / "state", environ=environ, skip=["model.answers"])
    assert "in the cache" in found(again, "model.files").evidence[0]
    assert httpserver.log == []


def test_a_model_of_random_weights_knows_no_answer(
    proved: Proved, model: Path, tmp_path: Path
) -> None:
    report = asked(model, tmp_path / "state")
    assert found(report, "model.files").status == "pass"
    assert found(report, "model.answers").summary == "0 of 4 questions answered as known"
    assert report.verdict == "fail"


def test_a_taken_port_is_said(proved: Proved, tmp_path: Path) -> None:
    target = Target(python=Path(TARGET), folder=tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        scripts = str(Path(TARGET).parent)
        (check,) = verify_server(target, proved.document("reference"), scripts, port=port)
    assert check.status == "fail"
    assert f"port {port} of 127.0.0.1 is taken" in check.summary


@pytest.mark.parametrize("wrong", [ONE_WEIGHT, ATTENTION], ids=["weight", "attention"])
def test_wrong_words_are_caught(copy: Copy, wrong: str) -> None:
    copy.hook(wrong)
    report = copy.verify(only=ONLY)
    assert report.verdict == "fail"
    assert found(report, "words.greedy_float32").status == "fail"
    assert found(report, "words.tokenizer").status == "pass"


def test_a_version_without_cpu_is_unspecified(copy: Copy) -> None:
    copy.metadata("0.0.1")
    report = copy.verify(level="quick")
    assert report.verdict == "fail"
    assert report.platform.cls == "UnspecifiedPlatform"
    assert "0.0.1" in found(report, "platform.class").summary


def test_the_variable_is_found_to_hide_it(copy: Copy) -> None:
    copy.metadata("0.0.1")
    report = copy.verify(level="quick", environ={**os.environ, "VLLM_TARGET_DEVICE": "cpu"})
    assert report.verdict == "fail"
    assert found(report, "platform.environment").status in ("warn", "pass")
    if found(report, "platform.environment").status == "warn":
        assert "CPU only because" in found(report, "platform.environment").summary


def test_documents_are_kept(tmp_path: Path) -> None:
    verify(Path(TARGET), level="quick", folder=tmp_path, only=["kernels"])
    document = json.loads((tmp_path / "documents" / "kernels.json").read_text())
    assert document["operators"]
