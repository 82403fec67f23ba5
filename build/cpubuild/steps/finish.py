"""Proof and activation: verify from outside, write the receipt, move ``current``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cpubuild import activate as surroundings
from cpubuild import jsonio, receipt, ui
from cpubuild.errors import CpuBuildError, ExitCode, Problem
from cpubuild.facts.model import HostFacts
from cpubuild.steps.context import Context
from cpubuild.verify import VerifyReport, verify

# Eager against compiled takes as long as the rest of the proof together; it is about the host's
# compiler and caches, and `verify` looks at it.
# What the caller's own environment would change is no matter of the installation either.
LEFT_TO_VERIFY = ("words.compiled", "words.second_process", "platform.environment")


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What a receipt needs beside the context: the request, the host, the settings, the steps."""

    request: str
    facts: HostFacts
    settings: Sequence[tuple[str, str, str]]
    steps: Sequence[Mapping[str, Any]]


def prove(ctx: Context, record: Record) -> VerifyReport:
    """Verify the target environment; only a pass is written into a receipt."""
    python, folder = ctx.env / "bin" / "python", ctx.run / "verify"
    compiler = surroundings.compiler_variables(record.facts, ctx.compiler.path)
    with ui.Progress("verify"):
        report = verify(
            python,
            level="default",
            folder=folder,
            skip=LEFT_TO_VERIFY,
            environ=dict(os.environ) | {v.name: v.value for v in compiler},
            say=ui.note,
        )
    document = report.to_json()
    if document["verdict"] != "pass":
        raise not_proved(document, ctx)
    variables = surroundings.write_files(
        ctx.env,
        record.facts,
        vllm=f"{ctx.inputs.release.version}+cpu",
        compiler=ctx.compiler.path,
    )
    receipt.save(
        ctx.env,
        receipt.compose(
            inputs=ctx.inputs,
            request=record.request,
            facts=record.facts,
            manifest=jsonio.read(ctx.wheel_folder / "manifest.json") or {},
            installed=jsonio.read(ctx.env / "installed.json") or {},
            report=document,
            variables=variables,
            settings=record.settings,
            steps=record.steps,
            env=ctx.env,
            lock=ctx.lock_file,
        ),
    )
    return report


def not_proved(document: Mapping[str, Any], ctx: Context) -> CpuBuildError:
    """The VERIFY error: every failed check with its evidence and remedy."""
    problems = [
        Problem(
            what=f"{check['id']}: {check['summary']}",
            why="; ".join(map(str, check["evidence"][:3])),
            remedy=tuple(check["remedy"]),
            exit_code=ExitCode.VERIFY,
        )
        for check in document["checks"]
        if check["status"] == "fail" or check["id"] in document.get("unproved", ())
    ]
    problem = Problem(what="the verification did not pass", exit_code=ExitCode.VERIFY)
    return CpuBuildError(*(problems or [problem]), log=ctx.run / "verify")


def activate(ctx: Context) -> None:
    """Let ``current`` point to the environment that was just proved."""
    ctx.state.activate(ctx.env)
