from __future__ import annotations

import pytest

from cpubuild.facts import cgroup, cpu, memory
from cpubuild.facts.cgroup import Group

V2 = "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1_MEMORY = "31 20 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
TOP = "sys/fs/cgroup"


def test_the_walk_goes_from_the_group_to_the_mount() -> None:
    texts = {"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": V2}
    assert cgroup.levels(texts, "cpu") == (
        Group(folder=f"{TOP}/a/b", version=2),
        Group(folder=f"{TOP}/a", version=2),
        Group(folder=TOP, version=2),
    )


def test_a_mount_that_starts_inside_the_hierarchy_hides_what_is_above() -> None:
    # docker with version 1: the path is the host's, the mount starts at the container's group
    mounts = "31 20 0:31 /docker/c1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    texts = {"proc/self/cgroup": "4:memory:/docker/c1/inner\n", "proc/self/mountinfo": mounts}
    assert [group.folder for group in cgroup.levels(texts, "memory")] == [
        f"{TOP}/memory/inner",
        f"{TOP}/memory",
    ]


@pytest.mark.parametrize("path", ["/../../other", "/..", "/elsewhere/c2"])
def test_a_group_outside_the_namespace_leaves_the_mount(path: str) -> None:
    mounts = "31 20 0:31 /docker/c1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    texts = {"proc/self/cgroup": f"4:memory:{path}\n", "proc/self/mountinfo": mounts}
    assert [group.folder for group in cgroup.levels(texts, "memory")] == [f"{TOP}/memory"]


def test_without_a_mount_table_the_usual_places_are_tried() -> None:
    texts = {"proc/self/cgroup": "0::/\n", f"{TOP}/memory.max": "1000\n"}
    assert cgroup.memory(texts) == (2, 1000, 0)


def test_proc_1_stands_in_for_proc_self() -> None:
    texts = {"proc/1/cgroup": "0::/x\n", f"{TOP}/x/memory.max": "5\n"}
    assert cgroup.memory(texts) == (2, 5, 0)


def test_both_versions_limit_in_hybrid_mode() -> None:
    texts = {
        "proc/self/cgroup": "4:memory:/s\n0::/s\n",
        "proc/self/mountinfo": V1_MEMORY + V2.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified "),
        f"{TOP}/memory/s/memory.limit_in_bytes": "4000\n",
        f"{TOP}/unified/s/memory.max": "3000\n",
    }
    assert cgroup.memory(texts) == (1, 3000, 0)


@pytest.mark.parametrize("text", ["max\n", "9223372036854771712\n", "18446744073709551615\n"])
def test_no_limit_is_none(text: str) -> None:
    texts = {"proc/self/mountinfo": V2, f"{TOP}/memory.max": text}
    assert cgroup.memory(texts) == (2, None, None)


def test_file_cache_counts_as_free_and_the_tightest_level_as_used() -> None:
    texts = {
        "proc/self/cgroup": "0::/p/c\n",
        "proc/self/mountinfo": V2,
        f"{TOP}/p/memory.max": "10000\n",
        f"{TOP}/p/memory.current": "9900\n",
        f"{TOP}/p/c/memory.max": "5000\n",
        f"{TOP}/p/c/memory.current": "3000\n",
        f"{TOP}/p/c/memory.stat": "file 2500\ninactive_file 1500\nactive_file 500\n",
        "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 900 kB\n",
    }
    assert cgroup.memory(texts) == (2, 5000, 4900)
    assert memory.parse(texts).usable == 100
    del texts[f"{TOP}/p/memory.current"]
    assert cgroup.memory(texts) == (2, 5000, 1000)


def test_version_1_counts_the_cache_of_groups_below_too() -> None:
    texts = {
        "proc/self/mountinfo": V1_MEMORY,
        f"{TOP}/memory/memory.limit_in_bytes": "5000\n",
        f"{TOP}/memory/memory.usage_in_bytes": "4000\n",
        f"{TOP}/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 1000\n"
        "total_active_file 500\n",
    }
    assert cgroup.memory(texts) == (1, 5000, 2500)


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("max 100000\n", None),
        ("150000 100000\n", 1.5),
        ("50000\n", 0.5),
        ("0 100000\n", None),
        ("100000 0\n", None),
        ("\n", None),
        ("-1 100000\n", None),
    ],
)
def test_cpu_max(text: str, quota: float | None) -> None:
    assert cgroup.cpu_quota({"proc/self/mountinfo": V2, f"{TOP}/cpu.max": text}) == quota


def test_joined_version_1_controllers() -> None:
    texts = {
        "proc/self/cgroup": "4:cpu,cpuacct:/u\n",
        "proc/self/mountinfo": "3 2 0:3 / /cg/cpu\\054cpuacct rw - cgroup x rw,cpu,cpuacct\n",
        "cg/cpu,cpuacct/u/cpu.cfs_quota_us": "400000\n",
        "cg/cpu,cpuacct/u/cpu.cfs_period_us": "100000\n",
        "cg/cpu,cpuacct/cpu.cfs_quota_us": "200000\n",
        "cg/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }
    assert cgroup.cpu_quota(texts) == 2.0


def test_the_nearest_cpuset_that_names_cpus_counts() -> None:
    texts = {
        "proc/self/cgroup": "0::/a\n",
        "proc/self/mountinfo": V2,
        f"{TOP}/a/cpuset.cpus": "\n",
        f"{TOP}/cpuset.cpus.effective": "0-1\n",
        "sys/devices/system/cpu/online": "0-7\n",
    }
    assert cgroup.cpuset(texts) == (0, 1)
    assert cpu.parse(texts).allowed == (0, 1)


def test_probe_reads_every_level_under_a_root(tmp_path) -> None:
    for name, text in {
        "proc/self/cgroup": "0::/a/b\n",
        "proc/self/mountinfo": V2,
        f"{TOP}/a/b/memory.max": "7\n",
        f"{TOP}/a/memory.max": "6\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    texts = cgroup.probe(tmp_path)
    assert texts[f"{TOP}/a/b/memory.max"] == "7\n"
    assert cgroup.memory(texts) == (2, 6, 0)
