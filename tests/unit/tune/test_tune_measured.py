"""What `tune --measure` tries, which of it wins, and that the result is used later."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild.errors import CpuBuildError
from cpubuild.run import Completed
from cpubuild.tune import Option, Tuning, Variable, compute, kept, measure, trials
from cpubuild.tune.trials import COMPUTED, DEFAULT, Measured, Trial
from cpubuild.verify.target import Answer, Target

GIB = 1 << 30


def tuning(*, bind="0-1", reserved="0", preload="/a/tcmalloc.so:/a/libiomp5.so", model=None):
    rows = {
        "VIRTUAL_ENV": "/env",
        "LD_PRELOAD": preload,
        "VLLM_CPU_OMP_THREADS_BIND": bind,
        "VLLM_CPU_NUM_OF_RESERVED_CPU": reserved,
    }
    return Tuning(
        env=Path("/env"),
        release="0.32.0",
        model=model,
        variables=tuple(Variable(name=n, value=v, reason="r") for n, v in rows.items() if v),
        options=(Option(name="--dtype", value="bfloat16", reason="r"),),
    )


def names(made, **more):
    given = {"cpus": 2, "other_dtype": None, **more}
    return [t.name for t in trials.trials(made, **given)]


def test_the_default_comes_first_then_what_was_computed():
    assert names(tuning()) == [
        DEFAULT,
        COMPUTED,
        "LD_PRELOAD left to vLLM",
        "one core alone",
    ]
    assert names(tuning(preload=None, bind=None)) == [DEFAULT, COMPUTED]
    assert names(tuning(), other_dtype="float32")[-1] == "in float32"


def test_on_more_cores_one_is_left_idle_instead():
    made = trials.trials(tuning(bind="0-3"), cpus=4, other_dtype=None)
    assert dict(made[-1].variables) == {"VLLM_CPU_OMP_THREADS_BIND": "0-2"}
    assert "one core alone" not in names(tuning(bind="0-6", reserved="1"), cpus=8)
    assert names(tuning(bind="0-3|4-7"), cpus=8)[-1] == "LD_PRELOAD left to vLLM"


def seen(*rows):
    return tuple(
        Measured(trial=Trial(name=n, plain=n == DEFAULT), single=s, batch=b, failure=f)
        for n, s, b, f in rows
    )


def won(*rows):
    return trials.best(seen(*rows)).trial.name


def test_the_fastest_wins():
    assert won((DEFAULT, 5.0, 47.0, ""), (COMPUTED, 8.3, 55.0, "")) == COMPUTED
    assert won((DEFAULT, 5.0, 47.0, ""), (COMPUTED, 8, 55, ""), ("x", 9, 60, "")) == "x"


def test_what_is_slower_than_the_default_anywhere_never_wins():
    assert won((DEFAULT, 5.0, 47.0, ""), (COMPUTED, 9.0, 46.9, "")) == DEFAULT
    assert won((DEFAULT, 5.0, 47.0, ""), (COMPUTED, 4.0, 90.0, "")) == DEFAULT


def test_within_the_noise_what_was_computed_stays():
    assert won((DEFAULT, 5, 47, ""), ("x", 8.1, 55.1, ""), (COMPUTED, 8, 55, "")) == COMPUTED


def test_failures_never_win_and_a_failed_default_is_no_measure():
    assert won((DEFAULT, 5, 47, ""), (COMPUTED, 0, 0, "died")) == DEFAULT
    assert won((DEFAULT, 0, 0, "died"), (COMPUTED, 3, 4, ""), ("x", 4, 5, "")) == "x"


speeds = st.floats(0.01, 1e4)


@given(st.lists(st.tuples(speeds, speeds, st.booleans()), min_size=1, max_size=6))
def test_never_worse_than_the_default_in_the_same_run(rows):
    made = seen(
        (DEFAULT, rows[0][0], rows[0][1], ""),
        *((f"t{i}", s, b, "died" if f else "") for i, (s, b, f) in enumerate(rows[1:])),
    )
    chosen = trials.best(made)
    assert chosen.single >= made[0].single
    assert chosen.batch >= made[0].batch
    assert not chosen.failure


def test_the_table_shows_every_trial_and_marks_the_choice():
    made = seen((DEFAULT, 5.0, 47.0, ""), (COMPUTED, 8.3, 55.0, ""), ("x", 0, 0, "it died"))
    rows = trials.rows(made, made[1])
    assert [r for r in rows[:-1] if " * " in r] == [rows[2]]
    assert "1.66 x, 1.17 x" in rows[2]
    assert "failed: it died" in rows[3]
    assert [d["chosen"] for d in trials.document(made, made[1])] == [False, True, False]


def test_a_choice_of_the_default_takes_our_settings_out():
    made = seen((DEFAULT, 5.0, 47.0, ""), (COMPUTED, 4.0, 40.0, ""))
    found = trials.kept_of(made[0], made[0], tuning(), "2026-01-01")
    changed = kept.apply(tuning(), found)
    assert [v.name for v in changed.variables] == ["VIRTUAL_ENV"]
    assert changed.findings[-1].id == "tune.measured"
    assert "vLLM's default: 5.0 and 47.0" in found.said


def test_a_measurement_is_used_by_the_next_tuning_of_that_model_here(
    make_host, make_site, make_model, tmp_path
):
    env, model, facts = make_site(), make_model(), make_host(memory={"available": 20 * GIB})
    trial = Trial(name="x", variables=(("VLLM_CPU_OMP_THREADS_BIND", "1"),), dtype="float32")
    best = Measured(trial=trial, single=9.0, batch=60.0)
    found = trials.kept_of(best, seen((DEFAULT, 5, 47, ""))[0], tuning(), "2026-01-01")

    def run(facts=facts, model=model, **more):
        given = {"release": "0.32.0", "model": model, "environ": {}, "root": tmp_path}
        made = compute(env, facts, **given, **more)
        words = {v.name: v.value for v in made.variables} | {o.name: o.value for o in made.options}
        return words["VLLM_CPU_OMP_THREADS_BIND"], words.get("--dtype")

    assert run() == ("0-1", "bfloat16")
    kept.save(env, facts, model, found)
    assert run() == ("1", "float32")
    assert run(remembered=False) == ("0-1", "bfloat16")
    assert run(model=make_model("other", vocab_size=512)) == ("0-1", "bfloat16")
    assert run(make_host(memory={"total": GIB, "available": 20 * GIB})) == ("0-1", "bfloat16")
    assert run(model=None)[0] == "0-1"


def test_a_measurement_of_another_schema_is_not_used(make_host, make_site, make_model):
    env, model, facts = make_site(), make_model(), make_host()
    path = kept.place(env, facts, model)
    path.parent.mkdir()
    path.write_text('{"schema": 0}')
    assert kept.load(env, facts, model) is None
    path.write_text("{")
    with pytest.raises(CpuBuildError, match="cannot be read"):
        kept.load(env, facts, model)


def target(tmp_path):
    environ = {"PATH": "/bin", "LD_PRELOAD": "/x", "OMP_NUM_THREADS": "9", "VLLM_X": "1"}
    return Target(python=tmp_path / "python", folder=tmp_path, environ=environ)


def test_the_defaults_process_has_nothing_of_the_tuning(tmp_path):
    made = trials.trials(tuning(), cpus=2, other_dtype=None)
    cxx = (Variable(name="CXX", value="g++-14", reason="r"),)
    plain = measure.surroundings(target(tmp_path), tuning(), cxx, made[0])
    assert not {*trials.OURS, "VLLM_X", "VIRTUAL_ENV"} & set(plain)
    assert plain["CXX"] == "g++-14"
    assert plain["PATH"] == "/env/bin:/bin"


def test_each_trial_changes_what_it_says(tmp_path):
    made = trials.trials(tuning(), cpus=2, other_dtype=None)
    around = [measure.surroundings(target(tmp_path), tuning(), (), t) for t in made[1:]]
    assert around[0]["LD_PRELOAD"] == "/a/tcmalloc.so:/a/libiomp5.so"
    assert around[0]["VLLM_CPU_OMP_THREADS_BIND"] == "0-1"
    assert "LD_PRELOAD" not in around[1]
    assert around[2]["VLLM_CPU_OMP_THREADS_BIND"] == "1"


def test_all_trials_have_the_same_sizes_and_never_more_than_was_tuned():
    big = Option(name="--kv-cache-memory-bytes", value=str(9 * GIB), reason="r")
    small = Option(name="--kv-cache-memory-bytes", value="1000", reason="r")
    base = tuning()

    def cache(option):
        options = (*base.options, option)
        made = Tuning(env=base.env, release="x", model=None, variables=(), options=options)
        return measure.sizes(made, quick=False)["kv_cache_memory_bytes"]

    assert (cache(big), cache(small)) == (GIB, 1000)
    assert measure.sizes(base, quick=True)["enforce_eager"] is True


def test_nothing_is_measured_that_would_not_start(make_host, make_site, make_model, tmp_path):
    facts = make_host(memory={"available": GIB, "limit": None})
    made = compute(make_site(), facts, release="x", model=make_model(), environ={}, root=tmp_path)
    with pytest.raises(CpuBuildError, match="bytes are missing"):
        measure.refuse(made)


class Answers:
    """A target whose processes answer by their number: a document, an error, or nothing."""

    def __init__(self, folder, *documents):
        self.inner = target(folder)
        self.folder = folder
        self.documents = list(documents)
        self.asked = []

    def clean(self):
        return self.inner.clean()

    def run(self, stages, *, name, timeout, env=None, options=None):
        self.asked.append((stages, options))
        document = self.documents.pop(0)
        done = Completed(argv=("python",), returncode=-9, stdout="", stderr="", seconds=1.0)
        found = {} if document is None else {stages[0]: document}
        return Answer(completed=done, documents=found, stages=tuple(stages))


GOOD = {"single": [4.0, 5.0], "batch": [46.0, 40.0], "start": 30.0, "others": 0.1}
BAD = {"error": {"type": "ValueError", "message": "No available\nmemory"}}


def run_trials(answers, made, **more):
    wanted = trials.trials(made, cpus=2, other_dtype="float32")
    said = []
    seen = measure.measure(answers, made, (), wanted, quick=True, say=said.append, **more)
    return seen, said


def test_the_better_run_counts_and_a_failure_is_a_result(tmp_path):
    answers = Answers(tmp_path, GOOD, BAD, None, GOOD, GOOD)
    seen, said = run_trials(answers, tuning(model=Path("/model")))
    assert (seen[0].single, seen[0].batch, seen[0].start) == (5.0, 46.0, 30.0)
    assert seen[1].failure == "No available memory"
    assert seen[2].failure == "the process ended with -9"
    assert len(said) == len(seen) == 5
    dtypes = [options["engine"].get("dtype") for _, options in answers.asked]
    assert dtypes == [None, "bfloat16", "bfloat16", "bfloat16", "float32"]
    assert {options["tokens"] for _, options in answers.asked} == {measure.QUICK_TOKENS}


def test_where_nothing_could_be_measured_it_is_an_error(tmp_path):
    with pytest.raises(CpuBuildError, match="No available memory") as caught:
        run_trials(Answers(tmp_path, *[BAD] * 5), tuning(model=Path("/model")))
    assert caught.value.log == tmp_path / "logs"


def test_without_a_model_the_tiny_one_is_made_first(tmp_path):
    answers = Answers(tmp_path, {"model": "/tiny"}, *[GOOD] * 5)
    run_trials(answers, tuning())
    assert answers.asked[0][0] == ("reference",)
    assert {options["model"] for _, options in answers.asked[1:]} == {"/tiny"}
    with pytest.raises(CpuBuildError, match="tiny model cannot be made"):
        run_trials(Answers(tmp_path, BAD), tuning())
