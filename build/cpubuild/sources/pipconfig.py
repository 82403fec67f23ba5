"""pip's effective configuration, read from pip itself, and its translation for uv."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cpubuild import run
from cpubuild.errors import ExitCode, fail

# pip's own order (ConfigOptionParser): each later section replaces what the earlier ones said.
COMMANDS = ("install", "download")
CERTIFICATE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
UV_INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL")

UV_EFFECTS: dict[str, str] = {
    "UV_TORCH_BACKEND": "makes uv take torch from another index, a CUDA build unless it says cpu",
    "UV_DEFAULT_INDEX": "replaces the default package index",
    "UV_INDEX_URL": "replaces the default package index",
    "UV_INDEX": "adds package indexes",
    "UV_EXTRA_INDEX_URL": "adds package indexes",
    "UV_FIND_LINKS": "adds places that packages are taken from",
    "UV_INDEX_STRATEGY": "changes which index wins",
    "UV_NO_INDEX": "switches the package indexes off",
    "UV_CONSTRAINT": "caps versions",
    "UV_OVERRIDE": "replaces the versions that packages ask for",
    "UV_EXCLUDE": "leaves packages out",
    "UV_EXCLUDE_NEWER": "hides packages newer than a date",
    "UV_PRERELEASE": "changes whether pre-releases are taken",
    "UV_RESOLUTION": "changes which versions are preferred",
    "UV_NO_BUILD": "forbids building from source",
    "UV_NO_BINARY": "forbids wheels",
    "UV_OFFLINE": "switches the network off",
    "UV_CONFIG_FILE": "names another configuration of uv",
    "UV_PYTHON": "names the interpreter that uv works for",
    "UV_SYSTEM_PYTHON": "makes uv install outside the target environment",
    "UV_PROJECT_ENVIRONMENT": "names another target environment",
}

# Keys that change how pip talks to people, or where it keeps its own things; nothing to hand over.
HARMLESS = frozenset(
    {
        "disable-pip-version-check",
        "no-color",
        "no-input",
        "quiet",
        "verbose",
        "progress-bar",
        "log",
        "cache-dir",
        "no-cache-dir",
        "root-user-action",
        "break-system-packages",
        "require-virtualenv",
        "user",
        "no-warn-script-location",
        "no-python-version-warning",
        "format",
        "python",
        "exists-action",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PipConfig:
    """What pip would use to find and fetch packages on this host.

    URLs may hold credentials: show them through ``redact``. ``timeout`` is in seconds. ``unused``
    holds the keys that have an effect in pip and none here, ``notes`` what was mended or left
    out on the way, as sentences.
    """

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    no_index: bool = False
    timeout: float | None = None
    retries: int | None = None
    only_binary: tuple[str, ...] = ()
    no_binary: tuple[str, ...] = ()
    unused: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def index_urls(self) -> tuple[str, ...]:
        """The configured indexes, the default one first; empty when pip is told to use none."""
        if self.no_index:
            return ()
        return ((self.index_url,) if self.index_url else ()) + self.extra_index_urls


def redact(text: str) -> str:
    """Replace user and password in every URL of ``text`` by ``***``."""
    return re.sub(r"(?<=://)[^/\s'\"]+@", "***@", text)


def parse_pip_config_list(text: str) -> dict[str, str]:
    """Read ``pip config list``: ``section.key='value'`` to value, values of several lines kept.

    Raises ValueError naming the line that has another shape.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, equals, literal = line.partition("=")
        try:
            value = ast.literal_eval(literal.strip())
        except (ValueError, SyntaxError):
            value = None
        if not equals or "." not in name.strip(".") or not isinstance(value, str):
            raise ValueError(f"line {number} of `pip config list` is not section.key='value'")
        values[name.strip()] = value
    return values


def effective(values: Mapping[str, str]) -> dict[str, str]:
    """Merge the sections in pip's order: global, the commands' own, the environment."""
    merged: dict[str, str] = {}
    for section in ("global", *COMMANDS[::-1], ":env:"):
        for name, value in values.items():
            head, _, key = name.rpartition(".")
            if head == section and value.strip():
                key = key.replace("_", "-")
                merged[{"default-timeout": "timeout", "pypi-url": "index-url"}.get(key, key)] = (
                    value
                )
    return merged


def pip_config_from(
    text: str,
    *,
    environ: Mapping[str, str] | None = None,
    exists: Iterable[str] | None = None,
) -> PipConfig:
    """Turn the text of ``pip config list`` into a PipConfig.

    ``environ`` fills in what the whole host sets for everyone (certificate bundle, uv's default
    index). ``exists``, when given, are the local find-links that are there; others are dropped
    with a note, as pip does (uv would stop).
    """
    merged = effective(parse_pip_config_list(text))
    environ = environ or {}
    notes: list[str] = []
    find_links = tuple(merged.pop("find-links", "").split())
    if exists is not None:
        there = set(exists)
        gone = [k for k in find_links if local_path(k) is not None and k not in there]
        notes += [f"find-links {k} does not exist and is left out" for k in gone]
        find_links = tuple(k for k in find_links if k not in gone)
    index_url = merged.pop("index-url", None)
    if index_url is None:
        index_url = next((environ[k] for k in UV_INDEX_VARIABLES if environ.get(k)), None)
        if index_url:
            notes.append("pip names no index; the one that uv is given in the environment is used")
    cert = merged.pop("cert", None) or next(
        (environ[k] for k in CERTIFICATE_VARIABLES if environ.get(k)), None
    )
    return PipConfig(
        index_url=index_url,
        extra_index_urls=tuple(merged.pop("extra-index-url", "").split()),
        find_links=find_links,
        constraints=tuple(merged.pop("constraint", "").split()),
        trusted_hosts=tuple(merged.pop("trusted-host", "").split()),
        cert=cert,
        client_cert=merged.pop("client-cert", None),
        proxy=merged.pop("proxy", None),
        no_index=_flag(merged.pop("no-index", "")),
        timeout=_number(merged.pop("timeout", ""), "timeout", notes),
        retries=_whole(merged.pop("retries", ""), notes),
        only_binary=_names(merged.pop("only-binary", "")),
        no_binary=_names(merged.pop("no-binary", "")),
        unused=tuple(sorted((k, redact(v)) for k, v in merged.items() if k not in HARMLESS)),
        notes=tuple(notes),
    )


def read_pip_config(
    python: str | None = None, *, environ: Mapping[str, str] | None = None
) -> PipConfig:
    """Ask the pip of ``python`` (this interpreter by default) what is configured on this host."""
    environ = os.environ if environ is None else environ
    done = run.capture(
        [python or sys.executable, "-m", "pip", "--no-input", "config", "list"],
        env=dict(environ) | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_COLOR": "1"},
        timeout=60,
    )
    if not done.ok:
        raise run.failed(
            done,
            ExitCode.SETTINGS,
            "pip cannot read its own configuration",
            why="package indexes, proxies and certificates of this host are taken from it",
        )
    try:
        links = effective(parse_pip_config_list(done.stdout)).get("find-links", "").split()
        there = [k for k in links if (path := local_path(k)) is not None and path.exists()]
        return pip_config_from(done.stdout, environ=environ, exists=there)
    except ValueError as error:
        raise fail(
            ExitCode.SETTINGS, f"pip's configuration cannot be read: {redact(str(error))}"
        ) from error


def local_path(location: str) -> Path | None:
    """The file or folder that a ``file:`` URL or a plain path names; None for a remote URL."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme and "://" in location:
        return None
    return Path(location).expanduser()


def uv_arguments(config: PipConfig) -> tuple[str, ...]:
    """The options that make uv look where pip looks.

    pip takes the best version of all indexes together, hence the strategy. Locations that hold
    credentials are not here but in ``uv_environment``, so that no command line shows them.
    """
    args: list[str] = []
    if config.index_url and not has_secret(config.index_url):
        args += ["--default-index", config.index_url]
    if not any(map(has_secret, config.extra_index_urls)):
        args += _each("--index", config.extra_index_urls)
    if config.index_urls:
        args += ["--index-strategy", "unsafe-best-match"]
    if not any(map(has_secret, config.find_links)):
        args += _each("--find-links", config.find_links)
    if not any(map(has_secret, config.constraints)):
        args += _each("--constraint", config.constraints)
    args += _each("--allow-insecure-host", config.trusted_hosts)
    args += _each("--only-binary", config.only_binary)
    args += _each("--no-binary", config.no_binary)
    if config.no_index:
        args.append("--no-index")
    return tuple(args)


def uv_environment(config: PipConfig) -> dict[str, str]:
    """The variables that make uv reach what pip reaches: certificates, proxy, limits, secrets."""
    env: dict[str, str] = {}
    if config.cert:
        env["SSL_CERT_FILE"] = config.cert
    if config.client_cert:
        env["SSL_CLIENT_CERT"] = config.client_cert
    if config.proxy:
        env |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), config.proxy)
    if config.timeout:
        env["UV_HTTP_TIMEOUT"] = str(max(1, round(config.timeout)))
    if config.retries is not None:
        env["UV_HTTP_RETRIES"] = str(config.retries)
    if config.index_url and has_secret(config.index_url):
        env["UV_DEFAULT_INDEX"] = config.index_url
    if any(map(has_secret, config.extra_index_urls)):
        env["UV_INDEX"] = " ".join(config.extra_index_urls)
    if any(map(has_secret, config.find_links)):
        env["UV_FIND_LINKS"] = ",".join(config.find_links)
    if any(map(has_secret, config.constraints)):
        env["UV_CONSTRAINT"] = " ".join(config.constraints)
    return env


def uv_overrides(environ: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    """The UV_ variables set in ``environ`` that would change uv's answer: name, value, effect."""
    return tuple(
        (name, redact(environ[name]), effect)
        for name, effect in UV_EFFECTS.items()
        if environ.get(name)
    )


def has_secret(url: str) -> bool:
    """Whether ``url`` carries a user or a password."""
    return "@" in urlsplit(url).netloc


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _names(text: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[\s,]+", text) if word)


def _flag(text: str) -> bool:
    return text.strip().lower() in ("y", "yes", "t", "true", "on", "1")


def _number(text: str, key: str, notes: list[str]) -> float | None:
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        notes.append(f"pip's {key} is {text.strip()!r}, not a number, and is left out")
        return None


def _whole(text: str, notes: list[str]) -> int | None:
    number = _number(text, "retries", notes)
    return None if number is None else int(number)
