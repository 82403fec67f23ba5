"""What surrounds the process: a container or virtual machine, and what it forbids."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from cpubuild.facts import loopback
from cpubuild.facts.model import Container, Cpu
from cpubuild.facts.programs import ask, which
from cpubuild.facts.read import Texts, read_texts
from cpubuild.run import Completed

FILES = (
    "proc/version",
    "proc/1/cgroup",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/1/environ",
    "run/systemd/container",
    "run/.containerenv",
    ".dockerenv",
    "run/secrets/kubernetes.io/serviceaccount/namespace",
    "var/run/secrets/kubernetes.io/serviceaccount/namespace",
)
CALLS = {
    # (get_mempolicy, mbind): the kernel's syscall tables
    "x86_64": (239, 237),
    "aarch64": (236, 235),
    "riscv64": (236, 235),
    "ppc64le": (260, 259),
    "s390x": (269, 268),
}
LAYERED = frozenset(
    {"overlay", "aufs", "fuse-overlayfs", "btrfs", "zfs", "vfs", "fuse.fuse-overlayfs"}
)
MANAGERS = ("apt-get", "dnf", "yum", "zypper", "pacman", "apk")


def probe(root: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Read the signs of a container; ``environ`` adds those of the process itself."""
    texts = read_texts(root, FILES)
    if root == Path("/") and environ.get("KUBERNETES_SERVICE_HOST"):
        texts["kubernetes"] = "yes"
    return texts


def kind(texts: Texts, cpu: Cpu) -> str:
    """Name the innermost thing that surrounds the process."""
    named = texts.get("run/systemd/container", "").strip().lower()
    groups = texts.get("proc/1/cgroup", "") + texts.get("proc/self/cgroup", "")
    variable = re.search(r"(?:^|\0)container=([\w.-]+)", texts.get("proc/1/environ", ""))
    said = named or (variable[1].lower() if variable else "")
    if _kubernetes(texts, groups):
        return "kubernetes"
    if said.startswith("podman") or "run/.containerenv" in texts or "libpod" in groups:
        return "podman"
    if said == "docker" or re.search(r"/docker[/-]", groups) or _docker_left_its_mark(texts):
        return "docker"
    if said.startswith("lxc") or re.search(r"/lxc[./]", groups) or _lxcfs(texts):
        return "lxc"
    if re.search(r"microsoft.*wsl2|wsl2.*microsoft", texts.get("proc/version", ""), re.IGNORECASE):
        return "wsl2"
    if said and said != "wsl":
        return said
    return "vm" if cpu.hypervisor else "none"


def _kubernetes(texts: Texts, groups: str) -> bool:
    account = any(name.endswith("serviceaccount/namespace") for name in texts)
    return "kubernetes" in texts or account or "kubepods" in groups


def _docker_left_its_mark(texts: Texts) -> bool:
    """Whether /.dockerenv means a container: a machine made from an image keeps the file too."""
    if ".dockerenv" not in texts:
        return False
    roots = [
        right.split(" ")[0]
        for left, _, right in (
            line.partition(" - ") for line in texts.get("proc/self/mountinfo", "").splitlines()
        )
        if left.split(" ")[4:5] == ["/"]
    ]
    return not roots or roots[-1] in LAYERED


def _lxcfs(texts: Texts) -> bool:
    mounts = texts.get("proc/self/mountinfo", "")
    return re.search(r" /proc/(?:cpuinfo|meminfo) .* - fuse\.lxcfs ", mounts) is not None


def parse_calls(done: Completed) -> tuple[str | None, str | None]:
    """Return the outcomes of get_mempolicy and mbind; a deadly signal stands for the one it met."""
    words = re.findall(r"(?m)^(?:ok|E[A-Z0-9]+|\d{1,4})$", done.stdout)[:2]
    if len(words) < 2 and done.returncode < 0:
        words.append(_signal_name(-done.returncode))
    return (words[0] if words else None), (words[1] if len(words) > 1 else None)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ask_calls(arch: str, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Make both system calls in a child, which seccomp may kill without harm."""
    if arch not in CALLS:
        return None, None
    script = Path(__file__).with_name("mempolicy.py")
    numbers = [str(number) for number in CALLS[arch]]
    argv = [sys.executable, "-I", "-S", str(script), *numbers]
    return parse_calls(ask(argv, environ, timeout=10.0))


def shm_size() -> int | None:
    """Return the size of /dev/shm in bytes; None when there is none."""
    try:
        stat = os.statvfs(Path("/dev", "shm"))
    except OSError:
        return None
    return stat.f_blocks * stat.f_frsize


def may_install(environ: Mapping[str, str]) -> bool:
    """Whether the package manager can be used: by root, or by sudo without a password."""
    if not any(which(name, environ) for name in MANAGERS):
        return False
    if not os.access("/usr/lib", os.W_OK) and os.geteuid() == 0:
        return False  # an image whose system is read-only
    if Path("/run/ostree-booted").exists():
        return False
    sudo = which("sudo", environ)
    return os.geteuid() == 0 or (sudo is not None and ask([sudo, "-n", "true"], environ).ok)


def live(texts: Texts, cpu: Cpu, environ: Mapping[str, str]) -> Container:
    """Build the fact for the running host."""
    policy, bind = ask_calls(cpu.arch, environ)
    return Container(
        kind=kind(texts, cpu),
        get_mempolicy=policy,
        mbind=bind,
        shm=shm_size(),
        root=os.geteuid() == 0,
        can_install=may_install(environ),
        loopback=loopback.probe(),
    )


def recorded(texts: Texts, cpu: Cpu) -> Container:
    """Build the fact for a recorded host, which cannot be asked anything."""
    return Container(
        kind=kind(texts, cpu),
        get_mempolicy=None,
        mbind=None,
        shm=_shm_of_mounts(texts.get("proc/self/mountinfo", "")),
        root=False,
        can_install=False,
    )


def _shm_of_mounts(text: str) -> int | None:
    """Return the size option of the last mount on /dev/shm in bytes."""
    sizes = re.findall(r"(?m)^\S+ \S+ \S+ \S+ /dev/shm .*[ ,]size=(\d{1,15})k(?:,|$)", text)
    return int(sizes[-1]) * 1024 if sizes else None
