"""What the compile is started with."""

from __future__ import annotations

from cpubuild.steps import compile as compiling


def program(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)


def test_a_compiler_cache_of_the_caller_s_is_found_behind_the_system_s_folders(tmp_path):
    program(tmp_path / "cargo" / "sccache")
    program(tmp_path / "other" / "g++")
    program(tmp_path / "opt" / "ccache")
    callers = ":".join(str(tmp_path / name) for name in ("other", "opt", "cargo", "none"))
    system = tuple(compiling.SYSTEM_PATH.split(":"))
    path = compiling.search_path(callers)
    assert path == (*system, str(tmp_path / "cargo"), str(tmp_path / "opt"))


def test_without_one_there_are_the_system_s_folders_alone(tmp_path):
    program(tmp_path / "g++")
    system = tuple(compiling.SYSTEM_PATH.split(":"))
    for callers in (None, "", str(tmp_path), compiling.SYSTEM_PATH):
        assert compiling.search_path(callers) == system
