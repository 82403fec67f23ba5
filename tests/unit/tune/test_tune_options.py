"""A user's options: read from YAML or words, kept, translated or refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild.choose.tables import table
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.tune import Option, Tuning, useroptions
from cpubuild.tune.tree import Tree, read_tree
from cpubuild.tune.useroptions import Given

KNOWN = frozenset({"--dtype", "--port", "--enable-prefix-caching", "--pooler-config", "-tp"})
NOW = Tree(site=None, options=KNOWN)


@pytest.fixture
def file(tmp_path):
    def make(text, name="options.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return make


def names(found):
    return [(g.name, *g.values) for g in found]


def test_yaml_as_vllm_reads_it(file):
    text = (
        "model: x/y\nport: 8000\nenable_prefix_caching: true\nenforce-eager: false\n"
        "middleware: [a, b]\ncompilation-config: {mode: 3}\ndtype: bfloat16\nempty:\n"
    )
    assert names(useroptions.read(file(text))) == [
        ("--port", "8000"),
        ("--enable-prefix-caching",),
        ("--no-enforce-eager",),
        ("--middleware", "a", "b"),
        ("--compilation-config", json.dumps({"mode": 3})),
        ("--dtype", "bfloat16"),
        ("--empty",),
    ]


def test_words_of_a_command_line(file):
    text = "vllm serve some/model \\\n --max_model_len=4096 --dtype bfloat16 -tp 2 -O3  # why\n"
    text = text.replace("\\\n", "")
    assert names(useroptions.read(file(text, "options.txt"))) == [
        ("--max-model-len", "4096"),
        ("--dtype", "bfloat16"),
        ("-tp", "2"),
        ("-O3",),
    ]


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("- a\n- b\n", "o.yaml", "not a mapping"),
        ("a: [", "o.yml", "not YAML"),
        ("a: 1\na: 2\n", "o.yaml", "not YAML"),
        ("--dtype 'x", "o.txt", "quotes do not close"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(file, text, name, said):
    with pytest.raises(CpuBuildError, match=said) as caught:
        useroptions.read(file(text, name))
    assert caught.value.exit_code is ExitCode.SETTINGS


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(CpuBuildError, match="No such file"):
        useroptions.read(tmp_path / "none.yaml")


def test_an_empty_file_asks_for_nothing(file):
    assert useroptions.read(file("")) == useroptions.read(file("# nothing\n", "o.txt")) == ()


def translate(*given, tree=NOW):
    return useroptions.translate(given, tree, "0.32.0")


def test_what_the_release_knows_is_kept():
    known = (
        Given(name="--dtype", values=("bfloat16",)),
        Given(name="--no-enable-prefix-caching"),
        Given(name="--pooler-config.pooling_type", values=("MEAN",)),
        Given(name="-tp", values=("2",)),
        Given(name="-O2"),
    )
    assert translate(*known) == useroptions.Translated(options=known)


def test_old_options_are_left_out_or_renamed_with_the_reason():
    done = translate(
        Given(name="--device", values=("cpu",)),
        Given(name="--swap-space", values=("4",)),
        Given(name="--override-pooler-config", values=("{}",)),
        Given(name="--dtype", values=("auto",)),
    )
    assert names(done.options) == [("--pooler-config", "{}"), ("--dtype", "auto")]
    assert [(c.given, c.now) for c in done.changes] == [
        ("--device cpu", ""),
        ("--swap-space 4", ""),
        ("--override-pooler-config '{}'", "--pooler-config '{}'"),
    ]
    assert all(c.reason for c in done.changes)


def test_a_release_that_still_knows_them_gets_them():
    old = Tree(site=None, options=KNOWN | {"--device", "--swap-space"})
    given = (Given(name="--device", values=("cpu",)), Given(name="--swap-space", values=("4",)))
    assert translate(*given, tree=old) == useroptions.Translated(options=given)


def test_all_that_cannot_be_taken_is_said_at_once():
    with pytest.raises(CpuBuildError) as caught:
        translate(
            Given(name="--device", values=("cuda",)),  # dropping it would change what was asked
            Given(name="--rope-scaling", values=("{}",)),
            Given(name="--dtpye", values=("auto",)),
            Given(name="--worker-use-ray"),  # what it became is not known here either
        )
    said = [p.what for p in caught.value.problems]
    assert len(said) == 4
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert any("--hf-overrides" in r for r in caught.value.problems[1].remedy)
    assert caught.value.problems[2].remedy[0] == "did you mean --dtype?"


def test_where_the_names_are_unknown_nothing_is_refused():
    given = (Given(name="--whatever"),)
    assert translate(*given, tree=Tree(site=None)).options == given


def test_what_was_asked_for_wins_and_comes_last():
    own = (
        Option(name="--dtype", value="bfloat16", reason="r"),
        Option(name="--port", value="1", reason="r"),
    )
    given = (Given(name="--dtype", values=("float32",)), Given(name="--x", values=("a", "b")))
    merged = useroptions.merged(tuned(own), given, "my.yaml")
    assert merged.arguments() == ["--port", "1", "--dtype", "float32", "--x", "a", "b"]
    assert "my.yaml" in merged.options[-1].reason
    assert merged.fits


def tuned(own=()):
    return Tuning(
        env=Path("/e"), release="x", model=None, variables=(), options=own, cache_tokens=4096
    )


@pytest.mark.parametrize(
    ("length", "more", "fits"),
    [
        ("4096", (), True),
        ("4097", (), False),
        ("auto", (), True),
        ("9999", (Given(name="--kv-cache-memory-bytes", values=("1",)),), True),
    ],
)
def test_a_context_that_the_cache_cannot_keep_is_told_before_the_start(length, more, fits):
    given = (Given(name="--max-model-len", values=(length,)), *more)
    merged = useroptions.merged(tuned(), given, "my.yaml")
    assert merged.fits is fits
    assert fits or merged.findings[0].remedy[0] == "--max-model-len 4096"


def test_front_end_options_are_known(make_site):
    tree = read_tree(make_site())
    given = (Given(name="--api-key", values=("k",)), Given(name="--host", values=("::1",)))
    assert translate(*given, tree=tree).options == given


@given(st.lists(st.from_regex(r"--[a-z]{1,8}(=[a-z0-9]{1,5})?", fullmatch=True), max_size=6))
def test_words_come_back_as_they_were(tmp_path_factory, words):
    path = tmp_path_factory.mktemp("words") / "o.txt"
    path.write_text(" ".join(words))
    back = ["=".join([g.name, *g.values]) for g in useroptions.read(path)]
    assert back == words


def test_every_row_of_the_table_is_whole():
    for row in table("tune.toml")["option"]:
        assert row["action"] in ("drop", "rename", "refuse")
        assert row["name"].startswith("--")
        assert row["reason"]
        assert row["last"]
        assert ("to" in row) == (row["action"] == "rename")
        assert ("remedy" in row) == (row["action"] == "refuse")
