"""Every id that can be emitted is registered, titled and explained; list and docs hold them all."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from cpubuild import check
from cpubuild.assess import GROUPS, Needs, Surroundings, assess, registry
from cpubuild.assess.known import CONDITIONS
from cpubuild.assess.surroundings import Distribution
from cpubuild.choose.tables import table
from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.facts.model import Reach

PACKAGE = Path(check.__file__).parent
IDS = re.compile(rf'"((?:{"|".join(GROUPS)})\.[a-z0-9_]+)"')
NOTHING_KNOWN = {"VLLM_CPU_KVCACHE_SPACE": "x", "VLLM_STRANGE": "1", "LD_PRELOAD": "/a.so"}


def test_every_id_in_the_code_is_registered() -> None:
    sources = [*(PACKAGE / "assess").glob("*.py"), PACKAGE / "speed.py"]
    named = {i for path in sources for i in IDS.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 50
    assert named <= set(registry())


def test_every_registered_id_is_in_the_code_or_a_table() -> None:
    sources = [*(PACKAGE / "assess").glob("*.py"), PACKAGE / "speed.py"]
    named = {i for path in sources for i in IDS.findall(path.read_text(encoding="utf-8"))}
    named |= {row["id"] for row in table("known.toml")["issue"]}
    named |= {"disk.state", "disk.tmp", "disk.cache"}
    assert set(registry()) == named


@pytest.mark.parametrize("arch", ["x86_64", "aarch64", "ppc64le", "s390x", "riscv64", "armv7l"])
def test_what_synthetic_hosts_emit_is_registered(arch, host, change, known, make_gxx) -> None:
    environments = ({}, NOTHING_KNOWN, {"CXX": "clang++", "PYTHONPATH": "/x", "https_proxy": "p"})
    compilers = ((), (make_gxx("9.4.0"),), (make_gxx(works=False, failure="no"),))
    versions = ("0.5.0", "0.9.2", "0.17.1", "0.32.0")
    emitted: set[str] = set()
    for environment, gxx, version in product(environments, compilers, versions):
        facts = change(
            host,
            cpu={"arch": arch, "flags": frozenset()},
            environment=environment,
            compilers=gxx,
            reach=(Reach(name="pip's default index", ok=False, seconds=1.0),),
            interpreters=(),
            numa=(),
        )
        around = Surroundings(
            distributions=(Distribution(name="vllm", version="0.1", location="/x"),),
            steal_percent=40.0,
        )
        found = assess(facts, known(version, arch), needs=Needs(python="3.9"), around=around)
        emitted |= {f.id for f in found}
        assert all(f.title for f in found)
    assert len(emitted) > 30
    assert emitted <= set(registry())


def test_each_check_has_words_and_belongs_to_a_group() -> None:
    for row in check.list_checks():
        assert row.group in GROUPS
        assert row.title
        assert len(row.text) > 20
        assert check.explain(row.id)[0].startswith(row.id)


def test_a_group_can_be_explained_and_an_unknown_name_is_refused_with_a_hint() -> None:
    assert any("toolchain.gxx" in line for line in check.explain("toolchain"))
    with pytest.raises(CpuBuildError) as caught:
        check.explain("toolchain.gcc")
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert "toolchain.gxx" in caught.value.problems[0].why


def test_conditions_of_the_known_issues_exist() -> None:
    used = {name for row in table("known.toml")["issue"] for name in row["when"]}
    assert used == set(CONDITIONS)


def test_the_page_says_of_every_check_what_the_table_says() -> None:
    page = (PACKAGE.parents[1] / "docs" / "check.md").read_text(encoding="utf-8")
    rows = [f"| `{c.id}` | {c.title}. {c.text} |" for c in registry().values()]
    assert [row for row in rows if row not in page] == []


def test_a_release_that_refuses_the_architecture_is_a_blocker(host, release) -> None:
    refusing = replace(release, arch_refusal="CMake says no")
    found = {f.id: f for f in assess(host, refusing)}
    assert found["release.arch"].status.value == "blocker"
