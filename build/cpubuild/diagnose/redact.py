"""Take tokens, user names, host names and addresses out of text before it leaves this machine."""

from __future__ import annotations

import contextlib
import getpass
import re
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

_SECRETS = (
    (r"\bhf_[A-Za-z0-9]{8,}", "hf_<token>"),
    (r"\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}", "<github token>"),
    (r"\bsk-[A-Za-z0-9_-]{12,}", "sk-<token>"),
    (r"\bglpat-[\w-]{12,}", "<gitlab token>"),
    (r"\bpypi-[\w-]{16,}", "<index token>"),
    (r"\bAKIA[0-9A-Z]{16}\b", "<aws key>"),
    (r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}", "<jwt>"),
    (r"(?i)\b(bearer|basic|token)[ =:]+[\w.~+/=-]{8,}", r"\1 <token>"),
    (r"([a-z][a-z0-9+.-]{1,15}://)[^\s/@:]{1,200}(?::[^\s/@]{0,200})?@", r"\1<credentials>@"),
    (
        r"(?i)\b([\w-]{0,60}(?:token|secret|passwo?r?d|passwd|api[_-]?key|credentials?))"
        r"(\s{0,3}[=:]\s{0,3})(?:'[^']{1,500}'|\"[^\"]{1,500}\"|[^\s'\",;]{4,500})",
        r"\1\2<redacted>",
    ),
    (r"(?i)(--[\w-]{0,60}(?:token|secret|password|api-key)\s+)[^\s'\",;]{4,500}", r"\1<redacted>"),
    (r"-----BEGIN [A-Z ]{3,40}PRIVATE KEY-----", "<private key>"),
)
_PLACES = (
    (r"/(home|Users)/[^/\s'\":]{1,80}", r"/\1/USER"),
    (r"(?i)([A-Z]:\\Users\\)[^\\\s]{1,80}", r"\1USER"),
    (r"\b[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,6}\b", "USER@HOST"),
    (r"(?<![\d.])(?!127\.0\.0\.1|0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3}(?![\d.])", "<address>"),
    (r"(?i)\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", "<mac>"),
)
_PUBLIC = frozenset({"root", "localhost", "build", "vllm", "user", "runner", "docker", "ubuntu"})


def redactor(names: Iterable[str] | None = None) -> Callable[[str], str]:
    """A function that redacts one text; ``names`` are words to remove, None the local ones."""
    words = local_names() if names is None else tuple(names)
    rules = [(re.compile(p), r) for p, r in (*_SECRETS, *_PLACES)]
    named = [
        (re.compile(rf"(?<![\w-]){re.escape(w)}(?![\w-])"), "NAME")
        for w in sorted(set(words), key=len, reverse=True)
        if len(w) > 2 and w.lower() not in _PUBLIC
    ]

    def redact(text: str) -> str:
        for pattern, replacement in (*rules, *named):
            text = pattern.sub(replacement, text)
        return text

    return redact


def local_names() -> tuple[str, ...]:
    """Names of the user and the host, as far as they can be told."""
    names = {Path.home().name}
    with contextlib.suppress(OSError, KeyError):
        names.add(getpass.getuser())
    host = socket.gethostname()
    return tuple(sorted(names | {host, host.split(".", 1)[0]} - {""}))
