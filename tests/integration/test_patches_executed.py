"""Patched Python and CMake, taken from real sdists and run: the code does what the patch says."""

from __future__ import annotations

import ast
import importlib.metadata
import platform
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .patchcases import copy_of, definition, patched, release_of, run_nodes, source_of
from .sdists import VERSIONS

pytestmark = pytest.mark.integration

SEVERAL_TARGETS = ("0.17.1", "0.20.0", "0.24.0", "0.28.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")
STAND_INS = ("0.31.0", "0.32.0", "0.33.0")


# slot-mapping-stand-in


def kernel_override(tree: Path) -> Any:
    """The tree's own class that stands in for a Triton kernel, without its imports."""
    body = ast.parse((tree / "vllm/triton_utils/dispatcher.py").read_text()).body
    wanted = [n for n in body if getattr(n, "name", "") in ("_kernel_arg_names", "KernelOverride")]
    import inspect
    from collections.abc import Callable

    return run_nodes(wanted, {"inspect": inspect, "Callable": Callable, "Any": Any})[
        "KernelOverride"
    ]


def stand_ins(tree: Path, torch: object, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What cpu_triton_utils.py of the tree defines, with ``torch`` as its torch."""
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    path = tree / "vllm/utils/cpu_triton_utils.py"
    names: dict[str, Any] = {"__name__": "cpu_triton_utils"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names


def kernel_parameters(version: str, name: str) -> tuple[str, ...]:
    """The parameters of a Triton kernel by its dotted name, read from the sdist."""
    module, _, attribute = name.rpartition(".")
    parts = module.split(".")
    within = parts.pop() if parts[-1][0].isupper() else None
    path = source_of(version) / ("/".join(parts) + ".py")
    return tuple(a.arg for a in definition(path, attribute, within=within).args.args)


def registered(version: str) -> dict[str, str]:
    """The kernels that the CPU platform replaces, and the stand-in of each."""
    text = (source_of(version) / "vllm/platforms/cpu.py").read_text()
    return dict(re.findall(r'"(vllm\.[\w.]+)": \(\s*cpu_tl\.(\w+)', text))


def launch(tree: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], Any]:
    """Launch the slot-mapping kernel as the tree does; the operator's arguments and the values."""
    calls: list[Any] = []
    torch = MagicMock()
    torch.ops._C.compute_slot_mapping_kernel_impl = lambda *given: calls.append(given)
    kernel = "vllm.v1.worker.block_table.ComputeSlotMappingKernel.kernel"
    parameters = kernel_parameters(version, kernel)
    values: dict[str, Any] = {name: f"<{name}>" for name in parameters}
    values |= {"TOTAL_CP_WORLD_SIZE": 1, "TOTAL_CP_RANK": 0, "CP_KV_CACHE_INTERLEAVE_SIZE": 1}
    values |= {"KV_CACHE_BLOCK_SIZE": 128}
    if "BLOCKS_PER_KV_BLOCK" in values:
        values |= {"BLOCKS_PER_KV_BLOCK": 1, "block_size": 128}
    impl = stand_ins(tree, torch, monkeypatch)[registered(version)[kernel]]
    placeholder = types.SimpleNamespace(arg_names=parameters)
    kernel_override(tree)(placeholder, impl)[(2,)](**values)
    return calls, values


@pytest.mark.parametrize("version", STAND_INS)
def test_the_stand_in_hands_the_operator_the_kernels_own_arguments(version, tmp_path, monkeypatch):
    if version == "0.32.0":
        tree = patched(version, tmp_path / "tree", "slot-mapping-stand-in")
    else:
        tree = copy_of(version, tmp_path / "tree")
    calls, values = launch(tree, version, monkeypatch)
    names = ("query_start_loc_ptr", "positions_ptr", "block_table_ptr", "slot_mapping_ptr")
    assert calls == [(*(values[name] for name in names), 128)]


def test_the_stand_in_of_0_32_fails_without_the_patch(tmp_path, monkeypatch):
    tree = copy_of("0.32.0", tmp_path / "tree")
    with pytest.raises(AssertionError):
        launch(tree, "0.32.0", monkeypatch)


@pytest.mark.parametrize("version", STAND_INS)
def test_every_stand_in_takes_its_kernels_parameters(version, tmp_path, monkeypatch):
    if version == "0.32.0":
        tree = patched(version, tmp_path / "tree", "slot-mapping-stand-in")
    else:
        tree = copy_of(version, tmp_path / "tree")
    names = stand_ins(tree, MagicMock(), monkeypatch)
    assert len(registered(version)) >= 10
    for kernel, stand_in in registered(version).items():
        parameters = kernel_parameters(version, kernel)
        code = names[stand_in].__code__
        own = code.co_varnames[: code.co_argcount]
        required = code.co_argcount - len(names[stand_in].__defaults__ or ())
        assert required <= len(parameters) <= len(own), kernel
        for theirs, ours in zip(parameters, own, strict=False):
            short = {theirs.removesuffix("_ptr").lower(), ours.removesuffix("_ptr").lower()}
            assert len(short) == 1 or any(
                a.startswith(b) or a.endswith(b) for a in short for b in short if a != b
            ), f"{kernel}: {theirs} lands in {ours}"


# platform-cpu-detection, platform-cpu-statement


class NVMLError(Exception):
    """What pynvml raises where there is no NVIDIA driver."""


def nvml(devices: int) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: devices,
        nvmlShutdown=lambda: None,
    )


@pytest.fixture
def platform_of(monkeypatch):
    """A function: the platform that a tree's vllm.platforms finds, in a world of stubs."""

    def find(tree: Path, *, version: str | None, gpus: int) -> str:
        def answer(name: str) -> str:
            assert name == "vllm"
            if version is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return version

        def import_pynvml() -> object:
            if not gpus:
                raise NVMLError
            return nvml(gpus)

        monkeypatch.setattr(importlib.metadata, "version", answer)
        for absent in ("torch", "libtpu", "amdsmi", "zentorch", "habana_frameworks"):
            monkeypatch.setitem(sys.modules, absent, None)
        monkeypatch.setitem(sys.modules, "pynvml", nvml(gpus) if gpus else None)
        envs = types.SimpleNamespace(VLLM_TARGET_DEVICE="cuda", VLLM_TPU_USING_PATHWAYS=False)
        helpers = types.SimpleNamespace(
            load_plugins_by_group=lambda group: {},
            PLATFORM_PLUGINS_GROUP="platforms",
            resolve_obj_by_qualname=lambda name: lambda: name,
            import_pynvml=import_pynvml,
            supports_xccl=lambda: False,
            envs=envs,
        )
        interface = MagicMock()
        interface.UnspecifiedPlatform = lambda: "UnspecifiedPlatform"
        interface.in_wsl = lambda: False
        packages = ("vllm", "vllm.plugins", "vllm.utils")
        modules = ("vllm.utils.import_utils", "vllm.utils.torch_utils")
        stubs: dict[str, object] = dict.fromkeys((*packages, *modules), helpers)
        stubs |= {"vllm.platforms": types.ModuleType("vllm.platforms")}
        stubs |= {"vllm.platforms.interface": interface}
        for kind, cls in (("cuda", "CudaPlatform"), ("cpu", "CpuPlatform")):
            stub = types.SimpleNamespace(**{cls: lambda cls=cls: cls})
            stubs[f"vllm.platforms.{kind}"] = stub
        for name, stub in stubs.items():
            monkeypatch.setitem(sys.modules, name, stub)
        path = tree / "vllm/platforms/__init__.py"
        names: dict[str, Any] = {"__name__": "vllm.platforms", "__package__": "vllm.platforms"}
        exec(compile(path.read_text(), str(path), "exec"), names)
        if "resolve_current_platform_cls_qualname" in names:
            return str(names["resolve_current_platform_cls_qualname"]()).rpartition(".")[2]
        return str(names["current_platform"])

    return find


@pytest.mark.parametrize(
    ("version", "gpus", "before", "after"),
    [
        ("0.6.3.post1+cpu", 1, "CudaPlatform", "CpuPlatform"),
        ("0.6.3.post1+cpu", 0, "CpuPlatform", "CpuPlatform"),
        ("0.6.3.post1", 1, "CudaPlatform", "CudaPlatform"),
        ("0.6.3.post1", 0, "UnspecifiedPlatform", "UnspecifiedPlatform"),
    ],
)
def test_a_cpu_build_of_0_6_stays_on_the_cpu(tmp_path, platform_of, version, gpus, before, after):
    plain = copy_of("0.6.3.post1", tmp_path / "plain")
    assert platform_of(plain, version=version, gpus=gpus) == before
    tree = patched("0.6.3.post1", tmp_path / "tree", "platform-cpu-detection")
    assert platform_of(tree, version=version, gpus=gpus) == after


@pytest.mark.parametrize("release", [v for v in VERSIONS if v != "0.6.3.post1"])
def test_a_package_that_states_it_is_recognised_whatever_its_metadata(
    tmp_path, platform_of, release
):
    plain = copy_of(release, tmp_path / "plain")
    assert platform_of(plain, version=None, gpus=0) == "UnspecifiedPlatform"
    assert platform_of(plain, version=release, gpus=1) == "CudaPlatform"
    assert platform_of(plain, version=f"{release}+cpu", gpus=1) == "CpuPlatform"
    tree = patched(release, tmp_path / "tree", "platform-cpu-statement")
    for version in (None, release, f"{release}+cpu"):
        for gpus in (0, 1):
            assert platform_of(tree, version=version, gpus=gpus) == "CpuPlatform"


def test_the_two_platform_patches_of_0_6_work_together(tmp_path, platform_of):
    from cpubuild import patching

    from .patchcases import debian_12

    tree = copy_of("0.6.3.post1", tmp_path / "tree")
    chosen = patching.select(release_of("0.6.3.post1"), debian_12(), phase="installed")
    patching.apply(tree, chosen)
    assert platform_of(tree, version="0.6.3.post1", gpus=1) == "CpuPlatform"


# cpu-version-suffix


@pytest.mark.parametrize("release", ["0.9.2", "0.11.2", "0.14.1", "0.17.1"])
def test_a_cpu_host_gets_the_suffix_without_the_variable(tmp_path, release):
    def version_of(tree: Path) -> object:
        asked = ("cuda", "hip", "neuron", "hpu", "tpu", "xpu")
        names: dict[str, Any] = {f"_is_{kind}": lambda: False for kind in asked}
        names |= {
            "os": types.SimpleNamespace(getenv=lambda name: None, environ={}),
            "envs": types.SimpleNamespace(VLLM_TARGET_DEVICE="cuda"),
            "VLLM_TARGET_DEVICE": "cpu",
            "_no_device": lambda: False,
            "_is_cpu": lambda: True,
            "get_version": lambda **given: release,
        }
        function = definition(tree / "setup.py", "get_vllm_version")
        return run_nodes([function], names)["get_vllm_version"]()  # type: ignore[operator]

    assert version_of(copy_of(release, tmp_path / "plain")) == release
    tree = patched(release, tmp_path / "tree", "cpu-version-suffix")
    assert version_of(tree) == f"{release}+cpu"


# async-output-check


@pytest.mark.parametrize(
    ("is_cpu", "device", "kept"), [(True, "cuda", False), (False, "cuda", True)]
)
def test_0_6_asks_the_platform_about_async_output(tmp_path, is_cpu, device, kept):
    tree = patched("0.6.3.post1", tmp_path / "tree", "async-output-check")
    function = definition(tree / "vllm/config.py", "verify_async_output_proc", within="ModelConfig")
    names: dict[str, Any] = {
        "logger": MagicMock(),
        "envs": types.SimpleNamespace(VLLM_USE_RAY_SPMD_WORKER=False),
        "current_platform": types.SimpleNamespace(is_cpu=lambda: is_cpu),
    }
    config = types.SimpleNamespace(
        use_async_output_proc=True, enforce_eager=False, embedding_mode=False
    )
    run_nodes([function], names)["verify_async_output_proc"](  # type: ignore[operator]
        config,
        types.SimpleNamespace(pipeline_parallel_size=1),
        None,
        types.SimpleNamespace(device_type=device),
    )
    assert config.use_async_output_proc is kept


def test_0_9_answers_no_for_a_platform_that_did_not_say(tmp_path):
    def answer(tree: Path) -> object:
        path = tree / "vllm/platforms/interface.py"
        function = definition(path, "is_async_output_supported", within="Platform")
        return run_nodes([function], {})["is_async_output_supported"](None, True)  # type: ignore[operator]

    with pytest.raises(NotImplementedError):
        answer(copy_of("0.9.2", tmp_path / "plain"))
    assert answer(patched("0.9.2", tmp_path / "tree", "async-output-check")) is False


# host-target-only


def extensions(tree: Path, machine: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The extensions setup.py of the tree lists for a CPU build on ``machine``."""
    monkeypatch.setattr(platform, "machine", lambda: machine)
    body = ast.parse((tree / "setup.py").read_text()).body
    start = next(i for i, n in enumerate(body) if ast.unparse(n) == "ext_modules = []")
    end = next(i for i, n in enumerate(body) if ast.unparse(n).startswith("package_data ="))
    kinds = ("cuda", "hip", "xpu", "tpu")
    names: dict[str, Any] = {f"_is_{kind}": lambda: False for kind in kinds}
    names |= {
        "_is_cpu": lambda: True,
        "_build_custom_ops": lambda: False,
        "sys": sys,
        "CMakeExtension": lambda name, **rest: name,
    }
    return run_nodes(body[start:end], names)["ext_modules"]  # type: ignore[return-value]


@pytest.mark.parametrize("version", SEVERAL_TARGETS)
def test_setup_lists_the_hosts_extension_alone(version, tmp_path, monkeypatch):
    plain = copy_of(version, tmp_path / "plain")
    targets = release_of(version).targets
    everywhere = extensions(plain, "aarch64", monkeypatch)
    common = [name for name in everywhere if name != "vllm._C"]
    assert extensions(plain, "x86_64", monkeypatch) == [*common, *(f"vllm.{t}" for t in targets)]
    for target in targets:
        name = "host-target-only"
        tree = patched(version, tmp_path / target, name, x86_target=target)
        assert extensions(tree, "x86_64", monkeypatch) == [*common, f"vllm.{target}"]
        assert extensions(tree, "aarch64", monkeypatch) == everywhere


@pytest.mark.parametrize("version", ["0.17.1", "0.33.0"])
def test_cmake_leaves_the_other_targets_out_of_all(version, tmp_path):
    tree = patched(version, tmp_path / "tree", "host-target-only")
    added = (tree / "cmake/cpu_extension.cmake").read_text()
    added = added.removeprefix((source_of(version) / "cmake/cpu_extension.cmake").read_text())
    targets = release_of(version).targets
    project = tmp_path / "project"
    project.mkdir()
    lines = ["cmake_minimum_required(VERSION 3.18)", "project(x NONE)"]
    lines += [f"add_custom_target({target})" for target in targets]
    lines += [added, "foreach(t " + " ".join(targets) + ")"]
    lines += ["get_target_property(out ${t} EXCLUDE_FROM_ALL)", 'message("${t}=${out}")']
    lines += ["endforeach()"]
    (project / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
    told = cmake(["-S", str(project), "-B", str(project / "b")]).stderr
    assert [f"{t}=ON" in told for t in targets] == [t != "_C" for t in targets]


# compiler-floor


def cmake(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "cmake"
    argv = [str(program), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("version", SEVERAL_TARGETS)
def test_cmake_accepts_the_probed_compiler_and_no_older_one(version, tmp_path):
    def accepts(tree: Path, compiler: str) -> bool:
        text = (tree / "cmake/cpu_extension.cmake").read_text()
        block = re.search(r"(?ms)^    if \(NOT \(CMAKE_CXX_COMPILER_ID.*?^    endif\(\)$", text)
        assert block is not None
        script = tmp_path / "check.cmake"
        script.write_text(
            f"set(CMAKE_CXX_COMPILER_ID GNU)\nset(CMAKE_CXX_COMPILER_VERSION {compiler})\n"
            f"{block[0]}\n"
        )
        return cmake(["-P", str(script)]).returncode == 0

    plain = copy_of(version, tmp_path / "plain")
    assert [accepts(plain, v) for v in ("12.3.0", "12.2.0")] == [True, False]
    tree = patched(version, tmp_path / "tree", "compiler-floor")
    assert [accepts(tree, v) for v in ("12.3.0", "12.2.0", "12.1.0")] == [True, True, False]


@pytest.mark.parametrize("version", ["0.6.3.post1", "0.9.2", "0.11.2", "0.14.1"])
def test_older_releases_let_every_instruction_set_in(version, tmp_path):
    plain = (source_of(version) / "cmake/cpu_extension.cmake").read_text()
    tree = patched(version, tmp_path / "tree", "compiler-floor")
    text = (tree / "cmake/cpu_extension.cmake").read_text()
    count = plain.count("VERSION_GREATER_EQUAL 12.3")
    assert count >= 1
    assert text.count("VERSION_GREATER_EQUAL 12.2.0") == count
    assert "VERSION_GREATER_EQUAL 12.3" not in text


# requirement-profile


def install_requires(tree: Path) -> list[Requirement]:
    """What setup.py of the tree would write into a CPU wheel's metadata."""
    kinds = ("cuda", "hip", "neuron", "openvino", "hpu", "tpu", "xpu")
    names: dict[str, Any] = {f"_is_{kind}": lambda: False for kind in kinds}
    names |= {
        "List": list,
        "ROOT_DIR": tree,
        "_no_device": lambda: False,
        "_is_cpu": lambda: True,
        "get_path": lambda name: str(tree / name),
    }
    function = definition(tree / "setup.py", "get_requirements")
    listed = run_nodes([function], names)["get_requirements"]()  # type: ignore[operator]
    bare = (line.partition(" #")[0].strip() for line in listed)
    return [Requirement(line) for line in bare if line and not line.startswith("#")]


def project(requirement: Requirement) -> str:
    return canonicalize_name(requirement.name)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_metadata_asks_what_text_generation_needs(version, tmp_path):
    plain = install_requires(copy_of(version, tmp_path / "plain"))
    tree = patched(version, tmp_path / "tree", "requirement-profile")
    asked = install_requires(tree)
    dropped = {"torchaudio", "torchvision", "torchcodec"}
    kept = [r for r in plain if project(r) not in dropped and r.url is None]
    assert [str(r) for r in asked] == [str(r) for r in kept]
    assert len(asked) < len(plain)
    names = {project(r) for r in asked}
    assert {"torch", "transformers"} <= names
    assert ("intel-openmp" in names) is ("intel-openmp" in {project(r) for r in plain})


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0", "0.33.0"])
def test_the_full_profile_gives_up_triton_by_url_only(version, tmp_path):
    plain = install_requires(copy_of(version, tmp_path / "plain"))
    tree = patched(version, tmp_path / "tree", "requirement-profile", profile="full")
    assert [str(r) for r in install_requires(tree)] == [str(r) for r in plain if r.url is None]
