"""Distribution, C library, disks, containers, environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpubuild.facts import container, cpu, disk, distro, environment, libc
from cpubuild.run import Completed

BARE = cpu.parse({"uname": "Linux 6.1 x86_64", "proc/cpuinfo": "flags : lm\n"})
GUEST = cpu.parse({"uname": "Linux 6.1 x86_64", "proc/cpuinfo": "flags : lm hypervisor\n"})
OVERLAY = "1 0 0:1 / / rw - overlay overlay rw\n"
EXT4 = "1 0 8:1 / / rw - ext4 /dev/vda rw\n"


@pytest.mark.parametrize(
    ("name", "like", "family"),
    [
        ("debian", (), "apt"),
        ("neon", ("ubuntu", "debian"), "apt"),
        ("rhel", ("fedora",), "dnf"),
        ("something", ("rhel", "fedora"), "dnf"),
        ("opensuse-leap", ("suse", "opensuse"), "zypper"),
        ("cachyos", ("arch",), "pacman"),
        ("alpine", (), "apk"),
        ("nixos", (), "unknown"),
        ("", (), "unknown"),
    ],
)
def test_family(name: str, like: tuple[str, ...], family: str) -> None:
    assert distro.family(name, like) == family


def test_os_release_is_read_under_the_root(tmp_path: Path) -> None:
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "usr/lib/os-release").write_text(
        'ID=rocky\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\nPRETTY_NAME="Rocky Linux 9.4"\n'
    )
    found = distro.parse(distro.probe(tmp_path))
    assert (found.id, found.version, found.family) == ("rocky", "9.4", "dnf")
    assert found.like == ("rhel", "centos", "fedora")


@pytest.mark.parametrize("text", [None, 'ID="debian\n', "", "\x00\xff"])
def test_an_os_release_that_cannot_be_read_is_unknown(tmp_path: Path, text: str | None) -> None:
    (tmp_path / "etc").mkdir()
    if text is not None:
        (tmp_path / "etc/os-release").write_text(text, encoding="latin-1")
    assert distro.parse(distro.probe(tmp_path)).family == "unknown"


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("glibc 2.36", "glibc", "2.36"),
        ("musl libc (x86_64)\nVersion 1.2.5\nDynamic Program Loader\n", "musl", "1.2.5"),
        ("lib/ld-musl-x86_64.so.1", "musl", ""),
        ("lib/x86_64-linux-gnu/libc-2.31.so\nlib64/ld-linux-x86-64.so.2", "glibc", "2.31"),
        ("lib64/ld-linux-x86-64.so.2", "glibc", ""),
        ("", "unknown", ""),
    ],
)
def test_libc(text: str, name: str, version: str) -> None:
    found = libc.parse(text)
    assert (found.name, found.version) == (name, version)


def test_libc_by_file_names(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/ld-musl-aarch64.so.1").touch()
    assert libc.parse(libc.probe(tmp_path, {})).name == "musl"


MOUNTS = """27 1 254:0 / / rw - ext4 /dev/vda rw
25 27 0:23 / /tmp rw - tmpfs tmpfs rw
26 27 0:23 / /my\\040disk rw - xfs /dev/sdb rw
28 27 0:23 / /tmp rw - btrfs /dev/sdc rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "name"),
    [("/tmp/x", "btrfs"), ("/tmpfoo", "ext4"), ("/my disk/a", "xfs"), ("/", "ext4")],
)
def test_filesystem(path: str, name: str) -> None:
    assert disk.filesystem(Path(path), disk.parse_mounts(MOUNTS)) == name


def test_a_path_that_does_not_exist_is_measured_where_it_would_be(tmp_path: Path) -> None:
    found = disk.measure(tmp_path / "a/b/c", "state", ())
    assert found.path == str(tmp_path.resolve())
    assert found.free > 0
    assert found.writable
    assert found.filesystem == ""


def test_a_file_in_the_way_is_not_a_folder_to_write_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    found = disk.measure(tmp_path / "file/state", "state", ())
    assert not found.writable


@pytest.mark.parametrize(
    ("texts", "guest", "kind"),
    [
        ({}, False, "none"),
        ({}, True, "vm"),
        ({".dockerenv": "", "proc/self/mountinfo": OVERLAY}, True, "docker"),
        ({".dockerenv": ""}, False, "docker"),
        ({".dockerenv": "", "proc/self/mountinfo": EXT4}, True, "vm"),
        ({"proc/1/cgroup": "5:memory:/docker/0123\n"}, False, "docker"),
        ({"proc/1/cgroup": "0::/system.slice/docker-0123.scope\n"}, False, "docker"),
        ({"proc/1/cgroup": "0::/system.slice/docker.service\n"}, False, "none"),
        ({"run/.containerenv": "", ".dockerenv": ""}, False, "podman"),
        ({"proc/1/environ": "A=1\0container=podman\0B=2"}, False, "podman"),
        ({"run/systemd/container": "lxc\n"}, False, "lxc"),
        ({"proc/1/cgroup": "2:cpu:/lxc/101/ns\n"}, False, "lxc"),
        ({"proc/1/cgroup": "0::/lxc.payload.web\n"}, False, "lxc"),
        ({"proc/1/cgroup": "0::/kubepods/burstable/pod1\n", ".dockerenv": ""}, True, "kubernetes"),
        ({"kubernetes": "yes"}, False, "kubernetes"),
        ({"run/secrets/kubernetes.io/serviceaccount/namespace": "a"}, False, "kubernetes"),
        ({"proc/version": "Linux version 5.15-microsoft-standard-WSL2"}, True, "wsl2"),
        (
            {"proc/version": "Linux version 5.15-microsoft-standard-WSL2", ".dockerenv": ""},
            True,
            "docker",
        ),
        ({"run/systemd/container": "systemd-nspawn\n"}, False, "systemd-nspawn"),
    ],
)
def test_kind(texts: dict[str, str], guest: bool, kind: str) -> None:
    assert container.kind(texts, GUEST if guest else BARE) == kind


@pytest.mark.parametrize(
    ("code", "out", "outcome"),
    [
        (0, "ok\nok\n", ("ok", "ok")),
        (0, "EPERM\nEPERM\n", ("EPERM", "EPERM")),
        (0, "ENOSYS\n38\n", ("ENOSYS", "38")),
        (-31, "", ("SIGSYS", None)),
        (-31, "ok\n", ("ok", "SIGSYS")),
        (1, "Traceback\n", (None, None)),
        (127, "", (None, None)),
    ],
)
def test_outcomes_of_the_system_calls(
    code: int, out: str, outcome: tuple[str | None, str | None]
) -> None:
    finished = Completed(argv=("p",), returncode=code, stdout=out, stderr="", seconds=0.0)
    assert container.parse_calls(finished) == outcome


def test_variables_that_matter_without_secrets() -> None:
    found = dict(
        environment.parse(
            {
                "VLLM_CPU_KVCACHE_SPACE": "4",
                "VLLM_API_KEY": "abc",
                "HF_TOKEN": "hf_abc",
                "PIP_INDEX_URL": "https://me:pw@index.example/simple",
                "UV_INDEX_PRIVATE_PASSWORD": "pw",
                "https_proxy": "http://me:p@ss/w@proxy:3128",
                "PIP_EXTRA_INDEX_URL": "https://a.example/s?token=abc&x=1 https://tok@b.example/s",
                "CXX": "g++-12",
                "HOME": "/home/me",
                "LS_COLORS": "x",
                "SCCACHE_AUTH": "",
                "PIP_KEYRING_PROVIDER": "import",
            }
        )
    )
    assert found == {
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_API_KEY": "***",
        "HF_TOKEN": "***",
        "PIP_INDEX_URL": "https://***@index.example/simple",
        "UV_INDEX_PRIVATE_PASSWORD": "***",
        "https_proxy": "http://***@proxy:3128",
        "PIP_EXTRA_INDEX_URL": "https://a.example/s?token=***&x=1 https://***@b.example/s",
        "CXX": "g++-12",
        "SCCACHE_AUTH": "",
        "PIP_KEYRING_PROVIDER": "import",
    }
