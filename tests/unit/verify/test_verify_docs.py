"""The documentation says what the tables say."""

from __future__ import annotations

from pathlib import Path

from cpubuild.verify import knowledge
from cpubuild.verify.docs import checks_table

PAGE = Path(__file__).parents[3] / "docs" / "verify.md"


def test_the_table_of_checks_is_the_one_in_the_data() -> None:
    assert PAGE.read_text(encoding="utf-8").endswith("## Checks\n\n" + checks_table())


def test_the_bounds_in_the_text_are_those_in_the_data() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"within {knowledge.bound('float32_logprob'):g}".replace("0.0002", "2e-4") in text
    largest, mean = (knowledge.bound(f"bfloat16_logprob_{n}") for n in ("max", "mean"))
    assert f"{largest:g} for one token and {mean:g} on average" in text
    assert f"more than {knowledge.bound('speed_slower'):.0%}".replace("%", " %") in text
    assert f"more than {knowledge.bound('speed_busy'):.0%}".replace("%", " %") in text


def test_the_workload_in_the_text_is_the_one_that_is_timed() -> None:
    from cpubuild.probe import timing

    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert (timing.BATCH, timing.RUNS) == (8, 5)
    assert f"eight prompts of {timing.PROMPT} tokens" in text
    assert f"{timing.GENERATED} tokens generated for each, five times" in text


def test_ids_keep_their_form_and_levels_are_known() -> None:
    for info in knowledge.checks().values():
        group, _, name = info.id.partition(".")
        assert group in ("identity", "platform", "kernels", "words", "change", "server", "model")
        assert name.replace("_", "").isalnum()
        assert info.level in ("quick", "default", "server", "model")
