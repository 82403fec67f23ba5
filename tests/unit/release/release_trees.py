"""Small source trees in the shape of a vLLM release, written anew for each test."""

from __future__ import annotations

from pathlib import Path

EXTENSION = """
include(FetchContent)
set(CMAKE_CXX_STANDARD 20)
if (${CMAKE_SYSTEM_NAME} MATCHES "Darwin")
    set(MACOSX_FOUND TRUE)
endif()
set(ENABLE_X86_ISA $ENV{VLLM_CPU_X86})
function (find_isa CPUINFO TARGET OUT)
    string(FIND ${CPUINFO} ${TARGET} ISA_FOUND)
    if(NOT ISA_FOUND EQUAL -1)
        set(${OUT} ON PARENT_SCOPE)
    endif()
endfunction()
if (MACOSX_FOUND AND CMAKE_SYSTEM_PROCESSOR STREQUAL "arm64")
    set(APPLE_SILICON_FOUND TRUE)
else()
    find_isa(${CPUINFO} "asimd" ASIMD_FOUND) # NEON
    find_isa(${CPUINFO} "bf16" ARM_BF16_FOUND)
endif()
if (CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64" OR ENABLE_X86_ISA)
    set(ENABLE_X86_ISA ON)
    if (NOT (CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND
             CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12.3))
        message(FATAL_ERROR "a newer gcc is needed")
    endif()
    if (CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 15)
        list(APPEND CXX_COMPILE_FLAGS "-fno-tree-pre")
    endif()
elseif (ASIMD_FOUND)
    message(STATUS "ARMv8")
else()
    message(FATAL_ERROR "no such CPU")
endif()
set(FETCHCONTENT_SOURCE_DIR_ONEDNN "$ENV{FETCHCONTENT_SOURCE_DIR_ONEDNN}" CACHE PATH "local")
if(FETCHCONTENT_SOURCE_DIR_ONEDNN)
    FetchContent_Declare(oneDNN SOURCE_DIR ${FETCHCONTENT_SOURCE_DIR_ONEDNN})
elseif(ASIMD_FOUND AND NOT APPLE_SILICON_FOUND)
    FetchContent_Declare(oneDNN GIT_REPOSITORY https://github.com/o/o.git GIT_TAG 9c5be1c)
else()
    FetchContent_Declare(
        oneDNN
        GIT_REPOSITORY https://github.com/o/o.git
        GIT_TAG v3.13 # keep
    )
endif()
FetchContent_MakeAvailable(oneDNN)
if (ENABLE_X86_ISA)
    define_extension_target(_C DESTINATION vllm LANGUAGE CXX)
    define_extension_target(_C_AVX2 DESTINATION vllm LANGUAGE CXX)
else()
    define_extension_target(_C DESTINATION vllm LANGUAGE CXX)
endif()
"""

FILES = {
    "PKG-INFO": "Metadata-Version: 2.4\nName: vllm\nVersion: 1.2.3\n\nVersion: 9 in the text\n",
    "requirements/cpu.txt": """\
# the rest
-r common.txt
torch==2.13.0+cpu; platform_machine == "x86_64" # with a reason
torch==2.13.0; platform_system == "Darwin" or platform_machine == "aarch64"
torchvision; platform_machine != "riscv64"
triton @ https://github.com/t/311.whl ; platform_machine == "x86_64" and python_version == "3.11"
triton @ https://github.com/t/312.whl ; platform_machine == "x86_64" and python_version >= "3.12"
""",
    "requirements/common.txt": "numpy\nsix>=1.16; python_version > '3.11'\n",
    "requirements/build/cpu.txt": """\
--extra-index-url https://download.pytorch.org/whl/cpu
cmake>=3.26
setuptools==78.1.1
torch==2.13.0+cpu; platform_machine == "x86_64"
scons; platform_machine == "aarch64"
tomli; python_version < "3.12"
""",
    "pyproject.toml": """\
[build-system]
requires = ["cmake>=3.26", "torch == 2.13.0"]
[project]
name = "vllm"
requires-python = ">=3.11,<3.15"
""",
    "setup.py": """\
import os
from setuptools import setup
from setuptools_rust import RustExtension
override = os.getenv("VLLM_VERSION_OVERRIDE")
arguments = os.environ.get("CMAKE_ARGS")
setup(name="vllm")
""",
    "CMakeLists.txt": 'set(PYTHON_SUPPORTED_VERSIONS "3.11" "3.12" "3.13" "3.14")\n',
    "cmake/utils.cmake": "function(define_extension_target NAME)\nendfunction()\n",
    "cmake/cpu_extension.cmake": EXTENSION,
    "vllm/platforms/__init__.py": """\
def matches(part):
    return part in version("vllm")
def cuda_platform_plugin():
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetCount() > 0 and not vllm_version_matches_substr("cpu")
def cpu_platform_plugin():
    return envs.VLLM_TARGET_DEVICE == "cpu" or vllm_version_matches_substr("cpu")
""",
    "vllm/platforms/cpu.py": """\
class CpuPlatform:
    control: str = "VLLM_BY_CONSTANT"
    def nodes(self):
        key = CpuPlatform.control
        return os.environ[key] if key in os.environ else ""
""",
    "vllm/envs.py": """\
more = {"VLLM_MORE": lambda: 1}
environment_variables: dict = {"VLLM_TARGET_DEVICE": lambda: 1, **more}
""",
    "vllm/engine/arg_utils.py": "class EngineArgs:\n    kv_cache_memory_bytes: int | None = None\n",
    "rust/Cargo.toml": "[workspace]\n",
    "rust-toolchain.toml": '[toolchain]\nchannel = "1.95"\n',
}


def make_tree(folder: Path, **changes: str | None) -> Path:
    """Write a tree into ``folder``; a change replaces a file (None: leaves it out).

    A change is named by the file's path with ``/``, ``-`` and ``.`` written as ``_``.
    """
    by_key = {_key(name): name for name in FILES}
    contents: dict[str, str | None] = dict(FILES)
    contents.update({by_key[key]: text for key, text in changes.items()})
    for name, text in contents.items():
        if text is not None:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return folder


def _key(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)
