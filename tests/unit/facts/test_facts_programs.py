"""What programs print, and which programs are asked at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cpubuild.facts import compilers, interpreters, libraries, tools
from cpubuild.facts.compiler_cache import Cache, key_of
from cpubuild.facts.compiler_table import table
from cpubuild.facts.programs import search_path, which
from cpubuild.run import Completed

CLANG_14 = "Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu\n"
GCC_12 = """Using built-in specs.
Target: x86_64-linux-gnu
Configured with: ../src/configure -v --target=x86_64-linux-gnu
gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)
"""
REFUSED_GCC = """cc: error: unrecognized command-line option '-mamx-fp8'; did you mean '-mamx-bf16'?
g++: error: unrecognized command-line option ‘-mavx10.2’; did you mean ‘-mavx2’?
"""
REFUSED_CLANG = (
    "clang: error: unknown argument: '-mamx-fp8'\n"
    "clang: error: unsupported option '-mavx10.2' for target 'x86_64'\n"
)


def done(code: int = 0, out: str = "", err: str = "") -> Completed:
    return Completed(argv=("x",), returncode=code, stdout=out, stderr=err, seconds=0.0)


def program(path: Path, text: str = "\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def env(*folders: Path, **more: str) -> dict[str, str]:
    return {"PATH": ":".join(map(str, folders)), "HOME": "/nonexistent", **more}


@pytest.mark.parametrize(
    ("text", "kind", "version", "target"),
    [
        (GCC_12, "gnu", "12.2.0", "x86_64-linux-gnu"),
        (CLANG_14, "clang", "14.0.6", "x86_64-pc-linux-gnu"),
        ("Apple clang version 15.0.0 (clang-1500)\n", "clang", "15.0.0", ""),
        ("no compiler\n", "unknown", "", ""),
    ],
)
def test_identity(text: str, kind: str, version: str, target: str) -> None:
    found = compilers.parse_identity(text)
    assert (found.kind, found.version, found.target) == (kind, version, target)


@pytest.mark.parametrize("text", [REFUSED_GCC, REFUSED_CLANG])
def test_refused_options_without_the_ones_suggested(text: str) -> None:
    assert compilers.parse_unknown_options(text) == {"-mamx-fp8", "-mavx10.2"}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("g++-12", "g++-12"),
        ("ccache g++ -m64", "g++"),
        ("/usr/bin/ccache /opt/g++", "/opt/g++"),
        ("", None),
        ("'g++", None),
        ("ccache", None),
    ],
)
def test_the_compiler_that_cxx_names(command: str, name: str | None) -> None:
    assert compilers.named_program(command) == name


def test_compilers_are_listed_once_and_the_asked_one_first(tmp_path: Path) -> None:
    real = program(tmp_path / "bin/x86_64-linux-gnu-g++-12")
    for link in ("g++", "g++-12", "c++"):
        (tmp_path / "bin" / link).symlink_to(real)
    program(tmp_path / "bin/ccache")
    (tmp_path / "wrapped").mkdir()
    (tmp_path / "wrapped/g++").symlink_to(tmp_path / "bin/ccache")
    newer = program(tmp_path / "opt/rh/gcc-toolset-13/root/usr/bin/g++")
    other = program(tmp_path / "elsewhere/my-cxx")
    found = compilers.candidates(
        env(tmp_path / "wrapped", tmp_path / "bin", CXX=f"ccache {other}"), cxx=None, root=tmp_path
    )
    assert found == (str(other), str(tmp_path / "bin/g++"), str(newer))
    asked = compilers.candidates(env(tmp_path / "bin"), cxx="g++-12", root=tmp_path / "none")
    assert asked == (str(tmp_path / "bin/g++-12"),)


@pytest.mark.parametrize(
    ("cxx", "cc"),
    [("g++-12", "gcc-12"), ("clang++-15", "clang-15"), ("c++", "cc"), ("g++", None), ("cxx", None)],
)
def test_partner(tmp_path: Path, cxx: str, cc: str | None) -> None:
    path = program(tmp_path / cxx)
    if cc:
        program(tmp_path / cc)
    assert compilers.partner(str(path)) == (str(tmp_path / cc) if cc else None)


class FakeCompiler:
    """Answer as a compiler would; ``broken`` options compile nothing, ``refused`` are unknown."""

    def __init__(self, *, broken: Sequence[str] = (), refused: Sequence[str] = ()) -> None:
        self.broken, self.refused = broken, refused
        self.intrinsics = 0

    def __call__(self, argv: Sequence[str], environ: Any, **more: Any) -> Completed:
        source = more.get("stdin") or ""
        if argv[1] == "-v":
            return done(err=GCC_12)
        unknown = [name for name in argv if name in self.refused]
        if unknown:
            lines = (f"g++: error: unrecognized command-line option '{u}'\n" for u in unknown)
            return done(1, err="".join(lines))
        if "immintrin" in source:
            self.intrinsics += 1
            return done(int(any(name in self.broken for name in argv)))
        return done()


def probe(fake: FakeCompiler, monkeypatch: pytest.MonkeyPatch, cache: Cache) -> dict[str, bool]:
    monkeypatch.setattr(compilers, "ask", fake)
    found = compilers.probe(__file__, {}, cache)
    assert found.works
    assert found.cxx20
    return dict(found.options)


def test_every_option_is_tried_in_one_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCompiler(refused=["-mamx-fp8", "-mavx10.2"])
    options = probe(fake, monkeypatch, Cache(path=None))
    assert fake.intrinsics == 1
    assert {name for name, taken in options.items() if not taken} == {"-mamx-fp8", "-mavx10.2"}
    assert options.keys() == {row.name for row in table().options if row.arch == "x86_64"}


def test_a_failed_intrinsic_is_found_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    # an assembler too old for one of them
    fake = FakeCompiler(broken=["-mavx512fp16"])
    options = probe(fake, monkeypatch, Cache(path=None))
    assert {name for name, taken in options.items() if not taken} == {"-mavx512fp16"}


def test_success_is_remembered_and_failure_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "cache/compilers.json"
    fake = FakeCompiler(broken=["-mamx-bf16"])
    for expected in (False, True):
        cache = Cache.load(path)
        assert probe(fake, monkeypatch, cache)["-mamx-bf16"] is expected
        cache.save()
        assert path.exists() is expected
        fake = FakeCompiler()
    again = FakeCompiler()
    assert all(probe(again, monkeypatch, Cache.load(path)).values())
    assert again.intrinsics == 0


def test_the_key_of_a_compiler_changes_with_its_file_and_its_banner(tmp_path: Path) -> None:
    path = program(tmp_path / "g++")
    first = key_of(str(path), "a")
    assert first == key_of(str(path), "a")
    assert first != key_of(str(path), "b")
    path.write_text("another length")
    assert key_of(str(path), "a") != first
    assert key_of(str(tmp_path / "none"), "a") == ""


@pytest.mark.parametrize("text", ["", "[]", "{", '{"passed": 3}', '{"passed": [1, "k"]}', "null"])
def test_a_damaged_cache_is_empty(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    assert Cache.load(path).passed <= {"k"}


def test_a_compiler_that_cannot_compile_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    error = "g++: fatal error: cannot execute 'cc1plus': execvp: No such file or directory"
    monkeypatch.setattr(
        compilers,
        "ask",
        lambda argv, _, **more: done(err=GCC_12) if argv[1] == "-v" else done(1, err=error + "\n"),
    )
    found = compilers.probe("/usr/bin/g++", {}, Cache(path=None))
    assert (found.works, found.cxx20, found.options) == (False, False, ())
    assert found.failure == error


@pytest.mark.parametrize(
    ("name", "output", "version"),
    [
        ("cmake", "cmake version 3.25.1\n\nCMake suite maintained\n", "3.25.1"),
        ("ninja", "1.11.1.git.kitware.jobserver-1\n", "1.11.1"),
        ("git", "git version 2.39.5\n", "2.39.5"),
        ("ld", "GNU ld (GNU Binutils for Debian) 2.40\nCopyright 2023\n", "2.40"),
        ("ld", "LLD 14.0.6 (compatible with GNU linkers)\n", None),
        ("as", "GNU assembler version 2.35.2-63.el9\n", "2.35.2"),
        ("ld.gold", "GNU gold (GNU Binutils for Debian 2.40) 1.16\n", "1.16"),
        ("apt-get", "apt 2.6.1 (amd64)\n", "2.6.1"),
        ("cargo", "cargo 1.95.0 (f2d3ce0bd 2026-03-21)\n", "1.95.0"),
        ("cargo", "error: no default toolchain\n", None),
    ],
)
def test_tool_versions(name: str, output: str, version: str | None) -> None:
    row = next(row for row in tools.table() if row.name == name)
    assert tools.parse(row, f"/usr/bin/{name}", output).version == version
    assert tools.parse(row, None, output).version is None


def test_every_tool_is_reported_present_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "cmake")
    program(tmp_path / "patch")
    asked: list[str] = []

    def ask(argv: Sequence[str], environ: Any, **more: Any) -> Completed:
        asked.append(Path(argv[0]).name)
        return done(out="cmake version 3.31.0\n")

    monkeypatch.setattr(tools, "ask", ask)
    monkeypatch.setattr(tools, "SYSTEM_FOLDERS", ())
    with ThreadPoolExecutor(2) as pool:
        found = {tool.name: tool for tool in tools.collect(env(tmp_path), pool)}
    assert found.keys() == {row.name for row in tools.table()}
    assert found["cmake"].version == "3.31.0"
    assert found["patch"].path == str(tmp_path / "patch")
    assert found["ninja"].path is None
    assert asked == ["cmake"]


def test_shims_and_relative_folders_are_not_searched(tmp_path: Path) -> None:
    program(tmp_path / ".pyenv/shims/g++")
    environ = {"PATH": f"bin::{tmp_path}/.pyenv/shims:/usr/bin:/usr/bin"}
    assert search_path(environ) == (Path("/usr/bin"),)
    assert which("no-such-program", environ) is None


def answer(**more: object) -> str:
    base = {
        "executable": "/usr/bin/python3.11",
        "version": "3.11.2",
        "implementation": "CPython",
        "headers": False,
        "venv": True,
        "free_threaded": False,
    }
    return json.dumps(base | more)


def test_an_interpreter_is_what_it_says() -> None:
    found = interpreters.parse(answer())
    assert found is not None
    assert (found.version, found.headers, found.venv) == ("3.11.2", False, True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "Python 2.7",
        answer(version="2.7.18"),
        answer()[:-9],
        "3",
        "null",
        "[[" * 9999,
    ],
)
def test_what_is_no_python_3_is_left_out(text: str) -> None:
    assert interpreters.parse(text) is None


def test_interpreters_come_from_path_pyenv_and_uv_once(tmp_path: Path) -> None:
    real = program(tmp_path / "bin/python3.12")
    (tmp_path / "bin/python3").symlink_to(real)
    (tmp_path / "bin/python").symlink_to(tmp_path / "nowhere")
    program(tmp_path / "bin/python3.9-config")
    program(tmp_path / "bin/python3.8", "#!/bin/sh\n")
    pyenv = program(tmp_path / ".pyenv/versions/3.10.1/bin/python3")
    uv = program(tmp_path / ".local/share/uv/python/cpython-3.14/bin/python3")
    found = interpreters.candidates(env(tmp_path / "bin", HOME=str(tmp_path)))
    own = [path for path in found if path.is_relative_to(tmp_path)]
    assert own == [tmp_path / "bin/python3", pyenv, uv]


def test_interpreters_with_the_same_executable_are_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = (program(tmp_path / "a/python3"), program(tmp_path / "b/python3"))
    monkeypatch.setattr(interpreters, "candidates", lambda environ: paths)
    monkeypatch.setattr(interpreters, "ask", lambda argv, environ, **more: done(out=answer()))
    with ThreadPoolExecutor(2) as pool:
        assert len(interpreters.collect({}, pool)) == 1


def test_the_interpreter_that_was_asked_for_comes_first_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = program(tmp_path / "bin/python3.11")
    link = tmp_path / "mine"
    link.symlink_to(program(tmp_path / "opt/python3.12"))
    environment = program(tmp_path / "venv/bin/python3").parent.parent
    said = {
        str(system): answer(),
        str(link): answer(executable="/opt/python3.12", version="3.12.0"),
        str(environment / "bin/python3"): answer(),
    }
    monkeypatch.setattr(interpreters, "candidates", lambda environ: (system,))
    monkeypatch.setattr(
        interpreters, "ask", lambda argv, environ, **more: done(out=said.get(argv[0], ""))
    )
    environ = env(tmp_path / "bin")
    for asked, paths in {
        str(link): ["/opt/python3.12", "/usr/bin/python3.11"],
        str(environment): ["/usr/bin/python3.11"],
        str(environment / "bin/python3"): ["/usr/bin/python3.11"],
        "python3.11": ["/usr/bin/python3.11"],
    }.items():
        with ThreadPoolExecutor(2) as pool:
            found = interpreters.collect(environ, pool, asked=asked)
        assert [p.path for p in found] == paths
        assert found[0].asked == asked
    for asked in ("3.11", "python3.10", "ls", str(tmp_path / "gone"), str(tmp_path)):
        with ThreadPoolExecutor(2) as pool:
            found = interpreters.collect(environ, pool, asked=asked)
        assert [(p.path, p.asked) for p in found] == [("/usr/bin/python3.11", None)]


LDCONFIG = """3 libs found in cache `/etc/ld.so.cache'
\tlibnuma.so.1 (libc6) => /lib/i386-linux-gnu/libnuma.so.1
\tlibnuma.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnuma.so.1
\tlibgomp.so.1 (libc6,x86-64, OS ABI: Linux 3.2.0) => /lib/x86_64-linux-gnu/libgomp.so.1
\tlibc.so.6 (libc6,AArch64) => /lib/aarch64-linux-gnu/libc.so.6
Cache generated by: ldconfig (Debian GLIBC 2.36)
"""


def test_the_loaders_cache_by_architecture() -> None:
    assert libraries.parse_cache(LDCONFIG, "x86_64") == {
        "libnuma.so.1": "/lib/x86_64-linux-gnu/libnuma.so.1",
        "libgomp.so.1": "/lib/x86_64-linux-gnu/libgomp.so.1",
    }
    assert list(libraries.parse_cache(LDCONFIG, "aarch64")) == ["libc.so.6"]


def test_a_cached_library_that_is_gone_is_looked_for_in_the_folders(tmp_path: Path) -> None:
    real = program(tmp_path / "usr/lib/x86_64-linux-gnu/libtcmalloc.so.4.5.10")
    link = real.with_name("libtcmalloc.so.4")
    link.symlink_to(real.name)
    cache = {"libnuma.so.1": str(tmp_path / "gone.so"), "libtcmalloc.so.4": "/gone.so"}
    found = libraries.parse(cache, tmp_path, "x86_64", numa_header=True)
    assert found.numa_runtime is None
    assert found.tcmalloc == str(link)
    assert (found.numa_header, found.numa_link) == (True, None)


def test_libnuma_is_linked_without_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(argv: Sequence[str], environ: Any, **more: Any) -> Completed:
        return done(int("#include <numa.h>" in more["stdin"]))

    monkeypatch.setattr(libraries, "ask", ask)
    assert libraries.compile_numa("g++", {}) == (False, True)
