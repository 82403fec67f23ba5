"""The report: its verdict, its document, its lines; which checks are wanted."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.run import Completed
from cpubuild.verify import explain, knowledge
from cpubuild.verify.api import Gathered, assemble, host_flags
from cpubuild.verify.model import Check, KernelAnswer, Smoke, Speed, VerifyReport
from cpubuild.verify.selection import select, word_stages
from cpubuild.verify.target import Answer, Target

SCHEMA = json.loads(files("cpubuild.data").joinpath("schemas/verify.json").read_text("utf-8"))


def target() -> Target:
    return Target(python=Path("/env/bin/python"), folder=Path("/state"), environ={})


def decide(checks: list[Check], *, level: Any = "quick", **given: Any) -> VerifyReport:
    options: dict[str, Any] = {"server": False, "model": False, "only": (), "skip": ()}
    wanted = select(level, **(options | given))
    return assemble(Gathered(checks=checks), target(), wanted, level=level, seconds=1.5)


def every(status: Any = "pass", levels: tuple[str, ...] = ("quick",)) -> list[Check]:
    return [
        Check(id=i, status=status, summary="said")
        for i, info in knowledge.checks().items()
        if info.level in levels
    ]


def test_all_passed_is_a_pass() -> None:
    assert decide(every()).verdict == "pass"


def test_one_failure_fails() -> None:
    checks = every()
    checks[-1] = Check(id=checks[-1].id, status="fail", summary="bad")
    assert decide(checks).verdict == "fail"


def test_warnings_do_not_fail() -> None:
    assert decide(every("warn")).verdict == "pass"


@pytest.mark.parametrize("status", ["skip", "unknown"])
def test_what_is_required_must_be_proved(status: Any) -> None:
    for id_, info in knowledge.checks().items():
        if info.level != "quick":
            continue
        checks = [
            Check(id=c.id, status=status if c.id == id_ else "pass", summary="said")
            for c in every()
        ]
        assert decide(checks).verdict == ("fail" if info.required else "pass"), id_


def test_the_default_level_must_generate() -> None:
    report = decide(every(), level="default")
    assert report.verdict == "fail"
    assert "words.greedy_float32" in report.unproved
    assert "words.greedy_float32" in report.lines()[-2]
    assert "change.speed" not in report.unproved
    check = report.check("words.greedy_float32")
    assert check is not None
    assert check.status == "skip"
    assert decide(every(levels=("quick", "default")), level="default").verdict == "pass"


def test_server_and_model_count_when_asked_for() -> None:
    assert decide(every(), server=True).verdict == "fail"
    assert decide(every(levels=("quick", "server")), server=True).verdict == "pass"
    assert decide(every(), model=True).verdict == "fail"


def test_only_and_skip_narrow_by_id_and_group() -> None:
    report = decide(every(), only=["platform", "kernels.numa"], skip=["platform.layers"])
    assert [c.id for c in report.checks] == [
        "platform.class",
        "platform.environment",
        "kernels.numa",
    ]


def test_an_unknown_id_is_a_settings_error() -> None:
    with pytest.raises(CpuBuildError, match="no such check: nonsense") as error:
        decide([], only=["nonsense"])
    assert error.value.exit_code is ExitCode.SETTINGS


def test_stages_follow_what_is_wanted() -> None:
    def stages(**given: Any) -> tuple[str, ...]:
        options: dict[str, Any] = {"server": False, "model": False, "only": (), "skip": ()}
        return word_stages(select("default", **(options | given)))

    assert stages() == ("reference", "eager", "compiled")
    assert stages(only=["words.batch"]) == ("reference", "eager")
    assert stages(only=["kernels"]) == ()
    assert stages(only=["change.speed"]) == ("reference", "eager")
    assert stages(only=["change.host"]) == ()
    assert stages(skip=["words", "change"]) == ()
    assert stages(only=["server"], server=True) == ("reference",)


def test_the_document_keeps_its_schema() -> None:
    report = decide(every())
    jsonschema.validate(report.to_json(), SCHEMA)
    full = VerifyReport(
        verdict="pass",
        level="default",
        target="/env/bin/python",
        folder="/state",
        checks=(Check(id="words.batch", status="pass", summary="s", evidence=("e",)),),
        seconds=2.0,
        kernels=KernelAnswer(library="_C.so", isa="avx2", files=(("_C.so", "a" * 64),)),
        smoke=Smoke(
            tokens=88,
            seconds=0.5,
            asked="q",
            digest="d",
            speed=Speed(tokens=100, runs=(0.5, 0.25), cpus=2, others=0.1),
        ),
    )
    jsonschema.validate(full.to_json(), SCHEMA)
    assert full.to_json()["smoke"] == {
        "tokens": 88,
        "seconds": 0.5,
        "asked": "q",
        "digest": "d",
        "speed": {
            "tokens": 100,
            "runs": [0.5, 0.25],
            "cpus": 2,
            "others": 0.1,
            "tokens_per_second": 400.0,
        },
    }
    assert full.to_json()["kernels"]["files"] == {"_C.so": "a" * 64}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(full.to_json() | {"verdict": "perhaps"}, SCHEMA)


def test_every_status_of_a_check_is_in_the_schema() -> None:
    statuses = SCHEMA["properties"]["checks"]["items"]["properties"]["status"]["enum"]
    assert statuses == ["pass", "warn", "fail", "skip", "unknown"]


def test_lines_show_reasons_only_where_something_is_wrong() -> None:
    report = VerifyReport(
        verdict="fail",
        level="quick",
        target="/env/bin/python",
        folder="/state",
        checks=(
            Check(id="kernels.numa", status="pass", summary="well", evidence=("hidden",)),
            Check(id="kernels.symbols", status="fail", summary="bad", evidence=("seen",),
                  remedy=("mend it",)),
        ),
        seconds=3.0,
    )  # fmt: skip
    text = "\n".join(report.lines())
    assert "hidden" not in text
    assert "seen" in text
    assert "-> mend it" in text
    assert text.splitlines()[-1].startswith("fail: 2 checks, 1 failed")
    assert "hidden" in "\n".join(report.lines(verbose=True))


def test_every_check_is_explained() -> None:
    for id_ in knowledge.checks():
        text = explain(id_)
        assert text.startswith(id_)
        assert len(text.splitlines()) >= 2
    with pytest.raises(CpuBuildError, match="no such check"):
        explain("nonsense")


def test_a_document_that_says_error_is_not_good() -> None:
    done = Completed(argv=("python",), returncode=3, stdout="", stderr="", seconds=1.0)
    answer = Answer(
        completed=done,
        documents={"platform": {"seconds": 1}, "kernels": {"error": {"type": "X"}}},
        stages=("platform", "kernels", "reference"),
    )
    assert answer.good("platform") == {"seconds": 1}
    assert answer.good("kernels") is None
    assert answer.good("reference") is None
    assert answer.broken_stage == "kernels"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 amx_bf16\n", {"fpu", "avx2", "amx_bf16"}),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", {"fp", "asimd", "bf16"}),
        ("nothing of the kind\n", set()),
    ],
)
def test_flags_of_the_host(tmp_path: Path, text: str, flags: set[str]) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    assert host_flags(path) == flags
    assert host_flags(tmp_path / "none") == frozenset()
