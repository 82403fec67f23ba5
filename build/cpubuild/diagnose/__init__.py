"""Read what went wrong and name the cause and what mends it."""

from cpubuild.diagnose.bundle import bundle, refuse_place
from cpubuild.diagnose.engine import diagnose_lines, diagnose_paths, run_and_diagnose
from cpubuild.diagnose.lint import lint_rules
from cpubuild.diagnose.model import Cause, Diagnosis, Evidence, Secondary
from cpubuild.diagnose.page import rules_page
from cpubuild.diagnose.render import render_diagnosis, render_rules
from cpubuild.diagnose.rules import load_rules

__all__ = [
    "Cause",
    "Diagnosis",
    "Evidence",
    "Secondary",
    "bundle",
    "diagnose_lines",
    "diagnose_paths",
    "lint_rules",
    "load_rules",
    "refuse_place",
    "render_diagnosis",
    "render_rules",
    "rules_page",
    "run_and_diagnose",
]
