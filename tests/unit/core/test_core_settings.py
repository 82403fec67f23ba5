"""Settings: each layer wins over the one below, every mistake is named at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpubuild import settings
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.settings import NAMES, OPTIONS, resolve

# For each option three values, as file, environment and flag give them, and what they become.
VALUES = {
    "vllm": ("0.31.0", "latest", "v0.30.0"),
    "state": ("/a/file", "/a/environment", "/a/flag"),
    "python": ("3.11", "3.12", "/usr/bin/python3"),
    "cxx": ("g++-12", "g++-13", "clang++"),
    "jobs": ("1", "2", "3"),
    "profile": ("text", "full", "text"),
    "targets": ("all", "host", "all"),
    "onednn": ("/b/file", "/b/environment", "/b/flag"),
    "offline": ("true", "no", "1"),
    "no_system": ("yes", "0", "on"),
    "wheel_cache": ("/c/file", "/c/environment", "s3://c/flag"),
    "wheel_cache_mode": ("read-write", "read", "read-write"),
    "wheel_cache_trust": ("/d/file", "/d/environment", "/d/flag"),
    "wheel_cache_key": ("/e/file", "/e/environment", "/e/flag"),
    "yes": ("true", "off", "yes"),
}
BY_NAME = {option.name: option for option in OPTIONS}


@pytest.fixture
def config(world):
    path = world / "home" / ".config" / "vllm-cpu-build" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


def value(resolved, name):
    return getattr(resolved.settings, name)


def origin(resolved, name):
    return next(origin for option, _, origin in resolved.origins if option == name)


def refused(flags=None, environ=None):
    with pytest.raises(CpuBuildError) as caught:
        resolve(flags or {}, environ or {})
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert all(p.exit_code is ExitCode.SETTINGS for p in caught.value.problems)
    return caught.value.problems


def attempt(flags, environ):
    try:
        return resolve(flags, environ), None
    except CpuBuildError as error:
        return None, error


def test_every_option_is_tried_here():
    assert tuple(VALUES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_layer_wins_over_the_one_below(name, config):
    in_file, in_environment, as_flag = VALUES[name]
    parse = BY_NAME[name].parse
    assert origin(resolve({}, {}), name) == "default"

    config.write_text(f'{name} = "{in_file}"\n')
    found = resolve({}, {})
    assert (value(found, name), origin(found, name)) == (parse(in_file), str(config))

    variable = "CPUBUILD_" + name.upper()
    found = resolve({}, {variable: in_environment})
    assert (value(found, name), origin(found, name)) == (parse(in_environment), variable)

    found = resolve({name: as_flag}, {variable: in_environment})
    assert value(found, name) == parse(as_flag)
    assert origin(found, name) == "--" + name.replace("_", "-")


@pytest.mark.parametrize("name", NAMES)
def test_a_flag_that_was_not_given_hides_nothing(name):
    variable, text = "CPUBUILD_" + name.upper(), VALUES[name][0]
    for absent in (None, False):
        assert origin(resolve({name: absent}, {variable: text}), name) == variable


def test_the_defaults(world):
    plain = resolve({}, {}).settings
    assert plain.vllm == settings.DEFAULT_VLLM
    assert plain.state == world / "home" / ".local" / "state" / "vllm-cpu-build"
    assert (plain.profile, plain.targets) == ("text", "host")
    assert (plain.offline, plain.no_system, plain.yes) == (False, False, False)
    assert plain.python is plain.cxx is plain.jobs is plain.onednn is plain.wheel_cache is None


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("0.32.0", "0.32.0"),
        ("v0.32.0", "0.32.0"),
        ("0.32.0+cpu", "0.32.0"),
        ("v0.32.0+cpu", "0.32.0"),
        ("0.6.3.post1+cpu", "0.6.3.post1"),
        ("0.33.0rc1+cpu", "0.33.0rc1"),
        ("v0.33.0rc1", "v0.33.0rc1"),
        ("main", "main"),
        ("releases/v0.32.0", "releases/v0.32.0"),
        ("/src/vllm+cpu", "/src/vllm+cpu"),
    ],
)
def test_a_release_has_one_spelling(given, taken):
    assert resolve({"vllm": given}, {}).settings.vllm == taken


def test_a_build_for_something_else_is_no_release_here():
    (problem,) = refused({"vllm": "0.32.0+cu130"})
    assert "--vllm = '0.32.0+cu130'" in problem.what
    assert "+cu130 names a build for something else than CPUs" in problem.what


@pytest.mark.parametrize("name", ["python", "cxx"])
def test_a_program_is_a_name_a_command_or_an_absolute_path(world, name):
    (world / "home" / "g").touch()
    here = str(world / "here")
    for text, taken in {
        "x/../bin/g": f"{here}/bin/g",
        "./g": f"{here}/g",
        "~/g": f"{world}/home/g",
        "/usr/bin/g": "/usr/bin/g",
        "g-12": "g-12",
        "ccache ./g -m64": "ccache ./g -m64",
        "3.11": "3.11",
    }.items():
        assert value(resolve({name: text}, {}), name) == taken


def test_a_setting_knows_what_gave_it(config):
    config.write_text('profile = "full"\n')
    found = resolve({"cxx": "g++"}, {"CPUBUILD_PYTHON": "3.11"}).settings
    assert found.origin("cxx") == "--cxx"
    assert found.origin("python") == "CPUBUILD_PYTHON"
    assert found.origin("profile") == str(config)
    assert found.origin("jobs") == "default"


@pytest.mark.parametrize("name", ["state", "onednn", "wheel_cache_trust", "wheel_cache_key"])
def test_a_path_that_no_file_system_takes_is_refused(name):
    (problem,) = refused({name: "/x/" + "é" * 128})
    assert "a name in it takes 256 bytes" in problem.what
    assert len(problem.what) < 500
    (problem,) = refused({name: "/x" * 2100})
    assert "it takes 4200 bytes" in problem.what
    assert len(problem.what) < 500
    assert resolve({name: "/" + "x" * 255}, {}).settings is not None


def test_a_state_root_leaves_room_for_what_is_built_below_it():
    assert resolve({"state": "/x" * 350}, {}).settings.state == Path("/x" * 350)
    (problem,) = refused({"state": "/x" * 350 + "y"}, {})
    assert "it takes 701 bytes, at most 700 are possible" in problem.what


def test_the_file_takes_numbers_and_booleans_of_toml(config):
    config.write_text("jobs = 7\noffline = true\nyes = false\n")
    found = resolve({}, {}).settings
    assert (found.jobs, found.offline, found.yes) == (7, True, False)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("python = 3.10", "python"),  # 3.1 once it is a number
        ("vllm = 0.30", "vllm"),
        ('vllm = ["0.32.0"]', "vllm"),
        ("state = { path = '/x' }", "state"),
        ("vllm = 2024-01-01", "vllm"),
        ("jobs = 2.0", "jobs"),
        ("jobs = nan", "jobs"),
        ("jobs = true", None),
    ],
)
def test_the_file_takes_no_value_that_would_have_to_be_guessed(config, line, name):
    config.write_text(line + "\n")
    if name is None:
        assert resolve({}, {}).settings.jobs == 1
        return
    (problem,) = refused()
    assert str(config) in problem.what
    assert problem.why.startswith(f"{name}: ")
    assert "in quotes" in problem.what


def test_all_bad_values_come_in_one_error(config):
    config.write_text('profile = "tiny"\nprofil = "full"\n')
    problems = refused(
        {"jobs": "many", "state": "/a b"}, {"CPUBUILD_TARGETS": "some", "CPUBUILD_OFFLINE": "2"}
    )
    text = [p.what for p in problems]
    assert len(problems) == 6
    for part in (
        f"{config} = 'tiny' is not usable: one of text, full is needed",
        "the unknown name 'profil'",
        "--jobs = 'many' is not usable: a whole number",
        "--state = '/a b' is not usable: ",
        "CPUBUILD_TARGETS = 'some' is not usable: one of host, all is needed",
        "CPUBUILD_OFFLINE = '2' is not usable: one of 1, 0, true",
    ):
        assert any(part in what for what in text), part
    assert all(p.remedy for p in problems)
    jobs = next(p for p in problems if "--jobs" in p.what)
    assert jobs.why == "jobs: compilers at once"
    assert jobs.remedy == ("give a valid value to --jobs or CPUBUILD_JOBS",)


@pytest.mark.parametrize("text", ["0", "-1", "4097", "1.5", "", " ", "two", "9" * 5000])
def test_impossible_numbers_of_jobs(text):
    (problem,) = refused({"jobs": text})
    assert "whole number" in problem.what


@pytest.mark.parametrize("text", ["1", "4096", " 12 "])
def test_possible_numbers_of_jobs(text):
    assert resolve({"jobs": text}, {}).settings.jobs == int(text)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/a b/c", "spaces"),
        ("/a\u2003b", "spaces"),
        ("/a\tb", "control character"),
        ("/a:b", "it holds :"),
        ("/a;b:c", "it holds : and ;"),
        ("  ", "it is empty"),
        ("~no-such-user-here/x", "no such home folder"),
    ],
)
def test_a_state_root_that_the_build_cannot_take(path, reason):
    (problem,) = refused({"state": path})
    assert reason in problem.what
    assert "--state" in problem.remedy[0]


def test_a_home_with_a_space_is_refused_before_anything_is_built(monkeypatch, world):
    monkeypatch.setenv("HOME", str(world / "my home"))
    (problem,) = refused()
    assert "the default is not usable" in problem.what
    assert str(world / "my home") in problem.what
    assert resolve({"state": "/elsewhere"}, {}).settings.state == Path("/elsewhere")


def test_paths_become_absolute_and_keep_their_links(world):
    (world / "real").mkdir()
    (world / "home" / "link").symlink_to(world / "real")
    assert resolve({"state": "~/link/x"}, {}).settings.state == world / "home" / "link" / "x"
    assert resolve({"state": "x/../y"}, {}).settings.state == world / "here" / "y"


def test_unknown_names_of_the_file_come_with_a_hint(config):
    config.write_text('stat = "/x"\nzzz = 1\n')
    near, far = sorted(refused(), key=lambda p: p.what)
    assert near.remedy == ("did you mean state?",)
    assert far.remedy[0].startswith("known names: vllm, state, ")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("CPUBUILD_JOBZ", "did you mean CPUBUILD_JOBS?"),
        ("CPUBUILD_STAET", "did you mean CPUBUILD_STATE?"),
        ("CPUBUILD_XYZZY", None),
    ],
)
def test_misspelt_variables_are_ignored_with_a_warning(name, hint):
    found = resolve({}, {name: "5"})
    (warning,) = found.warnings
    assert name in warning
    assert ("did you mean" in warning) is (hint is not None)
    assert (hint or "") in warning
    assert found.settings == resolve({}, {}).settings


@pytest.mark.parametrize(
    "name",
    ["CPUBUILD_JSON", "CPUBUILD_VERBOSE", "CPUBUILD_TEST_SDISTS", "CPUBUILD_CACHE_TOKEN", "PATH"],
)
def test_other_variables_are_no_misspellings(name):
    assert resolve({}, {name: "1"}).warnings == ()


def test_a_named_file_is_read_instead(config, tmp_path):
    config.write_text("jobs = 1\n")
    other = tmp_path / "other.toml"
    other.write_text("jobs = 2\n")
    found = resolve({}, {"CPUBUILD_CONFIG": str(other)})
    assert (found.settings.jobs, origin(found, "jobs")) == (2, str(other))
    assert resolve({}, {"CPUBUILD_CONFIG": ""}).settings.jobs == 1


def test_an_empty_name_of_the_file_means_none_is_named():
    assert resolve({}, {"CPUBUILD_CONFIG": ""}).settings.vllm == settings.DEFAULT_VLLM


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "does not exist"),
        (b"jobs = ", "is not TOML"),
        (b"a = " + b"[" * 5000, "is not TOML"),
        (b"jobs = " + b"9" * 5000, "is not"),
        (b'vllm = "\xff"', "cannot be read"),
    ],
)
def test_a_named_file_that_cannot_be_used(tmp_path, content, reason):
    path = tmp_path / "c.toml"
    if content is not None:
        path.write_bytes(content)
    (problem,) = refused(environ={"CPUBUILD_CONFIG": str(path)})
    assert reason in problem.what
    assert str(path) in problem.what
    assert problem.remedy


@pytest.mark.parametrize("named", ["/etc", "/etc/passwd/x", "  ", "~no-such-user-here/c", "a\nb"])
def test_a_name_that_is_no_file(named):
    (problem,) = refused(environ={"CPUBUILD_CONFIG": named})
    assert problem.remedy


def test_secrets_of_addresses_are_not_shown(config):
    found = resolve({"wheel_cache": "https://me:word@example.org/c"}, {})
    assert found.settings.wheel_cache == "https://me:word@example.org/c"
    assert "word" not in str(found.origins)
    assert ("wheel_cache", "https://***@example.org/c", "--wheel-cache") in found.origins
    (problem,) = refused({"wheel_cache": "https://me:word@example.org/\n"})
    assert "word" not in problem.what


TEXTS = st.text(st.characters(exclude_categories=()), max_size=30) | st.sampled_from(
    ["~x", "~", "/a b", "1", "yes", "\x00", "\udcff", "latest", "text", "host", "-1", "٣"]
)
VARIABLES = st.sampled_from(
    ["CPUBUILD_CONFIG", *("CPUBUILD_" + n.upper() for n in NAMES), "CPUBUILD_", "CPUBUILD_É"]
)


@given(
    st.dictionaries(st.sampled_from(NAMES), TEXTS | st.none() | st.booleans()),
    st.dictionaries(VARIABLES | st.text(max_size=9).map("CPUBUILD_".__add__), TEXTS),
)
@example({"state": "~x/y"}, {})
@example({}, {"CPUBUILD_CONFIG": "\x00"})
@example({}, {"CPUBUILD_CONFIG": "/\ud800"})
@example({"vllm": os.fsdecode(b"\xff")}, {})
def test_whatever_is_given_it_is_taken_or_refused_with_reasons(flags, environ):
    found, error = attempt(flags, environ)
    if error is None:
        assert [name for name, _, _ in found.origins] == list(NAMES)
    else:
        assert error.exit_code is ExitCode.SETTINGS
        assert all(p.what and p.remedy for p in error.problems)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_whatever_the_file_holds_it_is_taken_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("file") / "c.toml"
    path.write_bytes(content)
    found, error = attempt({}, {"CPUBUILD_CONFIG": str(path)})
    assert (found is None) is (error is not None)
