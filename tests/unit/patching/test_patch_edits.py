"""The rules that make diffs, on small trees."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild.patching import diff as diffs
from cpubuild.patching.edits import Change, Request, lines, render
from cpubuild.patching.model import Edit, Patch, Selected, When
from cpubuild.patching.series import load

SETUP = """\
ext_modules = []
if _is_cpu():
    import platform

    if platform.machine() in ("x86_64", "AMD64"):
        ext_modules.append(CMakeExtension(name="vllm._C"))
        ext_modules.append(
            CMakeExtension(name="vllm._C_AVX512")
        )
        ext_modules.append(CMakeExtension(name="vllm._C_AVX2"))
    else:
        ext_modules.append(CMakeExtension(name="vllm._C"))
if _build_custom_ops():
    ext_modules.append(CMakeExtension(name="vllm._C"))
"""
CMAKE = "".join(
    f"define_extension_target(\n    {name}\n    DESTINATION vllm\n)\n"
    for name in ("_C", "_C_AVX512", "_C_AVX2")
)


class Texts(dict):
    """A tree that is a mapping of paths to texts."""

    def read(self, path):
        return self.get(path)

    def glob(self, pattern):
        wanted = pattern.replace("**/", "")
        return tuple(sorted(p for p in self if fnmatch.fnmatch(p, wanted)))


@pytest.fixture
def run(make_release, make_context):
    def run(edit, tree, *, release=None, **context):
        patch = Patch(
            id="p",
            phases=("source",),
            why="",
            upstream="",
            drop_when="",
            absent="refuse",
            when=(When(),),
            edits=(edit,),
        )
        selected = Selected(
            patch=patch,
            reason="",
            release=release or make_release(),
            context=make_context(**context),
        )
        return render(Request(edit=edit, selected=selected, tree=Texts(tree)))

    return run


def after(rendered):
    assert rendered.state == "change"
    return {change.path: change.after for change in rendered.changes}


FLOOR = Edit(
    kind="substitute",
    path="c",
    find=r"(>= )@floor@",
    replace=r"\g<1>@gcc@",
    done=r">= @gcc@",
)


def test_substitute_fills_in_versions_as_text_not_as_patterns(run):
    assert after(run(FLOOR, {"c": "v >= 12.3, v >= 1203"})) == {"c": "v >= 12.2.0, v >= 1203"}


def test_substitute_knows_done_work_from_foreign_code(run):
    assert run(FLOOR, {"c": "v >= 12.2.0"}).state == "already"
    missing = run(FLOOR, {"c": "v > 13"})
    assert missing.state == "absent"
    assert "c must hold" in missing.expected
    assert run(FLOOR, {}).expected == "c must be there"


REQUIREMENTS = Edit(kind="requirements", drop={"text": ("torchaudio", "torch_vision")})
CPU = """\
-r common.txt
torch==2.13.0+cpu; platform_machine == "x86_64"
torchaudio; platform_machine != "s390x"
Torch.Vision[extra] >= 1  # comment
torchaudio-extra
intel-openmp==2024.2.1
triton @ https://example.org/triton.whl ; python_version == "3.11"
other @ https://example.org/other.whl
"""


def test_requirements_drop_by_project_name_and_by_url(run):
    tree = {"requirements/cpu.txt": CPU, "requirements/common.txt": "regex\n"}
    assert after(run(REQUIREMENTS, tree))["requirements/cpu.txt"].splitlines() == [
        "-r common.txt",
        'torch==2.13.0+cpu; platform_machine == "x86_64"',
        "torchaudio-extra",
        "intel-openmp==2024.2.1",
    ]


def test_full_profile_keeps_all_but_triton_that_will_not_be_there(run):
    tree = {"requirements/cpu.txt": CPU, "requirements/common.txt": "regex\n"}
    kept = after(run(REQUIREMENTS, tree, profile="full"))["requirements/cpu.txt"]
    assert kept == "".join(line for line in lines(CPU) if not line.startswith("triton"))
    assert run(REQUIREMENTS, tree, profile="full", triton=True).state == "absent"


def test_requirements_follow_included_files(run):
    tree = {"requirements/cpu.txt": "-r common.txt\n", "requirements/common.txt": "regex\nfoo\n"}
    changed = after(run(REQUIREMENTS, tree, drop_requirements=("FOO",)))
    assert changed == {"requirements/common.txt": "regex\n"}


def test_a_missing_included_file_is_named(run):
    missing = run(REQUIREMENTS, {"requirements/cpu.txt": "-r common.txt\n"})
    assert missing.expected == "requirements/common.txt must be there"


def test_host_target_leaves_one_extension_in_its_branch_only(run):
    tree = {"setup.py": SETUP, "cmake/cpu_extension.cmake": CMAKE}
    changed = after(run(Edit(kind="host-target"), tree, x86_target="_C_AVX2"))
    assert changed["setup.py"].count('"vllm._C"') == 2
    assert '"vllm._C_AVX2"' in changed["setup.py"]
    assert "AVX512" not in changed["setup.py"]
    compile(changed["setup.py"], "setup.py", "exec")
    cmake = changed["cmake/cpu_extension.cmake"]
    assert cmake.startswith(CMAKE)
    assert "foreach(_vllm_other _C _C_AVX512)" in cmake
    assert run(Edit(kind="host-target"), changed, x86_target="_C_AVX2").state == "already"


@pytest.mark.parametrize(
    ("tree", "target", "named"),
    [
        ({"setup.py": SETUP, "cmake/cpu_extension.cmake": CMAKE}, "_C_AVX9", "_C_AVX9"),
        ({"setup.py": SETUP}, "_C", "cmake/cpu_extension.cmake"),
        ({"setup.py": SETUP, "cmake/cpu_extension.cmake": "#\n"}, "_C", "_C_AVX512"),
        ({"setup.py": "x = 1\n", "cmake/cpu_extension.cmake": CMAKE}, "_C", "setup.py"),
    ],
)
def test_host_target_says_what_it_missed(run, tree, target, named):
    rendered = run(Edit(kind="host-target"), tree, x86_target=target)
    assert rendered.state == "absent"
    assert named in rendered.expected


OPTIONS = next(p for p in load() if p.id == "unknown-gcc-options").edits[0]
OPTION = "-mno-avx256-split-unaligned-load"


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (f'list(APPEND F\n    "-mavx2"\n    "{OPTION}"\n)\n', 'list(APPEND F\n    "-mavx2"\n)\n'),
        (f'list(APPEND F "-mavx2"\n    "{OPTION}")\n', 'list(APPEND F "-mavx2"\n)\n'),
        (f'set(F "${{F}} {OPTION} -O3")\n', 'set(F "${F} -O3")\n'),
        (f"add_compile_options({OPTION} -g)\n", "add_compile_options( -g)\n"),
        (f'list(APPEND F "{OPTION}")\r\n', "list(APPEND F)\r\n"),
    ],
)
def test_options_are_taken_out_wherever_they_stand(run, before, expected):
    tree = {"cmake/sub.cmake": before, "CMakeLists.txt": "project(x)\n"}
    changed = after(run(OPTIONS, tree, rejected_options=(OPTION,)))
    assert changed == {"cmake/sub.cmake": expected}


@pytest.mark.parametrize(
    "text",
    [
        f'list(APPEND F "{OPTION}s" "x{OPTION}")\n',
        f"# {OPTION}\n",
        f'message(STATUS "without {OPTION}")\n',
        f'check_cxx_compiler_flag("{OPTION}" OK)\nif (OK)\n  list(APPEND F "{OPTION}")\nendif()\n',
    ],
)
def test_options_leave_other_text_alone(run, text):
    rendered = run(OPTIONS, {"CMakeLists.txt": text}, rejected_options=(OPTION,))
    assert rendered.state == "absent"


@pytest.mark.parametrize("option", ["-mamx-bf16", "-mavx512bf16", "-fopenmp"])
def test_options_that_the_sources_need_stay(run, option):
    tree = {"CMakeLists.txt": f'list(APPEND F "{option}")\n'}
    assert run(OPTIONS, tree, rejected_options=(option,)).state == "absent"


@given(st.text(alphabet="ab\n\r\x0c\u2028 "))
def test_lines_split_at_line_feeds_only_and_lose_nothing(text):
    assert "".join(lines(text)) == text
    assert all(line.count("\n") <= 1 for line in lines(text))


def test_a_diff_says_where_a_file_ends_without_a_newline():
    made = diffs.unified([Change(path="d/f", before="a\nb", after="a\nc")])
    assert made == (
        "--- a/d/f\n+++ b/d/f\n@@ -1,2 +1,2 @@\n a\n"
        "-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n"
    )
    assert diffs.paths(made) == ("d/f",)


def test_a_hunk_is_found_by_file_and_line():
    text = "".join(f"{n}\n" for n in range(1, 41))
    made = diffs.unified(
        Change(path=p, before=text, after=text.replace("3\n", "x\n", 1).replace("30\n", "y\n"))
        for p in ("one", "two")
    )
    assert diffs.hunk(made, "two", 28)[0].startswith("@@ -28")
    assert "+y" in diffs.hunk(made, "two", 28)
    assert diffs.hunk(made, "two", 27) == ()
