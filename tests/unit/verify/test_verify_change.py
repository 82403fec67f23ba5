"""What has changed since the receipt."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cpubuild.verify import change, words
from cpubuild.verify.change import Host
from cpubuild.verify.model import Smoke, Speed

NOW = Host(
    arch="x86_64",
    model="Xeon",
    flags=frozenset({"amx_bf16", "avx2", "avx512f"}),
    logical=2,
    kernel="6.1.0",
    libc="glibc 2.36",
    libnuma="/usr/lib/libnuma.so.1",
)
INSTALLED = [["numpy", "2.2.0"], ["torch", "2.13.0+cpu"], ["vllm", "0.32.0+cpu"]]
SMOKE = Smoke(
    tokens=5,
    seconds=0.4,
    asked="q" * 64,
    digest="d" * 64,
    speed=Speed(tokens=1000, runs=(1.0, 1.03, 1.1), cpus=2, others=0.02),
)


def test_without_a_receipt_nothing_is_compared() -> None:
    checks = [
        change.host(None, NOW),
        change.packages(None, INSTALLED),
        change.answers(None, SMOKE),
        change.speed(None, SMOKE),
    ]
    assert {c.status for c in checks} == {"skip"}


def test_a_receipt_that_does_not_say_is_unknown() -> None:
    checks = [
        change.host({}, NOW),
        change.packages({}, INSTALLED),
        change.answers({}, SMOKE),
        change.speed({"verify": {"smoke": None}}, SMOKE),
    ]
    assert {c.status for c in checks} == {"unknown"}


def test_the_same_is_a_pass(receipt_doc: dict[str, Any]) -> None:
    checks = [
        change.host(receipt_doc, NOW),
        change.packages(receipt_doc, INSTALLED),
        change.library(receipt_doc, [("_C.abi3.so", "a" * 64)], {}),
        change.answers(receipt_doc, SMOKE),
        change.speed(receipt_doc, SMOKE),
    ]
    assert {c.status for c in checks} == {"pass"}


@pytest.mark.parametrize(
    ("now", "status", "said"),
    [
        (replace(NOW, kernel="6.2.0"), "warn", "kernel 6.1.0, now 6.2.0"),
        (replace(NOW, libc="glibc 2.39"), "warn", "C library glibc 2.36, now glibc 2.39"),
        (replace(NOW, libc="glibc 2.4"), "fail", "C library glibc 2.36, now glibc 2.4"),
        (replace(NOW, flags=NOW.flags - {"amx_bf16"}), "warn", "CPU flags gone: amx_bf16"),
        (replace(NOW, flags=NOW.flags | {"sse9"}), "warn", "CPU flags new: sse9"),
        (replace(NOW, model="Epyc"), "warn", "CPU Xeon, now Epyc"),
        (replace(NOW, logical=4), "warn", "number of CPUs 2, now 4"),
        (replace(NOW, libnuma="/opt/libnuma.so.1"), "warn", "now /opt/libnuma.so.1"),
        (replace(NOW, libnuma=None), "fail", "libnuma /usr/lib/libnuma.so.1, now not there"),
        (replace(NOW, arch="aarch64"), "fail", "architecture x86_64, now aarch64"),
    ],
)
def test_each_difference_of_the_host_is_said(
    receipt_doc: dict[str, Any], now: Host, status: str, said: str
) -> None:
    check = change.host(receipt_doc, now)
    assert (check.status, check.summary) == (status, check.summary)
    assert said in check.summary
    assert check.remedy


def test_a_missing_libnuma_names_its_package(receipt_doc: dict[str, Any]) -> None:
    assert "libnuma1" in change.host(receipt_doc, replace(NOW, libnuma=None)).remedy[0]


def test_many_flags_are_shortened(receipt_doc: dict[str, Any]) -> None:
    flags = NOW.flags | {f"new{n}" for n in range(20)}
    assert "and 12 more" in change.host(receipt_doc, replace(NOW, flags=flags)).summary


@pytest.mark.parametrize(
    ("installed", "status", "said"),
    [
        ([*INSTALLED, ["pytest", "9"]], "warn", "1 new: pytest"),
        ([["numpy", "2.3.0"], *INSTALLED[1:]], "warn", "1 of other versions"),
        (INSTALLED[1:], "warn", "1 gone"),
        ([["torch", "2.12.0+cpu"], INSTALLED[0], INSTALLED[2]], "fail", "torch 2.13.0+cpu, now"),
        ([*INSTALLED[:2], ["vllm", "0.33.0+cpu"]], "fail", "vllm 0.32.0+cpu, now 0.33.0+cpu"),
        (INSTALLED[:2], "fail", "vllm 0.32.0+cpu, now not there"),
    ],
)
def test_packages_are_compared_by_name_and_version(
    receipt_doc: dict[str, Any], installed: list[list[str]], status: str, said: str
) -> None:
    check = change.packages(receipt_doc, installed)
    assert check.status == status
    assert said in check.summary


def test_names_are_compared_in_their_normal_form() -> None:
    receipt = {"packages": ["Some_Package==1.0", "other @ git+https://example.org/x"]}
    assert change.packages(receipt, [["some-package", "1.0"], ["other", "3"]]).status == "pass"


def record(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(bytes.fromhex(text)).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("files", "status", "said"),
    [
        ([("_C.abi3.so", "b" * 64)], "fail", "_C.abi3.so is another file"),
        ([], "fail", "_C.abi3.so is gone"),
        ([("_C.abi3.so", "a" * 64), ("x.so", "c" * 64)], "warn", "x.so is new"),
    ],
)
def test_libraries_are_those_that_were_proved(
    receipt_doc: dict[str, Any], files: list[tuple[str, str]], status: str, said: str
) -> None:
    check = change.library(receipt_doc, files, {})
    assert check.status == status
    assert said in check.summary


def test_libraries_are_held_against_record_too(receipt_doc: dict[str, Any]) -> None:
    files = [("_C.abi3.so", "a" * 64)]
    good, bad = ({"vllm/_C.abi3.so": record(x * 64)} for x in "ab")
    assert change.library(None, files, good).status == "pass"
    assert change.library(None, files, bad).status == "warn"
    assert change.library(receipt_doc, files, bad).status == "warn"
    assert change.library({"verify": {}}, files, bad).status == "fail"
    assert change.library(None, files, {}).status == "skip"
    assert change.library(None, files, {"vllm/_C.abi3.so": ""}).status == "skip"


def test_libraries_are_hashed_from_the_files(tmp_path: Path) -> None:
    (tmp_path / "_C.so").write_bytes(b"abc")
    ((name, digest),) = change.hashes(tmp_path, ["_C.so", "gone.so"])
    assert name == "_C.so"
    assert digest.startswith("ba7816bf")


def test_other_words_fail_and_other_questions_are_not_compared(
    receipt_doc: dict[str, Any],
) -> None:
    assert change.answers(receipt_doc, replace(SMOKE, digest="e" * 64)).status == "fail"
    assert change.answers(receipt_doc, replace(SMOKE, asked="r" * 64)).status == "unknown"


def timed(*runs: float, cpus: int = 2, others: float | None = 0.0) -> Smoke:
    return replace(SMOKE, speed=Speed(tokens=1000, runs=runs, cpus=cpus, others=others))


@pytest.mark.parametrize(
    ("smoke", "status"),
    [
        (timed(1.15, 1.16, 1.17), "pass"),
        (timed(1.5, 1.52, 1.53), "warn"),
        (timed(1.5, 1.52, 1.53, others=None), "warn"),
        (timed(1.5, 3.0, 1.6, 2.5, 2.2), "pass"),  # its own noise widens the bound
        (timed(1.5, 1.52, 1.53, others=0.8), "unknown"),
        (timed(1.0, 1.0, 1.0, others=0.8), "pass"),
        (timed(1.5, 1.52, 1.53, cpus=1), "unknown"),
        (timed(0.5, 0.5, 0.5), "pass"),
        (replace(SMOKE, speed=None), "unknown"),
    ],
)
def test_only_a_slowdown_beyond_noise_is_said(
    receipt_doc: dict[str, Any], smoke: Smoke, status: str
) -> None:
    check = change.speed(receipt_doc, smoke)
    assert check.status == status, check


def test_a_slowdown_is_said_with_its_bound(receipt_doc: dict[str, Any]) -> None:
    check = change.speed(receipt_doc, timed(2.0, 2.0, 2.0))
    assert (
        check.summary == "100% slower: 500 tokens/s, then 1000 (bound 24%, from the noise of both)"
    )
    assert len(check.evidence) == 2


def test_a_speed_survives_the_receipt() -> None:
    speed = Speed(tokens=1000, runs=(1.25, 1.5), cpus=2, others=None)
    assert words.speed(speed.to_json()) == speed
    assert speed.to_json()["tokens_per_second"] == 800.0
    assert speed.noise == pytest.approx(0.2)


def test_the_digest_follows_the_tokens_and_the_question(words_docs: dict[str, Any]) -> None:
    reference, eager = words_docs["reference"], words_docs["eager"]
    reference["weights"] = "w" * 64
    first = words.smoke(reference, eager)
    assert first is not None
    eager["batch"][0]["tokens"][0] += 1
    second = words.smoke(reference, eager)
    assert second is not None
    assert first.digest != second.digest
    assert first.asked == second.asked
    reference["weights"] = "v" * 64
    third = words.smoke(reference, eager)
    assert third is not None
    assert third.asked != first.asked
    assert words.smoke(None, eager) is not None
    assert words.smoke(reference, None) is None
