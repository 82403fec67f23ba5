"""Ask vLLM itself, in the target environment: the platform, the kernels and the words.

Usage: ``python ask_runtime.py FOLDER STAGE...``. Each stage writes FOLDER/<stage>.json as soon as
it is done, so that what was learned survives a crash of a later one. A stage that raises writes
``{"error": {...}}``. vLLM's own output goes wherever stdout and stderr go, never into a document.
``FOLDER/options.json`` holds the options of the stages, if any.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MODULES = {
    "platform": "stage_platform",
    "kernels": "stage_kernels",
    "reference": "stage_words",
    "eager": "stage_words",
    "compiled": "stage_words",
    "second": "stage_words",
    "bfloat16": "stage_words",
    "client": "stage_client",
    "real": "stage_real",
    "measure": "stage_measure",
    "fetch": "stage_fetch",
}


def load(name: str) -> Any:
    """Load a neighbouring script by its path: this folder never gets onto sys.path."""
    full = "cpubuild_probe_" + name
    if full in sys.modules:
        return sys.modules[full]
    spec = importlib.util.spec_from_file_location(full, HERE / (name + ".py"))
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)
    return module


def read(folder: str, name: str) -> Any:
    """The document ``name`` of an earlier stage, or of the caller; None when there is none."""
    path = Path(folder, name + ".json")
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write(folder: str, name: str, document: Any) -> None:
    """Write one document whole or not at all."""
    part = Path(folder, name + ".json.part")
    part.write_text(json.dumps(document), encoding="utf-8")
    part.replace(part.with_suffix(""))


def failure(error: BaseException) -> dict[str, Any]:
    """An exception as data."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return {
        "type": type(error).__name__,
        "message": str(error)[:2000],
        "traceback": "".join(lines)[-4000:],
    }


def main() -> int:
    """Run the stages in order; one that raises ends the run with status 3, a stop with 4."""
    folder, stages = sys.argv[1], sys.argv[2:]
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE]
    context: dict[str, Any] = {"folder": folder, "options": read(folder, "options") or {}}
    context["load"] = load
    context["read"] = lambda name: read(folder, name)
    for stage in stages:
        started = time.monotonic()
        try:
            run: Callable[[str, dict[str, Any]], dict[str, Any]] = load(MODULES[stage]).run
            document = run(stage, context)
        except BaseException as error:
            document = {"error": failure(error)}
        document["seconds"] = round(time.monotonic() - started, 3)
        write(folder, stage, document)
        if "error" in document:
            sys.stderr.write(document["error"]["traceback"] + "\n")
            return 3
        if document.get("stop"):
            sys.stderr.write(f"stopped after {stage}: {document['stop']}\n")
            return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
