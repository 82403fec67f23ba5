"""Settings of vLLM for this host and a model: computed with reasons, measured on request."""

from cpubuild.tune.api import compute
from cpubuild.tune.model import Option, Tuning, Variable

__all__ = ["Option", "Tuning", "Variable", "compute"]
