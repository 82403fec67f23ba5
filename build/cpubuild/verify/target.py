"""The environment under test: its interpreter, a clean environment for it, and the probes."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from cpubuild.errors import ExitCode, fail
from cpubuild.run import Completed, capture, logged
from cpubuild.verify.knowledge import table

IDENTITY_SECONDS = 60.0
RUNTIME_SECONDS = 300.0
WORDS_SECONDS = 1800.0
FETCH_SECONDS = 4 * 3600.0
SMALL_HOST = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What one process of the target left behind: how it ended, and the documents by stage."""

    completed: Completed
    documents: dict[str, dict[str, Any]]
    stages: tuple[str, ...]

    @property
    def broken_stage(self) -> str | None:
        """The first stage that left no document, or one that says error."""
        for stage in self.stages:
            if "error" in self.documents.get(stage, {"error": None}):
                return stage
        return None

    def good(self, stage: str) -> dict[str, Any] | None:
        """The document of a stage that ended well."""
        document = self.documents.get(stage)
        return document if document is not None and "error" not in document else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """An interpreter to be asked, the folder for logs and caches, the caller's environment."""

    python: Path
    folder: Path
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def neutral(self) -> Path:
        """An empty folder to be the working directory."""
        return self.folder / "cwd"

    @property
    def documents(self) -> Path:
        """Where the probes write."""
        return self.folder / "documents"

    def prepare(self, *, fresh_caches: bool) -> None:
        """Make the folders; documents of an earlier run go, compile caches when asked."""
        for path in (self.documents, self.neutral):
            shutil.rmtree(path, ignore_errors=True)
        if fresh_caches:
            shutil.rmtree(self.folder / "cache", ignore_errors=True)
        try:
            for path in (self.documents, self.neutral, self.folder / "cache"):
                path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise fail(
                ExitCode.SETTINGS,
                f"cannot write to {self.folder}: {error.strerror}",
                why="verification keeps logs, a small model and compile caches there",
                remedy=("name another folder",),
            ) from error

    def clean(self) -> dict[str, str]:
        """The caller's environment without what can change the answer, with caches of our own."""
        kept = clean_environment(self.environ)
        cache = self.folder / "cache"
        kept |= {
            "VLLM_CACHE_ROOT": str(cache / "vllm"),
            "VLLM_CONFIG_ROOT": str(cache / "config"),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "HF_HOME": str(cache / "huggingface"),
        }
        if len(os.sched_getaffinity(0)) <= SMALL_HOST:
            kept["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "0"
        return kept

    def identity(self) -> tuple[Completed, dict[str, Any] | None]:
        """Ask what is installed; None when the interpreter gave no document."""
        out = self.documents / "identity.json"
        argv = [str(self.python), str(script("ask_identity.py")), str(out)]
        done = capture(argv, env=self.clean(), cwd=self.neutral, timeout=IDENTITY_SECONDS)
        return done, read_document(out)

    def fetch(self, options: Mapping[str, Any]) -> tuple[Completed, dict[str, Any] | None]:
        """Let a hub's client in the target fetch a model, with the caller's own hub settings.

        No log is written: the environment may hold a token.
        """
        folder = self.documents / "fetch"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
        argv = [str(self.python), str(script("ask_runtime.py")), str(folder), "fetch"]
        env = online(self.environ)
        done = capture(argv, env=env, cwd=self.neutral, timeout=FETCH_SECONDS)
        return done, read_document(folder / "fetch.json")

    def run(
        self,
        stages: Sequence[str],
        *,
        name: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = RUNTIME_SECONDS,
        options: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Run stages of ask_runtime.py in one process; log in ``folder/logs/name``.

        The documents lie in ``folder/documents``; a process with an ``env`` of its own writes
        into ``folder/documents/name``.
        """
        folder = self.documents / name if env is not None else self.documents
        folder.mkdir(parents=True, exist_ok=True)
        if options is not None:
            (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
        logs = self.folder / "logs" / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        argv = [str(self.python), str(script("ask_runtime.py")), str(folder), *stages]
        done = logged(
            argv,
            folder=logs,
            env=self.clean() if env is None else env,
            cwd=self.neutral if cwd is None else cwd,
            timeout=timeout,
        )
        found = {s: read_document(folder / f"{s}.json") for s in stages}
        return Answer(
            completed=done,
            documents={s: d for s, d in found.items() if d is not None},
            stages=tuple(stages),
        )


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` without the names of [environment] in the table, plus those it sets."""
    rules = table()["environment"]
    prefixes = tuple(rules["drop_prefixes"])
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(prefixes) and name not in rules["drop"]
    }
    return kept | dict(rules["set"])


def online(environ: Mapping[str, str]) -> dict[str, str]:
    """The clean environment for a hub's client: the caller's hub settings, nothing kept offline."""
    rules = table()["environment"]
    offline = {n for n in rules["set"] if n.endswith("_OFFLINE")}
    kept = {n: v for n, v in clean_environment(environ).items() if n not in offline}
    hubs = {n: v for n, v in environ.items() if n.startswith(tuple(rules["hub_prefixes"]))}
    return kept | hubs


def biting(environ: Mapping[str, str]) -> dict[str, str]:
    """What of ``environ`` can change the platform that vLLM takes."""
    return {n: environ[n] for n in table()["environment"]["biting"] if environ.get(n)}


def script(name: str) -> Path:
    """The path of a probe script."""
    return Path(str(files("cpubuild.probe").joinpath(name)))


def interpreter(target: Path) -> Path:
    """The interpreter that ``target`` names: itself, or that of an environment folder."""
    candidates = (
        [target] if not target.is_dir() else [target / "bin" / "python3", target / "bin" / "python"]
    )
    for path in candidates:
        if path.is_file() and os.access(path, os.X_OK):
            return Path(os.path.normpath(Path.cwd() / path))
    raise fail(
        ExitCode.SETTINGS,
        f"no Python interpreter at {target}",
        why="the target is a Python executable or the folder of a virtual environment",
        remedy=("give --target ENV/bin/python",),
    )


def read_document(path: Path) -> dict[str, Any] | None:
    """A document a probe left; None when there is none or it is not whole."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
