"""The kernels, judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cpubuild.verify import elf, kernels, knowledge, library

ALL = (("amx_bf16", 500), ("avx512_bf16", 900), ("avx512_vnni", 300), ("avx512", 80000))
FLAGS = frozenset({"amx_bf16", "avx512_bf16", "avx512_vnni", "avx512f", "avx2"})
ISAS = frozenset({"avx512", "avx512bf16"})


def linkage(**changed: Any) -> elf.Linkage:
    given: dict[str, Any] = {
        "path": "/env/vllm/_C.abi3.so",
        "needed": (
            ("libnuma.so.1", "/lib/libnuma.so.1"),
            ("libtorch_cpu.so", "/t/libtorch_cpu.so"),
        ),
        "undefined": (),
        "versions": (("GLIBC", "GLIBC_2.34"),),
        "missing_versions": (),
    }
    return elf.Linkage(**(given | changed))


def static(instructions: Any = ALL, **changed: Any) -> library.Static:
    return library.Static(
        path=Path("/env/vllm/_C.abi3.so"), linkage=linkage(**changed), instructions=instructions
    )


@pytest.fixture
def full(kernels_doc: dict[str, Any]) -> dict[str, Any]:
    expected = knowledge.expected_operators("0.32.0", ISAS)
    assert expected is not None
    kernels_doc["operators"] = sorted(expected.names)
    return kernels_doc


def judge(doc: dict[str, Any], made: library.Static | None = None, **given: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"flags": FLAGS, "version": "0.32.0+cpu", "torch": "2.13.0+cpu"}
    checks = kernels.judge(doc, static=made or static(), **(options | given))
    return {c.id.partition(".")[2]: c for c in checks}


def test_a_healthy_build_passes_everything(full: dict[str, Any]) -> None:
    assert {c.status for c in judge(full).values()} == {"pass"}
    answer = kernels.answer(full, static())
    assert answer.library == "_C.abi3.so"
    assert answer.isa == "amx_bf16+avx512_bf16+avx512_vnni+avx512"


def test_an_import_that_failed_is_the_answer(full: dict[str, Any]) -> None:
    full.update(mapped=[], operators=[])
    full["loader"]["warnings"] = ["Failed to import from vllm._C: ImportError('libnuma.so.1')"]
    made = static(needed=(("libnuma.so.1", None),))
    checks = judge(full, made)
    check = checks["library"]
    assert check.status == "fail"
    assert "libnuma.so.1" in check.summary
    assert "libnuma1" in check.remedy[0]
    assert {checks[n].status for n in ("operators", "arithmetic")} == {"skip"}
    assert kernels.answer(full, made).library is None


def test_missing_operators_fail(full: dict[str, Any]) -> None:
    full["operators"].remove("_C::cpu_attention_with_kv_cache")
    check = judge(full)["operators"]
    assert check.status == "fail"
    assert "_C::cpu_attention_with_kv_cache" in check.summary


def test_operators_of_a_narrower_library_are_not_asked_of_it(full: dict[str, Any]) -> None:
    expected = knowledge.expected_operators("0.32.0", frozenset())
    assert expected is not None
    full["operators"] = sorted(expected.names)
    full["mapped"] = ["/env/vllm/_C_AVX2.abi3.so"]
    assert judge(full)["operators"].status == "pass"


def test_a_library_compiled_without_bf16_is_not_asked_for_its_operators(
    full: dict[str, Any],
) -> None:
    expected = knowledge.expected_operators("0.32.0", frozenset({"avx512"}))
    assert expected is not None
    full["operators"] = sorted(expected.names)
    made = static((("amx_bf16", 0), ("avx512_bf16", 0), ("avx512_vnni", 0), ("avx512", 9000)))
    checks = judge(full, made)
    assert checks["operators"].status == "pass"
    assert checks["isa_unused"].status == "warn"
    assert "avx512_bf16" in checks["isa_unused"].summary


def test_instructions_the_cpu_lacks_are_said(full: dict[str, Any]) -> None:
    check = judge(full, flags=frozenset({"avx2", "avx512f"}))["isa_unused"]
    assert check.status == "warn"
    assert "lacks" in check.summary


def test_an_unknown_release_between_two_known_ones_only_warns() -> None:
    between = knowledge.expected_operators("0.31.5", ISAS)
    assert between is not None
    assert not between.exact
    older = knowledge.expected_operators("0.31.0", ISAS)
    assert older is not None
    assert between.names <= older.names


@pytest.mark.parametrize("version", ["", "nonsense", "0.1.0"])
def test_no_expectation_for_what_cannot_be_read(version: str) -> None:
    assert knowledge.expected_operators(version, ISAS) is None


def test_newer_than_all_known_expects_what_the_newest_has() -> None:
    newest = knowledge.expected_operators("9.0", ISAS)
    assert newest is not None
    assert "_C::rms_norm" in newest.names
    assert not newest.exact


@pytest.mark.parametrize("difference", [0.5, "nan", float("inf")])
def test_a_wrong_result_fails(full: dict[str, Any], difference: object) -> None:
    full["arithmetic"][0]["difference"] = difference
    check = judge(full)["arithmetic"]
    assert check.status == "fail"
    assert "rms_norm float32" in check.summary


def test_an_operator_with_another_signature_is_not_a_pass(full: dict[str, Any]) -> None:
    full["arithmetic"] = [
        {
            "operator": "rms_norm",
            "type": "float32",
            "error": "RuntimeError: schema",
            "difference": 0,
        }
    ]
    assert judge(full)["arithmetic"].status == "unknown"


def test_undefined_symbols_name_torch(full: dict[str, Any]) -> None:
    check = judge(full, static(undefined=("_ZN3c104impl",)))["symbols"]
    assert check.status == "fail"
    assert "_ZN3c104impl" in check.summary
    assert "2.13.0+cpu" in check.summary


def test_a_missing_library_names_its_package(full: dict[str, Any]) -> None:
    check = judge(full, static(needed=(("libnuma.so.1", None),)))["symbols"]
    assert check.status == "fail"
    assert "libnuma1" in check.remedy[0]


def test_a_too_old_libc_is_said(full: dict[str, Any]) -> None:
    check = judge(full, static(missing_versions=("GLIBC_2.38",)))["symbols"]
    assert check.status == "fail"
    assert "GLIBC_2.38" in check.summary


def test_two_openmp_runtimes_fail(full: dict[str, Any]) -> None:
    full["watched"].append("/opt/libiomp5.so")
    assert judge(full)["openmp"].status == "fail"


def test_numa_without_permission_warns_and_without_library_fails(full: dict[str, Any]) -> None:
    full["numa"]["available"] = False
    assert judge(full)["numa"].status == "warn"
    full["numa"] = {"loads": False, "available": None, "error": "libnuma.so.1: cannot open"}
    assert judge(full)["numa"].status == "fail"


def test_tcmalloc_and_triton(full: dict[str, Any]) -> None:
    full["bundled"] = []
    full["triton"] = {"version": "3.9.0", "cpu_backend": False, "used": False}
    checks = judge(full)
    assert checks["tcmalloc"].status == "warn"
    assert checks["triton"].status == "warn"


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (FLAGS, "_C.abi3.so"),
        (frozenset({"avx2", "avx512f"}), "_C_AVX512.abi3.so"),
        (frozenset({"avx2"}), "_C_AVX2.abi3.so"),
    ],
)
def test_the_library_to_read_is_the_one_the_loader_takes(
    tmp_path: Path, flags: frozenset[str], name: str
) -> None:
    for file in ("_C.abi3.so", "_C_AVX2.abi3.so", "_C_AVX512.abi3.so", "spinloop.abi3.so"):
        (tmp_path / file).touch()
    found = library.candidate(tmp_path, flags)
    assert found is not None
    assert found.name == name


def test_a_file_that_is_no_library_is_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "_C.abi3.so"
    path.write_bytes(b"not an ELF file")
    made = library.read_static(path, None, "x86_64")
    assert made.linkage is None
    assert kernels.symbols(made, "2.13.0").status == "fail"


def test_instruction_patterns_know_their_encodings() -> None:
    # tdpbf16ps tmm0,tmm1,tmm2; vdpbf16ps zmm1,zmm2,zmm3; vpdpbusd zmm1,zmm2,zmm3
    code = {
        "amx_bf16": bytes.fromhex("c4e26a5cc1"),
        "avx512_bf16": bytes.fromhex("62f26e4852cb"),
        "avx512_vnni": bytes.fromhex("62f26d4850cb"),
        "avx512": bytes.fromhex("62f26d4850cb"),
    }
    for row in knowledge.table()["instructions"]:
        assert elf.count(code[row["isa"]] * 3, row["pattern"]) == 3, row["isa"]
    rows = {row["isa"]: row["pattern"] for row in knowledge.table()["instructions"]}
    assert elf.count(code["avx512_vnni"] * 3, rows["avx512_bf16"]) == 0
    assert elf.count(bytes.fromhex("c5fc58c1") * 3, rows["amx_bf16"]) == 0
