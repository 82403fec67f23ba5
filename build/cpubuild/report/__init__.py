"""The last build as a picture: one self-contained HTML page from what a run recorded."""

from cpubuild.report.page import make_report
from cpubuild.report.recorded import last_build
from cpubuild.report.sampler import MemorySampler

__all__ = ["MemorySampler", "last_build", "make_report"]
