"""The plan: which steps are left by what the state root holds, and why no cached wheel fits."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cpubuild import gather, jsonio
from cpubuild.plan import explain_miss, make_plan, wheel_of

ORDER = ["lock", "buildenv", "patch", "compile"]
ORDER += ["dependencies", "environment", "verify", "activate"]


def left(inputs, state):
    return [step.id for step in make_plan(inputs, state).left]


def keep_wheel(state, wanted, **changes):
    folder = state.wheels / wanted.wheel_key
    folder.mkdir()
    (folder / "vllm.whl").write_bytes(b"wheel")
    manifest = {"file": "vllm.whl", "size": 5, "inputs": jsonio.plain(wanted.wheel)}
    jsonio.write(folder / "manifest.json", {**manifest, **changes})
    return folder


def furnish(env: Path) -> None:
    """Give an environment all that it is looked at for."""
    site = env / "lib" / "python3.11" / "site-packages"
    for name in ("vllm/_C.abi3.so", "torch/lib/libtorch_cpu.so", "vllm-1.dist-info/METADATA"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("xyz")
    (site / "vllm-1.dist-info" / "RECORD").write_text("vllm/_C.abi3.so,sha256=x,3\n")
    (env / "bin").mkdir(exist_ok=True)
    for name in ("python", "vllm"):
        (env / "bin" / name).touch()


def lock(state, inputs):
    (state.locks / f"{inputs.plan_id}.txt").touch()


def depends(state, inputs):
    content = jsonio.sha256_of(state.locks / f"{inputs.plan_id}.txt")
    made = {"lock_sha256": content}
    jsonio.write(state.envs / inputs.plan_id / "dependencies.json", made)


def buildenv(state, inputs):
    jsonio.write(state.buildenvs / inputs.buildenv_key / "complete.json", {})


def patched(state, inputs):
    jsonio.write(state.builds / inputs.wheel_key / "patched.json", {})


def installed(state, inputs):
    jsonio.write(state.envs / inputs.plan_id / "installed.json", {})
    furnish(state.envs / inputs.plan_id)


def verified(state, inputs, verdict="pass"):
    jsonio.write(state.envs / inputs.plan_id / "receipt.json", {"verify": {"verdict": verdict}})


def activated(state, inputs):
    state.activate(state.envs / inputs.plan_id)


DEEDS = {
    "lock": lock,
    "buildenv": buildenv,
    "patch": patched,
    "compile": keep_wheel,
    "dependencies": depends,
    "environment": installed,
    "verify": verified,
    "activate": activated,
}


def test_an_empty_state_leaves_every_step_with_its_reason(make_inputs, state):
    plan = make_plan(make_inputs(), state)
    assert [s.id for s in plan.steps] == ORDER == list(DEEDS)
    assert plan.left == plan.steps
    assert all(s.title and s.reason for s in plan.steps)
    assert len({s.fingerprint for s in plan.steps}) == len(ORDER)


@pytest.mark.parametrize("done", range(len(ORDER) + 1))
def test_a_run_that_stopped_goes_on_where_it_stopped(make_inputs, state, done):
    inputs = make_inputs()
    for name in ORDER[:done]:
        DEEDS[name](state, inputs)
    assert left(inputs, state) == ORDER[done:]


def test_a_finished_state_leaves_nothing_however_often_it_is_asked(make_inputs, state):
    inputs = make_inputs()
    for deed in DEEDS.values():
        deed(state, inputs)
    before = sorted(state.root.rglob("*"))
    first, second = make_plan(inputs, state), make_plan(make_inputs(), state)
    assert first.left == second.left == ()
    assert first == second
    assert sorted(state.root.rglob("*")) == before


def test_a_cached_wheel_spares_its_build(make_inputs, state):
    inputs = make_inputs()
    keep_wheel(state, inputs)
    assert left(inputs, state) == ["lock", "dependencies", "environment", "verify", "activate"]


def test_other_requirements_take_the_same_wheel_into_a_new_environment(make_inputs, state):
    done = make_inputs()
    for deed in DEEDS.values():
        deed(state, done)
    other = make_inputs(requirements=("numpy", "pillow"))
    assert other.wheel_key == done.wheel_key
    assert other.plan_id != done.plan_id
    assert left(other, state) == ["lock", "dependencies", "environment", "verify", "activate"]


@pytest.mark.parametrize("verdict", ["fail", None])
def test_what_was_not_proved_is_proved_again(make_inputs, state, verdict):
    inputs = make_inputs()
    for deed in DEEDS.values():
        deed(state, inputs)
    verified(state, inputs, verdict)
    assert left(inputs, state) == ["verify", "activate"]


def test_after_a_rollback_only_the_link_is_left(make_inputs, state, make_environment):
    inputs = make_inputs()
    for deed in DEEDS.values():
        deed(state, inputs)
    state.activate(make_environment("other"))
    assert left(inputs, state) == ["activate"]


@pytest.mark.parametrize("name", ["vllm", "torch", "targets", "patches", "tcmalloc", "isa"])
def test_every_input_of_the_wheel_names_another_wheel(make_inputs, name):
    changed = {"patches": ["one:cccc"], "isa": ["bf16"]}.get(name, "other")
    one, two = make_inputs(), make_inputs(**{name: changed})
    assert one.wheel_key != two.wheel_key
    assert one.plan_id != two.plan_id
    assert (one.buildenv_key != two.buildenv_key) is (name == "torch")


def test_keys_are_equal_for_equal_content(make_inputs):
    one, two = make_inputs(), make_inputs()
    assert (one.wheel_key, one.buildenv_key, one.plan_id) == (
        two.wheel_key,
        two.buildenv_key,
        two.plan_id,
    )
    assert one.plan_id.startswith("0.32.0-")
    turned = make_inputs(**dict(reversed(one.wheel.items())))
    assert turned.wheel_key == one.wheel_key


@pytest.mark.parametrize(
    "change", [{"size": 4}, {"file": "gone.whl"}, {"file": None}, {"size": None}]
)
def test_a_wheel_that_is_not_whole_is_none(make_inputs, state, change):
    inputs = make_inputs()
    folder = keep_wheel(state, inputs, **change)
    assert wheel_of(folder) is None
    assert "compile" in left(inputs, state)
    assert explain_miss(inputs, state) == (
        f"wheel {inputs.wheel_key} is in the cache, but its file is missing or damaged",
    )


def test_a_whole_wheel_is_found(make_inputs, state):
    inputs = make_inputs()
    folder = keep_wheel(state, inputs)
    assert wheel_of(folder) == folder / "vllm.whl"
    assert explain_miss(inputs, state) == (f"wheel {inputs.wheel_key} is in the cache",)


def test_an_empty_cache_is_said_to_be_empty(make_inputs, state):
    assert explain_miss(make_inputs(), state) == ("the wheel cache is empty",)
    state.wheels.rmdir()
    assert explain_miss(make_inputs(), state) == ("the wheel cache is empty",)


def test_a_miss_names_the_nearest_wheel_and_exactly_what_differs(make_inputs, state):
    near = make_inputs(torch="2.12.0+cpu", tcmalloc="abcd")
    far = make_inputs(torch="2.11.0+cpu", vllm="0.31.0", python="3.12")
    broken = make_inputs(torch="2.12.0+cpu")
    for other in (far, near):
        keep_wheel(state, other)
    keep_wheel(state, broken, size=1)
    assert explain_miss(make_inputs(), state) == (
        f"nearest cached wheel: {near.wheel_key}; 2 inputs differ",
        "tcmalloc: 'abcd' there, None here",
        "torch: '2.12.0+cpu' there, '2.13.0+cpu' here",
    )


def test_inputs_that_only_one_of_the_two_knows_differ_too(make_inputs, state):
    """Another version of this tool may have looked at other things."""
    inputs = make_inputs(new=None)
    older = make_inputs(old=None)
    keep_wheel(state, older)
    assert explain_miss(inputs, state) == (
        f"nearest cached wheel: {older.wheel_key}; 2 inputs differ",
        "new: nothing there, None here",
        "old: None there, nothing here",
    )


def test_a_manifest_without_inputs_differs_in_everything(make_inputs, state):
    inputs = make_inputs()
    keep_wheel(state, make_inputs(vllm="0.31.0"), inputs=None)
    lines = explain_miss(inputs, state)
    assert len(lines) == 1 + len(inputs.wheel)


def test_another_lock_takes_other_packages(make_inputs, state):
    inputs = make_inputs()
    for name in ORDER[:5]:
        DEEDS[name](state, inputs)
    assert left(inputs, state) == ["environment", "verify", "activate"]
    (state.locks / f"{inputs.plan_id}.txt").write_text("numpy==2\n")
    assert left(inputs, state) == ["dependencies", "environment", "verify", "activate"]
    (state.locks / f"{inputs.plan_id}.txt").unlink()
    assert left(inputs, state) == ["lock", "dependencies", "environment", "verify", "activate"]


def test_a_damaged_environment_is_made_from_its_packages_on(make_inputs, state):
    inputs = make_inputs()
    for deed in DEEDS.values():
        deed(state, inputs)
    env = state.envs / inputs.plan_id
    (env / "bin" / "vllm").unlink()
    assert left(inputs, state)[:2] == ["dependencies", "environment"]


def test_every_step_needs_only_earlier_ones(make_inputs, state):
    steps = make_plan(make_inputs(), state).steps
    for number, step in enumerate(steps):
        assert set(step.needs) <= {s.id for s in steps[:number]}


@pytest.mark.parametrize("kept", [False, True])
def test_onednn_is_fetched_only_for_a_compile(make_inputs, state, monkeypatch, kept):
    asked = []
    monkeypatch.setattr(gather, "fetch_onednn", lambda *found, **_: asked.append(found))
    monkeypatch.setattr(gather, "kept_objects", lambda _: None)
    inputs = make_inputs(onednn_objects=None)
    if kept:
        keep_wheel(state, inputs)
    picks = SimpleNamespace(
        onednn="3.13",
        compiler=None,
        interpreter=SimpleNamespace(path="/usr/bin/python3"),
        torch=SimpleNamespace(version="2.13.0+cpu"),
    )
    found = gather.Gathered(
        picks=picks,
        inputs=inputs,
        installer=None,
        patches=(),
        jobs=1,
        jobs_reason="",
        runtime=(),
        build=(),
    )
    found.context(state, state.runs / "1", offline=True)
    assert asked == ([] if kept else [("3.13", state.sources)])
