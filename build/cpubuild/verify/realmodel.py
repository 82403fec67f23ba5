"""Ask a real model: find it, look at its files and size, then put questions to it."""

from __future__ import annotations

from pathlib import Path

from cpubuild.errors import CpuBuildError
from cpubuild.verify import crash, hub, knowledge, modelfiles
from cpubuild.verify.model import Check
from cpubuild.verify.target import WORDS_SECONDS, Target


def before(located: hub.Located, usable: int | None) -> list[Check]:
    """What can be said before an engine is started: the model's files and its size."""
    if located.folder is None:
        return [Check(id="model.files", status="fail", summary=located.said, remedy=located.remedy)]
    files, size = modelfiles.files_check(located.folder, located.said)
    return [files, modelfiles.memory_check(size, usable)]


def ask(folder: Path, target: Target) -> Check:
    """model.answers: the questions of the table, put to the model in the target."""
    table = knowledge.table()["answers"]
    answer = target.run(
        ("real",),
        name="model",
        env=target.clean(),
        timeout=WORDS_SECONDS,
        options={"model": str(folder), "questions": [q["ask"] for q in table["questions"]]},
    )
    document = answer.good("real")
    if document is None:
        return crash.broken("model.answers", answer, "real")
    return modelfiles.answers_check(table, document)


def usable_memory() -> int | None:
    """Bytes that can still be taken, the cgroup's limit included; None when it cannot be told."""
    from cpubuild.facts import memory

    try:
        return memory.parse(memory.probe(Path("/"))).usable
    except (OSError, ValueError, CpuBuildError):
        return None
