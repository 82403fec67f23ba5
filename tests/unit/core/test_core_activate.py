"""The files an environment is used through: what they set, why, and that values survive."""

from __future__ import annotations

import shlex
from pathlib import Path

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild import activate, render

GIB = 1024**3

GXX = "/usr/bin/g++-14"


@pytest.fixture
def env(tmp_path):
    (tmp_path / "env" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    return tmp_path / "env"


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def chosen(env, facts):
    return {v.name: v.value for v in activate.variables(env, facts, compiler=GXX)}


def without_libraries(make_facts, **changes):
    facts = make_facts(**changes)
    parts = {n: getattr(facts.libraries, n) for n in type(facts.libraries).__dataclass_fields__}
    return make_facts(**changes, libraries=type(facts.libraries)(**{**parts, "tcmalloc": None}))


def test_every_variable_has_its_reason(env, make_facts):
    assert all(
        v.reason and "\n" not in v.reason
        for v in activate.variables(env, make_facts(), compiler=GXX)
    )
    assert chosen(env, make_facts())["VIRTUAL_ENV"] == str(env)


def test_nothing_is_preloaded_that_is_not_there(env, make_facts, tmp_path):
    facts = make_facts()
    libraries = type(facts.libraries)(
        numa_header=True,
        numa_link=True,
        numa_runtime=None,
        tcmalloc=str(tmp_path / "gone.so"),
        libiomp=str(tmp_path / "gone-too.so"),
        libgomp=None,
    )
    (env / "lib" / "libiomp5.so").symlink_to("dangling")
    assert "LD_PRELOAD" not in chosen(env, make_facts(libraries=libraries))


def test_the_allocator_of_the_wheel_comes_before_the_hosts(env, make_facts, tmp_path):
    host = touch(tmp_path / "host" / "libtcmalloc_minimal.so.4")
    facts = without_libraries(make_facts)
    parts = {n: getattr(facts.libraries, n) for n in type(facts.libraries).__dataclass_fields__}
    with_host = make_facts(libraries=type(facts.libraries)(**{**parts, "tcmalloc": str(host)}))
    assert chosen(env, with_host)["LD_PRELOAD"] == str(host)
    site = env / "lib" / "python3.11" / "site-packages"
    inside = touch(site / "vllm" / "libs" / "libtcmalloc_minimal-1a2b.so.4")
    assert chosen(env, with_host)["LD_PRELOAD"] == str(inside)
    assert chosen(env, facts)["LD_PRELOAD"] == str(inside)


def test_never_two_openmp_runtimes(env, make_facts, tmp_path):
    site = env / "lib" / "python3.11" / "site-packages"
    first = touch(env / "lib" / "libiomp5.so")
    for other in ("intel/libiomp5.so", "torch/lib/libiomp5.so", "torch/lib/libgomp.so.1"):
        touch(site / other)
    facts = without_libraries(make_facts)
    assert chosen(env, facts)["LD_PRELOAD"] == str(first)
    first.unlink()
    assert chosen(env, facts)["LD_PRELOAD"] == str(site / "intel" / "libiomp5.so")


@pytest.mark.parametrize(
    ("available", "limit", "used", "space"),
    [
        (100 * GIB, None, None, "40"),
        (100 * GIB, 20 * GIB, 10 * GIB, "4"),
        (2 * GIB, None, None, "1"),
        (0, None, None, "1"),
        (100 * GIB, GIB, 2 * GIB, "1"),
    ],
)
def test_the_cache_takes_two_fifths_of_what_is_free(env, make_facts, available, limit, used, space):
    memory = {"available": available, "limit": limit, "used": used}
    assert chosen(env, make_facts(memory=memory))["VLLM_CPU_KVCACHE_SPACE"] == space


@pytest.mark.parametrize(
    ("physical", "logical", "allowed", "small"),
    [
        (2, 4, range(4), True),
        (4, 8, range(8), True),
        (None, 4, range(4), True),
        (5, 10, range(10), False),
        (32, 64, range(64), False),
        (32, 64, (7, 9), True),  # a container's share of a large host
        (32, 64, (), False),  # what may be used is not known
    ],
)
def test_a_small_host_reserves_no_core(env, make_facts, physical, logical, allowed, small):
    facts = make_facts(cpu={"physical": physical, "logical": logical, "allowed": tuple(allowed)})
    assert chosen(env, facts).get("VLLM_CPU_NUM_OF_RESERVED_CPU") == ("0" if small else None)


def test_both_files_are_written_and_tell_the_same(env, make_facts):
    written = activate.write_files(env, make_facts(), vllm="0.32.0", compiler=GXX)
    shell, systemd = ((env / name).read_text() for name in ("env.sh", "env.systemd"))
    assert written == activate.variables(env, make_facts(), compiler=GXX)
    for variable in written:
        assert f"export {variable.name}={variable.value}\n" in shell
        assert f'{variable.name}="{variable.value}"\n' in systemd
        assert shell.count(variable.reason) == systemd.count(variable.reason) == 1
    assert shell.endswith("\n")
    words = shlex.split(shell, comments=True)
    assert all(word == "export" or "=" in word for word in words)


# templates


def test_a_missing_value_is_an_error_never_an_empty_string():
    with pytest.raises(jinja2.UndefinedError, match="undefined"):
        render.render("env.sh.j2", {"vllm": "0.32.0"})


def test_every_template_refuses_to_be_filled_with_nothing():
    names = [p.name for p in render.shipped("templates").iterdir() if p.name.endswith(".j2")]
    assert {"env.sh.j2", "env.systemd.j2"} <= set(names)
    for name in names:
        with pytest.raises(jinja2.UndefinedError):
            render.render(name, {})


def systemd_reads(text: str) -> str:
    """A double-quoted value as systemd's environment files define it (systemd.exec(5))."""
    assert text[0] == text[-1] == '"'
    body, read = text[1:-1], ""
    while body:
        assert body[0] != '"'
        if body[0] == "\\" and body[1:2] and body[1] in '"\\`$':
            read, body = read + body[1], body[2:]
        else:
            read, body = read + body[0], body[1:]
    return read


@given(st.text(st.characters(exclude_characters="\x00\n", exclude_categories=["Cs"])))
def test_values_survive_systemds_quoting(value):
    assert systemd_reads(render.systemd_quote(value)) == value


def test_a_host_without_a_plain_gxx_names_its_compiler(env, make_facts):
    from dataclasses import replace

    facts = make_facts()
    plain = replace(facts.compilers[0], path="/usr/bin/g++", works=True)
    assert "CXX" not in chosen(env, replace(facts, compilers=(plain,)))
    numbered = replace(plain, path=GXX)
    assert chosen(env, replace(facts, compilers=(numbered,)))["CXX"] == GXX
