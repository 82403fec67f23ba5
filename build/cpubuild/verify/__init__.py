"""Prove an installed vLLM: its identity, its platform, its kernels and its words."""

from cpubuild.verify.api import verify
from cpubuild.verify.model import (
    Check,
    KernelAnswer,
    PlatformAnswer,
    Smoke,
    VerifyReport,
    VllmAnswer,
)
from cpubuild.verify.selection import explain

__all__ = [
    "Check",
    "KernelAnswer",
    "PlatformAnswer",
    "Smoke",
    "VerifyReport",
    "VllmAnswer",
    "explain",
    "verify",
]
