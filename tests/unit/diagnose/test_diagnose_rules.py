from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from cpubuild.assess import registry
from cpubuild.diagnose import diagnose_lines, lint_rules, load_rules, render_rules, rules_page
from cpubuild.diagnose.lint import lint_line_kinds, pattern_faults
from cpubuild.diagnose.rules import Match, rule_files

DATA = resources.files("cpubuild").joinpath("data")
PAGE = Path(__file__).parents[3] / "docs" / "diagnose.md"
UTF8 = "utf-8"


def schema(name: str) -> jsonschema.Draft202012Validator:
    text = DATA.joinpath("schemas", f"{name}.json").read_text(encoding=UTF8)
    return jsonschema.Draft202012Validator(json.loads(text))


def test_the_rules_have_no_fault() -> None:
    assert lint_rules() == ()


def test_the_kinds_of_lines_have_no_fault() -> None:
    assert lint_line_kinds() == ()


@pytest.mark.parametrize("name", rule_files())
def test_each_file_is_as_the_schema_says(name: str) -> None:
    document = tomllib.loads(DATA.joinpath("rules", name).read_text(encoding=UTF8))
    assert [e.message for e in schema("rules").iter_errors(document)] == []


def test_rules_and_checks_share_ids() -> None:
    named = {check for rule in load_rules() for check in rule.foreseen_by}
    assert named - set(registry()) == set()


def test_the_page_is_generated() -> None:
    assert PAGE.read_text(encoding=UTF8) == rules_page()


def test_the_list_names_every_rule_once() -> None:
    lines = render_rules()
    assert sorted(line.split()[0] for line in lines) == sorted(r.id for r in load_rules())


@pytest.mark.parametrize("exit_status", [None, 0, 1, 137])
def test_an_answer_is_as_its_schema_says(exit_status: int | None) -> None:
    for rule in load_rules():
        found = diagnose_lines(rule.examples[0].splitlines(), exit_status=exit_status)
        assert [e.message for e in schema("diagnose").iter_errors(found.to_json())] == []
        json.dumps(found.to_json())


RULE = replace(
    load_rules()[0],
    id="made-up",
    match=(Match(any=("frobnication of the",)),),
    examples=("frobnication of the widget",),
    counterexamples=("no widget",),
    explains=(),
    after=(),
    foreseen_by=(),
)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"id": "Made_Up"}, "lower-case words"),
        ({"explains": ("nobody",)}, "no rule nobody"),
        ({"foreseen_by": ("weather.rain",)}, "no check id"),
        ({"lookup": {"weather": "x"}}, "no lookup table"),
        ({"remedies": {}}, "no remedy"),
        ({"examples": ()}, "needs an example"),
        ({"counterexamples": ()}, "needs an example"),
        ({"examples": ("something else",)}, "does not answer to its example"),
        ({"match": (Match(any=(r"frob.*widget of",)),)}, "unbounded gap"),
        ({"match": (Match(any=(r"(?:frob\w+)+widget",)),)}, "repetition inside"),
        ({"match": (Match(any=("(?:a|b)",)),)}, "no literal word"),
        ({"match": (Match(any=("frobnication(",)),)}, "not a regular expression"),
        ({"match": (Match(),)}, "asks for nothing"),
    ],
)
def test_the_linter_sees_a_fault(change: dict[str, object], fault: str) -> None:
    faults = lint_rules((replace(RULE, **change),))  # type: ignore[arg-type]
    assert any(fault in f for f in faults), faults


def test_the_linter_sees_an_id_used_twice() -> None:
    assert any("used twice" in f for f in lint_rules((RULE, RULE)))


def test_the_linter_sees_two_rules_claim_one_example_without_an_order() -> None:
    one, other = load_rules()[0], replace(load_rules()[0], id="the-other", explains=())
    faults = lint_rules((replace(one, explains=()), other))
    assert any("without an order" in f for f in faults)
    ordered = lint_rules((replace(one, explains=("the-other",)), other))
    assert not any("without an order" in f for f in ordered)


@pytest.mark.parametrize("pattern", [r"a\.*b", r"[.*]x{1,3}", r"a.{0,40}b", r"(?:ab)+c"])
def test_bounded_patterns_are_no_fault(pattern: str) -> None:
    assert list(pattern_faults(pattern)) == []
