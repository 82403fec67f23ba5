"""Environment variables that change a build or a run, with secrets left out."""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIXES = (
    "VLLM_",
    "PIP_",
    "UV_",
    "CMAKE_",
    "CPUBUILD_",
    "FETCHCONTENT_",
    "OMP_",
    "KMP_",
    "GOMP_",
    "TORCH",
    "HF_",
    "CCACHE_",
    "SCCACHE_",
    "SETUPTOOLS_SCM_",
    "CONDA_",
)
NAMES = frozenset(
    {
        *("CC", "CXX", "CPP", "LD", "AR", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "ARCHFLAGS"),
        *("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "LD_PRELOAD", "LD_LIBRARY_PATH"),
        *("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CARGO_HOME", "RUSTUP_TOOLCHAIN"),
        *("MAX_JOBS", "NVCC_THREADS", "MAKEFLAGS", "VERBOSE", "ACL_ROOT_DIR", "TMPDIR"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("GIT_SSL_CAINFO", "XDG_CACHE_HOME", "XDG_DATA_HOME", "MODELSCOPE_CACHE"),
        *("CPU_VISIBLE_MEMORY_NODES", "TRITON_CPU_BACKEND"),
    }
)
SECRET_WORDS = frozenset(
    {
        *("TOKEN", "TOKENS", "KEY", "KEYS", "APIKEY", "SECRET", "SECRETS", "COOKIE"),
        *("PASS", "PASSWD", "PASSWORD", "PASSPHRASE"),
        *("CREDENTIAL", "CREDENTIALS", "AUTH", "AUTHORIZATION"),
    }
)
HIDDEN = "***"
IN_URL = re.compile(r"(?<=://)(?=[^/\s]*[:@])\S*@")
"""Up to the last @, because a password may hold @ and / that nobody encoded."""
ASSIGNED = re.compile(
    r"(?i)((?:token|key|password|passwd|secret|signature|sig|auth)[\w-]*=)[^\s&;,]+"
)


def parse(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs that matter, sorted by name, with secrets as ``***``."""
    return tuple(
        sorted((name, redact(name, value)) for name, value in environ.items() if matters(name))
    )


def matters(name: str) -> bool:
    """Whether a variable of this name can change a build, an installation or a run."""
    return name in NAMES or name.startswith(PREFIXES) or name.upper().endswith("_PROXY")


def redact(name: str, value: str) -> str:
    """Hide a value whose name says secret, and credentials inside URLs and assignments."""
    if value and SECRET_WORDS & set(name.upper().split("_")):
        return HIDDEN
    return ASSIGNED.sub(rf"\g<1>{HIDDEN}", IN_URL.sub(f"{HIDDEN}@", value))
