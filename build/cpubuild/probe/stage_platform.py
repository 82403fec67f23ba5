"""The platform, layer by layer, as vLLM decides it."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import platform as host
import sys
from importlib import metadata
from typing import Any

GROUP = "vllm.platform_plugins"


class Ear(logging.Handler):
    """Collects what a logger says, as ``LEVEL text``."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.DEBUG)
        self.said: list[str] = []
        self.logger = logging.getLogger(name)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep level and text."""
        self.said.append(f"{record.levelname} {record.getMessage()}"[:500])

    def __enter__(self) -> Ear:
        self.level_before = self.logger.level
        self.logger.addHandler(self)
        self.logger.setLevel(logging.DEBUG)
        return self

    def __exit__(self, *_: object) -> None:
        self.logger.removeHandler(self)
        self.logger.setLevel(self.level_before)


def ask(name: str, function: Any) -> dict[str, Any]:
    """One plugin's own verdict: the class it names or None, what it said, what it raised."""
    with Ear("vllm.platforms") as ear:
        answer: dict[str, Any] = {"name": name, "verdict": None, "error": None}
        try:
            answer["verdict"] = function()
        except BaseException as error:
            answer["error"] = f"{type(error).__name__}: {error}"[:500]
    answer["said"] = [line for line in ear.said if not line.endswith("is available.")] or ear.said
    return answer


def external() -> list[dict[str, Any]]:
    """The platform plugins that other distributions bring, each asked."""
    answers = []
    found: Any = metadata.entry_points()
    entries = found.select(group=GROUP) if hasattr(found, "select") else found.get(GROUP, [])
    for entry in entries:

        def load(entry: Any = entry) -> Any:
            return entry.load()()

        answer = ask(entry.name, load)
        dist = getattr(entry, "dist", None)
        answer["value"] = entry.value
        answer["distribution"] = f"{dist.metadata['Name']} {dist.version}" if dist else None
        answers.append(answer)
    return answers


def version_of(name: str) -> dict[str, Any]:
    """importlib.metadata's answer for a distribution."""
    try:
        return {"value": metadata.version(name), "error": None}
    except metadata.PackageNotFoundError as error:
        return {"value": None, "error": f"PackageNotFoundError: {error}"}


def describe_torch() -> dict[str, Any]:
    """torch, imported."""
    try:
        torch: Any = importlib.import_module("torch")
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"[:1000]}
    return {
        "error": None,
        "version": str(torch.__version__),
        "cuda": getattr(torch.version, "cuda", None),
        "hip": getattr(torch.version, "hip", None),
        "file": torch.__file__,
    }


def describe(current: Any) -> dict[str, Any]:
    """The platform object vLLM took."""
    kind = type(current)
    is_cpu = getattr(current, "is_cpu", None)
    return {
        "class": kind.__name__,
        "qualname": f"{kind.__module__}.{kind.__qualname__}",
        "bases": [c.__name__ for c in inspect.getmro(kind)],
        "is_cpu": bool(is_cpu()) if callable(is_cpu) else False,
        "device_type": str(getattr(current, "device_type", "")),
        "unspecified": kind.__name__ == "UnspecifiedPlatform",
    }


def resolve(platforms: Any) -> dict[str, Any]:
    """What ``current_platform`` is, and what was said on the way."""
    with Ear("vllm.platforms") as ear:
        try:
            answer = describe(platforms.current_platform)
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:1000]}
    answer["said"] = ear.said
    return answer


def run(_stage: str, _context: dict[str, Any]) -> dict[str, Any]:
    """Everything about the platform; imports torch and vllm.platforms, loads no kernel."""
    document: dict[str, Any] = {
        "python": host.python_version(),
        "executable": sys.executable,
        "target_device": os.environ.get("VLLM_TARGET_DEVICE"),
        "version": version_of("vllm"),
        "torch": describe_torch(),
    }
    try:
        platforms: Any = importlib.import_module("vllm.platforms")
    except BaseException as error:
        document["import_error"] = f"{type(error).__name__}: {error}"[:2000]
        document["stop"] = "vllm.platforms cannot be imported"
        return document
    document["import_error"] = None
    document["file"] = getattr(sys.modules.get("vllm"), "__file__", None)
    document["resolved"] = resolve(platforms)
    builtin = getattr(platforms, "builtin_platform_plugins", None)
    document["builtin"] = [ask(name, f) for name, f in (builtin or {}).items()]
    document["external"] = external()
    if not document["resolved"].get("is_cpu"):
        document["stop"] = "vLLM does not take the CPU platform"
    return document
