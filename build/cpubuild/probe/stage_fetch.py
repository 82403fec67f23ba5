"""Fetch a model from a hub with the hub's own client, as far as this environment has it."""

from __future__ import annotations

import importlib
from typing import Any

WANTED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


def run(_stage: str, context: dict[str, Any]) -> dict[str, Any]:
    """The folder of the model; what is in the hub's cache already is not fetched again."""
    options = context["options"]
    name = "modelscope" if options["hub"] == "modelscope" else "huggingface_hub"
    client: Any = importlib.import_module(name)
    return {
        "client": f"{name} {client.__version__}",
        "folder": str(client.snapshot_download(options["model"], allow_patterns=WANTED)),
    }
