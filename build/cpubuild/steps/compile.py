"""The compile: vLLM's own setup.py in the build environment, resumed from what is there."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from cpubuild import jsonio, run, ui
from cpubuild.errors import ExitCode, fail
from cpubuild.report import MemorySampler
from cpubuild.state import now
from cpubuild.steps.context import Context

# What a build may see of the caller's environment: where home, temporary files, proxies and
# certificates are. CFLAGS, CUDA_HOME and their like would change the result in silence.
PASSED = ("HOME", "USER", "TMPDIR", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR")
PASSED_PREFIXES = ("CCACHE_", "SCCACHE_", "GIT_SSL")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# vLLM's setup.py takes the first of them that it finds.
COMPILER_CACHES = ("sccache", "ccache")
LEAN = "lean.cmake"
OBJECTS = "onednn-objects.txt"
WHOLE = "onednn-objects-incomplete.txt"
ONEDNN_SYMBOL = re.compile(r"dnnl_|_Z\w*?4dnnl")


def compile_wheel(ctx: Context) -> None:
    """Build the wheel and put it, with its manifest, into the wheel cache."""
    try:
        with MemorySampler(os.getpid(), ctx.run / "compile" / "memory.csv"):
            done = complete(ctx)
    finally:
        for ninja in (ctx.build / "tree").glob("build/temp*/.ninja_log"):
            shutil.copyfile(ninja, ctx.run / "compile" / "ninja_log")
    keep(ctx, ctx.build / "dist", seconds=done.seconds)


def complete(ctx: Context) -> run.Completed:
    """Build, and look whether the kernels have all they need.

    If the list of oneDNN objects turns out to lack one, the rest of oneDNN is compiled too:
    slower, never incomplete.
    """
    done = build(ctx)
    lacking = missing_onednn(ctx.build / "tree")
    if lacking and (ctx.build / OBJECTS).exists():
        ui.say(f"warn the list of oneDNN objects lacks {lacking[0]}; compiling all of oneDNN")
        (ctx.build / OBJECTS).rename(ctx.build / WHOLE)
        done = build(ctx)
        lacking = missing_onednn(ctx.build / "tree")
    if lacking:
        raise fail(
            ExitCode.COMPILE,
            f"the kernels lack {len(lacking)} symbols of oneDNN, the first is {lacking[0]}",
            why="the first matrix product would end the process",
            log=done.log,
        )
    return done


def build(ctx: Context) -> run.Completed:
    """Run vLLM's own setup.py; ninja goes on from what an interrupted run has left."""
    tree, dist = ctx.build / "tree", ctx.build / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    write_once(ctx.build / LEAN, lean_text())
    if ctx.onednn_objects and not (ctx.build / WHOLE).exists():
        write_once(ctx.build / OBJECTS, ctx.onednn_objects)
    python = ctx.buildenv / "bin" / "python"
    with ui.Progress(f"compile vLLM {ctx.inputs.release.version}, {ctx.jobs} at once") as progress:
        done = run.logged(
            [str(python), "setup.py", "bdist_wheel", "--dist-dir", str(dist)],
            folder=ctx.run / "compile",
            env=build_environment(ctx, os.environ),
            cwd=tree,
            on_line=progress.line,
        )
        run.must(done, ExitCode.COMPILE, "the build failed")
    return done


def write_once(path: Path, text: str) -> None:
    """Write a file that the build reads, unless it holds the text: a newer one rebuilds much."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        jsonio.write_text(path, text)


def missing_onednn(tree: Path) -> tuple[str, ...]:
    """Undefined symbols of oneDNN in the built extensions; none in a complete build."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    found: set[str] = set()
    for library in tree.glob("build/lib*/vllm/_C*.so"):
        with library.open("rb") as source:
            table = ELFFile(source).get_section_by_name(".dynsym")
            if isinstance(table, SymbolTableSection):
                found |= {s.name for s in table.iter_symbols() if s["st_shndx"] == "SHN_UNDEF"}
    return tuple(sorted(name for name in found if ONEDNN_SYMBOL.match(name)))


def lean_text() -> str:
    """The CMake file that trims the build without touching the tree."""
    return resources.files("cpubuild").joinpath("data", LEAN).read_text(encoding="utf-8")


def build_environment(ctx: Context, environ: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of the build, from nothing."""
    env = {k: v for k, v in environ.items() if k in PASSED or k.startswith(PASSED_PREFIXES)}
    env |= {k: v for k, v in environ.items() if k.lower().endswith("_proxy")}
    env |= {
        "PATH": ":".join((str(ctx.buildenv / "bin"), *search_path(environ.get("PATH")))),
        "VIRTUAL_ENV": str(ctx.buildenv),
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_VERSION_OVERRIDE": f"{ctx.inputs.release.version}+cpu",
        "SETUPTOOLS_SCM_PRETEND_VERSION": ctx.inputs.release.version,
        "MAX_JOBS": str(ctx.jobs),
        "CMAKE_BUILD_TYPE": "RelWithDebInfo",
        "CMAKE_ARGS": " ".join(cmake_arguments(ctx)),
        "CXX": ctx.compiler.path,
        # The Rust front end is optional, unused unless asked for at run time, and needs crates.
        "CARGO": "cargo-is-not-used-by-this-build",
    }
    env.setdefault("LANG", "C.UTF-8")
    # A compiler cache, where the host has one: state roots and builds differ in their folders'
    # names, and precompiled headers count by content.
    env.setdefault("CCACHE_BASEDIR", str(ctx.state.root))
    env.setdefault("SCCACHE_BASEDIRS", f"{ctx.build}:{ctx.state.root}")
    env.setdefault("CCACHE_NOHASHDIR", "1")
    env["CCACHE_STATSLOG"] = str(ctx.run / "compile" / "ccache_log")
    env.setdefault(
        "CCACHE_SLOPPINESS", "pch_defines,time_macros,include_file_mtime,include_file_ctime"
    )
    if ctx.compiler.cc:
        env["CC"] = ctx.compiler.cc
    if ctx.onednn:
        env["FETCHCONTENT_SOURCE_DIR_ONEDNN"] = str(ctx.onednn)
    if not ctx.inputs.release.version_override:
        env.pop("VLLM_VERSION_OVERRIDE")
    return env


def search_path(callers: str | None) -> tuple[str, ...]:
    """The system's folders of programs; last those where only the caller has a compiler cache."""
    system = SYSTEM_PATH.split(":")
    found = (shutil.which(name, path=callers or "") for name in COMPILER_CACHES)
    folders = (str(Path(tool).absolute().parent) for tool in found if tool is not None)
    return (*system, *dict.fromkeys(f for f in folders if f not in system))


def cmake_arguments(ctx: Context) -> tuple[str, ...]:
    """What CMake is told beside vLLM's own arguments; none may hold a space."""
    arguments = [f"-DCMAKE_PROJECT_vllm_extensions_INCLUDE={ctx.build / LEAN}"]
    objects = ctx.build / OBJECTS
    arguments.append(f"-DCPUBUILD_ONEDNN_OBJECTS={objects if objects.exists() else ''}")
    return tuple(arguments)


def keep(ctx: Context, dist: Path, *, seconds: float) -> None:
    """Check the wheel's name and move it into the cache; the manifest makes it whole."""
    wheels = sorted(dist.glob("*.whl"))
    wanted = f"vllm-{ctx.inputs.release.version}+cpu-"
    if len(wheels) != 1 or not wheels[0].name.startswith(wanted):
        raise fail(
            ExitCode.COMPILE,
            f"the build left {[w.name for w in wheels]}; one wheel {wanted}*.whl was expected",
            why="without +cpu in its version vLLM does not recognise a CPU build",
            log=ctx.run / "compile" / "log",
        )
    folder = ctx.wheel_folder
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / wheels[0].name
    shutil.move(wheels[0], target)
    jsonio.write(
        folder / "manifest.json",
        {
            "file": target.name,
            "size": target.stat().st_size,
            "sha256": jsonio.sha256_of(target),
            "created": now(),
            "seconds": round(seconds, 1),
            "inputs": dict(ctx.inputs.wheel),
            "patches": (jsonio.read(ctx.build / "patched.json") or {}).get("applied", []),
            "build_packages": (jsonio.read(ctx.buildenv / "complete.json") or {}).get("packages"),
        },
    )
    shutil.rmtree(ctx.build, ignore_errors=True)
