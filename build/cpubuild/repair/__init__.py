"""Make an installed CPU build of vLLM work where only recognition or a known defect is in the way.

Metadata first, then the patches of the series that belong to installed packages; all of it can be
taken back byte for byte.
"""

from cpubuild.repair.api import Repair, repair, undo

__all__ = ["Repair", "repair", "undo"]
