"""Where vLLM, torch and oneDNN come from: each choice with its reason, and what was refused."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejected:
    """One source that was not taken: ``what`` it was and ``why`` not, as a sentence."""

    what: str
    why: str
