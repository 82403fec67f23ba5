"""What the user asked for, as far as a host must bear it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What the user asked for, as far as a host must bear it.

    ``python`` is a version or a path, ``cxx`` a compiler; None for any. ``cxx_from`` names what
    asks for it: an option, a variable, a file. ``model_bytes`` are the
    weights that will be served, ``kv_cache_bytes`` the cache asked for; None means the smoke
    model. ``single_target`` says that only this host's x86 extension is compiled. ``source`` is
    False when a prebuilt wheel is installed and nothing is compiled.
    """

    jobs: int | None = None
    state: str | None = None
    offline: bool = False
    profile: str = "text"
    python: str | None = None
    cxx: str | None = None
    cxx_from: str = "--cxx"
    tensor_parallel: int = 1
    model_bytes: int | None = None
    kv_cache_bytes: int | None = None
    debug_info: bool = True
    single_target: bool = True
    source: bool = True
