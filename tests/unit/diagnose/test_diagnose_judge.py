from __future__ import annotations

import pytest

from cpubuild.diagnose import diagnose_lines

NINJA = "[12/45] Building CXX object CMakeFiles/_C.dir/csrc/cpu/cpu_attn.cpp.o"
SERVER = "INFO 11-18 13:44:09 [api_server.py:1] vLLM API server version 0.32.0"


def ids(lines: list[str], **given: object) -> list[str]:
    return [c.id for c in diagnose_lines(lines, **given).causes]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lines", "status", "cause"),
    [
        ([NINJA], -9, "oom-compile-host-freeze"),
        ([NINJA], 137, "oom-compile-host-freeze"),
        ([SERVER], 137, "oom-killed-run"),
        (["hello"], 137, "killed-exit-status"),
        ([SERVER], 132, "sigill-prebuilt-avx512"),
        ([SERVER], -4, "sigill-prebuilt-avx512"),
        ([SERVER], 135, "shm-too-small"),
        ([SERVER], 139, "segfault"),
        ([SERVER], -15, "interrupted"),
        ([], 132, "sigill-prebuilt-avx512"),
    ],
)
def test_an_exit_status_is_evidence(lines: list[str], status: int, cause: str) -> None:
    assert ids(lines, exit_status=status)[:1] == [cause]


def test_a_status_makes_sure_what_was_only_possible() -> None:
    line = ["EngineDeadError: EngineCore encountered an issue"]
    assert diagnose_lines(line).causes[0].confidence == "low"
    assert diagnose_lines(line, exit_status=135).causes[0].confidence == "high"


def test_a_wrapper_is_never_a_cause_but_shown_as_following() -> None:
    found = diagnose_lines(
        [
            "ModuleNotFoundError: No module named 'setuptools_rust'",
            "error: subprocess-exited-with-error",
            "ERROR: Failed building wheel for vllm",
        ]
    )
    assert [c.id for c in found.causes] == ["missing-setuptools-rust"]
    assert "wrapper" in {s.id for s in found.causes[0].secondary}


def test_an_earlier_failed_import_explains_a_missing_operator() -> None:
    found = diagnose_lines(
        [
            "WARNING 11-18 13:44:09 [cpu.py:428] Failed to import from vllm._C: "
            "ImportError('/x/vllm/_C.abi3.so: undefined symbol: _ZN3c1013MessageLoggerC1EPKciib')",
            *["noise"] * 500,
            "AttributeError: '_OpNamespace' '_C' object has no attribute 'silu_and_mul'",
        ]
    )
    (cause,) = found.causes
    assert cause.id == "undefined-symbol-c10-abi"
    assert {"c-ops-missing-silu"} <= {s.id for s in cause.secondary}


def test_a_later_cause_does_not_hide_an_unrelated_one() -> None:
    found = ids(
        [
            "/src/x.cpp:1:10: fatal error: numa.h: No such file or directory",
            "OSError: [Errno 98] Address already in use",
        ]
    )
    assert found == ["numa-header-missing", "port-in-use"]


def test_what_healthy_runs_print_too_counts_only_where_nothing_went_well() -> None:
    line = "get_mempolicy: Operation not permitted"
    ready = "INFO:     Application startup complete."
    assert ids([line]) == ["get-mempolicy-eperm"]
    assert ids([line, ready]) == []
    assert ids([line, ready], exit_status=1) == ["get-mempolicy-eperm"]


def test_a_notice_stands_under_a_cause() -> None:
    found = diagnose_lines(
        ["get_mempolicy: Operation not permitted", "OSError: [Errno 98] Address already in use"]
    )
    (cause,) = found.causes
    assert cause.id == "port-in-use"
    assert "get-mempolicy-eperm" in {s.id for s in cause.secondary}


@pytest.mark.parametrize("status", [0, None])
def test_status_zero_silences_all_but_what_stays_wrong(status: int | None) -> None:
    floor = ["X86 backend requires gcc/g++ >= 12.3"]
    wheel = ["ImportError: libcudart.so.12: cannot open shared object file: No such file"]
    assert ids(floor, exit_status=status) == ([] if status == 0 else ["gcc-12-3-floor"])
    assert ids(wheel, exit_status=status) == ["vllm-gpu-wheel-on-cpu"]


def test_an_unknown_failure_is_said_to_be_unknown() -> None:
    found = diagnose_lines(
        [
            "Traceback (most recent call last):",
            '  File "x.py", line 3, in <module>',
            "FrobnicationError: the widget is not aligned",
            "RuntimeError: Engine core initialization failed. See root cause above.",
        ],
        exit_status=1,
    )
    assert found.causes == () or all(c.confidence == "low" for c in found.causes)
    assert found.first_error is not None
    assert found.first_error.text == "FrobnicationError: the widget is not aligned"
    assert found.first_error.line == 3


def test_unknown_says_what_to_collect() -> None:
    found = diagnose_lines(["FrobnicationError: the widget is not aligned"])
    assert found.unknown
    assert found.causes == ()
    assert any("whole log" in text for text in found.collect)


def test_the_first_error_is_the_first_real_one_with_its_message() -> None:
    found = diagnose_lines(
        [
            "#24 61.2 CMake Warning at a.cmake:22 (message):",
            "#24 61.2   library kineto not found.",
            "#24 61.2 CMake Error at b.cmake:7 (message):",
            "#24 61.2   Something nobody has",
            "#24 61.2   seen before.",
            "#24 61.2 ninja: build stopped: subcommand failed.",
        ]
    )
    assert found.first_error is not None
    assert found.first_error.line == 3
    assert found.first_error.text == (
        "CMake Error at b.cmake:7 (message): Something nobody has seen before."
    )


def test_nothing_and_silence_are_healthy() -> None:
    assert diagnose_lines([]).healthy
    assert diagnose_lines(["hello", "world"]).healthy
    assert diagnose_lines([], exit_status=1).unknown


def test_a_release_outside_the_rules_range_lowers_confidence() -> None:
    line = ["vLLM CPU backend requires AVX512 ISA support."]
    assert diagnose_lines(line, release="0.4.0").causes[0].confidence == "high"
    assert diagnose_lines(line, release="0.32.0").causes[0].confidence == "medium"
    assert diagnose_lines(line, release="not a version").causes[0].confidence == "high"


def test_threads_on_one_core_are_told_from_threads_on_several() -> None:
    assert ids(["OMP tid: 1, core 3", "OMP tid: 2, core 3"]) == ["omp-one-core-only"]
    assert ids(["OMP tid: 1, core 3", "OMP tid: 2, core 4"]) == []


def test_an_architecture_rule_is_sure_only_on_its_architecture() -> None:
    line = ["openai.APIError: EngineCore encountered an issue"]
    assert diagnose_lines(line, arch="riscv64").causes[0].confidence == "medium"
    assert diagnose_lines(line, arch="x86_64").causes[0].confidence == "low"


@pytest.mark.parametrize(
    ("line", "phrase"),
    [
        ("x.cpp:1:10: fatal error: openssl/ssl.h: No such file or directory", "openssl/ssl.h"),
        ("CMake 3.31 or higher is required. You are running version 3.20.4", "3.20.4"),
        ("ImportError: libGL.so.1: cannot open shared object file: No such file", "libGL.so.1"),
    ],
)
def test_the_explanation_says_what_the_log_says(line: str, phrase: str) -> None:
    assert phrase in diagnose_lines([line]).causes[0].explanation
