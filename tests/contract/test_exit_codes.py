"""Exit codes are a promise: the page, the enumeration, the messages and the schema agree."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

from jsonschema import Draft202012Validator

from cpubuild import cli, tasks
from cpubuild.errors import MEANINGS, ExitCode

ROOT = Path(__file__).parents[2]


def test_the_page_lists_exactly_the_codes_and_their_meanings():
    page = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| (\d+) \| `(\w+)` \| (.+?) \| (.+?) \|$", page)
    assert [(int(c), n, m) for c, n, m, _ in rows] == [
        (int(code), code.name, MEANINGS[code]) for code in ExitCode
    ]


def test_the_codes_are_the_promised_ones():
    """Scripts branch on them: a number never changes and is never used for something else."""
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0,
        "BUG": 1,
        "SETTINGS": 2,
        "UNSUPPORTED": 3,
        "PREREQUISITE": 4,
        "DOWNLOAD": 5,
        "PATCH": 6,
        "COMPILE": 7,
        "VERIFY": 8,
        "BUSY": 75,
    }
    assert set(MEANINGS) == set(ExitCode)


def test_arguments_that_cannot_be_parsed_print_an_error_document(capsys, monkeypatch):
    schema = json.loads(
        resources.files("cpubuild").joinpath("data", "schemas", "error.json").read_text("utf-8")
    )
    monkeypatch.setenv("CPUBUILD_JSON", "1")
    program = cli.CpuBuild(namespace=tasks.namespace, version="0", name="cpubuild")
    for words in (["--nope"], ["nope"], ["plan", "--nope"]):
        code = None
        try:
            program.run(["cpubuild", *words], exit=False)
        except SystemExit as error:
            code = error.code
        out, err = capsys.readouterr()
        assert code == ExitCode.SETTINGS
        assert "cpubuild --list" in err
        Draft202012Validator(schema).validate(json.loads(out))
