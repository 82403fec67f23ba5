"""Templates to text: jinja2 with StrictUndefined and quoting for each syntax."""

from __future__ import annotations

import json
import shlex
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any


def shipped(name: str) -> Traversable:
    """The folder ``patches`` or ``templates``: in the checkout, or inside the installed package."""
    checkout = Path(__file__).resolve().parents[2] / name
    inside = resources.files("cpubuild").joinpath("_shipped", name)
    return inside if inside.is_dir() else checkout


def systemd_quote(value: str) -> str:
    """Quote a value for systemd's EnvironmentFile=."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def json_quote(value: Any) -> str:
    """A value as JSON in one line, which is YAML too and the exec form of a Dockerfile."""
    return json.dumps(value, ensure_ascii=False)


def compose_quote(value: Any) -> str:
    """A value for a compose file, where ``$`` begins a variable and ``$$`` stands for itself."""
    return json_quote(value).replace("$", "$$")


def dockerfile_quote(value: str) -> str:
    """Quote a value for ARG and ENV of a Dockerfile, where ``$`` begins a variable."""
    return '"' + "".join(f"\\{c}" if c in '\\"$' else c for c in value) + '"'


def render(name: str, values: dict[str, Any]) -> str:
    """Render the template ``name``; a missing value is an error, never an empty string."""
    import jinja2

    env = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=False,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - shell and unit files, quoted by the filters below
    )
    env.filters["shell"] = shlex.quote
    env.filters["systemd"] = systemd_quote
    env.filters["json"] = json_quote
    env.filters["compose"] = compose_quote
    env.filters["dockerfile"] = dockerfile_quote
    text = shipped("templates").joinpath(name).read_text(encoding="utf-8")
    return env.from_string(text).render(**values)
