"""Make the recorded hosts of this folder: ``python tests/hosts/make.py`` writes them all again.

A host is a folder of the files that the kernel of such a machine shows, named by the expected
verdict (``avx512--cascade-lake``). CPU flags come from archspec's recorded machines, or from its
table of microarchitectures where it recorded none; the rows without either say in ``source`` where
their words come from. What is expected stands in the rows, by hand: nothing here asks the code
under test. ``--record FOLDER`` writes this machine's own files instead.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KIB = 1024
GIB = 1 << 30
X86_WORDS = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat clflush syscall nx lm"
)
UNAME = {"kernel": "6.1.0"}


def rows() -> list[dict[str, Any]]:
    """Return the table of hosts."""
    return tomllib.loads((HERE / "hosts.toml").read_text("utf-8"))["host"]


def archspec_fields(name: str) -> dict[str, str]:
    """Return the first processor of one of archspec's recorded machines."""
    text = files("archspec").joinpath(f"json/tests/targets/{name}").read_text("utf-8")
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, sign, value = line.partition(":")
        if sign:
            fields.setdefault(key.strip(), value.strip())
    return fields


def target_fields(name: str) -> dict[str, str]:
    """Return cpuinfo fields made of archspec's table of microarchitectures."""
    from archspec.cpu import TARGETS

    target = TARGETS[name]
    words = dict.fromkeys([*X86_WORDS.split(), *sorted(target.features)])
    return {"vendor_id": target.vendor, "flags": " ".join(words)}


def cpu_fields(row: dict[str, Any]) -> dict[str, str]:
    """Return what every processor of a host shows, apart from its numbers."""
    if "recorded" in row:
        fields = archspec_fields(row["recorded"])
    elif "target" in row:
        fields = target_fields(row["target"])
    else:
        fields = {}
    fields.update(row.get("fields", {}))
    key = "Features" if row["arch"] == "aarch64" else "flags"
    if row.get("add") or row.get("drop"):
        words = [w for w in fields.get(key, "").split() if w not in row.get("drop", ())]
        fields[key] = " ".join([*words, *row.get("add", ())])
    return fields


def cpuinfo(row: dict[str, Any]) -> str:
    """Return /proc/cpuinfo for as many processors as the host shows."""
    fields = cpu_fields(row)
    count, threads = row["cpus"], row.get("threads", 1)
    if row["arch"] == "s390x":
        lines = [f"{key:<16}: {value}" for key, value in fields.items()]
        machine = row["machine"]
        lines += [
            f"processor {n}: version = FF,  identification = 0A1B2C,  machine = {machine}"
            for n in range(count)
        ]
        return "\n".join(lines) + "\n"
    blocks = []
    for number in range(count):
        own = {"processor": str(number)}
        if row["arch"] == "x86_64":
            cores = count // threads
            own |= {"physical id": "0", "siblings": str(count), "cpu cores": str(cores)}
            own |= {"core id": str(number % cores)}
        skipped = {*own, "apicid", "initial apicid", "hart"}
        shown = own | {k: v for k, v in fields.items() if k not in skipped}
        blocks.append("".join(f"{key:<16}: {value}\n" for key, value in shown.items()))
    tail = "".join(f"{key:<16}: {value}\n" for key, value in row.get("tail", {}).items())
    return "\n".join([*blocks, tail] if tail else blocks)


def meminfo(row: dict[str, Any]) -> str:
    """Return /proc/meminfo; four fifths of the memory are available."""
    total = int(row["memory"] * GIB) // KIB
    available = total * 4 // 5
    swap = int(row.get("swap", 0) * GIB) // KIB
    pairs = {
        "MemTotal": total,
        "MemFree": available // 2,
        "MemAvailable": available,
        "Buffers": total // 100,
        "Cached": available // 3,
        "SwapTotal": swap,
        "SwapFree": swap,
    }
    return "".join(f"{name + ':':<16}{value:>8} kB\n" for name, value in pairs.items())


def host_files(row: dict[str, Any]) -> dict[str, str]:
    """Return every file of a recorded host by its name."""
    last = row["cpus"] - 1
    release = row.get("kernel", UNAME["kernel"])
    made = {
        "uname": f"Linux {release} {row['arch']}\n",
        "proc/version": f"Linux version {release} (gcc) #1 SMP\n",
        "proc/cpuinfo": cpuinfo(row),
        "proc/meminfo": meminfo(row),
        "proc/self/status": f"Name:\tcat\nCpus_allowed_list:\t{row.get('affinity', f'0-{last}')}\n",
        "proc/self/cgroup": row.get("cgroup", "0::/\n"),
        "proc/self/mountinfo": row.get("mounts", MOUNTS_V2),
        "proc/1/cgroup": row.get("cgroup", "0::/\n"),
        "sys/devices/system/cpu/online": f"0-{last}\n",
        "etc/os-release": os_release(row["distro"]),
        **numa_files(row),
        **row.get("files", {}),
    }
    kept = {name: text for name, text in made.items() if name not in row.get("without", ())}
    kept["recorded.json"] = dump(recorded(row))
    kept["expected.json"] = dump(row["expect"] | {"source": source(row)})
    return kept


MOUNTS_V2 = (
    "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
    "23 22 0:21 / /proc rw - proc proc rw\n"
    "25 22 0:23 / /dev/shm rw - tmpfs tmpfs rw,size=2097152k\n"
    "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
)


def numa_files(row: dict[str, Any]) -> dict[str, str]:
    """Return the sysfs files of the host's NUMA nodes, which share its CPUs and memory."""
    count = row.get("nodes", 1)
    made = {}
    for node in range(count):
        share = row["cpus"] // count
        folder = f"sys/devices/system/node/node{node}"
        made[f"{folder}/cpulist"] = f"{node * share}-{(node + 1) * share - 1}\n"
        total = int(row["memory"] * GIB) // KIB // count
        made[f"{folder}/meminfo"] = f"Node {node} MemTotal:       {total} kB\n"
    return made


def os_release(name: str) -> str:
    """Return the os-release of a distribution of the table."""
    table = tomllib.loads((HERE / "distros.toml").read_text("utf-8"))
    return "".join(f'{key}="{value}"\n' for key, value in table[name]["release"].items())


def recorded(row: dict[str, Any]) -> dict[str, Any]:
    """Return what the programs of the host would tell: its distribution's, by the table."""
    table = tomllib.loads((HERE / "distros.toml").read_text("utf-8"))[row["distro"]]
    triple = f"{row['arch'].replace('ppc64le', 'powerpc64le')}-linux-gnu"
    compilers = [compiler(version, path, row["arch"], triple) for path, version in table["gxx"]]
    pythons = [
        {
            "path": f"/usr/bin/python{version.rpartition('.')[0]}",
            "version": version,
            "implementation": "CPython",
            "headers": True,
            "venv": True,
        }
        for version in table["python"]
    ]
    document = {
        "compilers": compilers,
        "tools": [
            {"name": name, "path": f"/usr/bin/{name}", "version": version or None}
            for name, version in table["tools"].items()
        ],
        "interpreters": pythons,
        "libraries": {
            "numa_header": True,
            "numa_link": True,
            "numa_runtime": f"{table['lib'].format(triple=triple)}/libnuma.so.1",
            "tcmalloc": None,
            "libiomp": None,
            "libgomp": f"{table['lib'].format(triple=triple)}/libgomp.so.1",
        },
        "libc": table["libc"],
        "disks": [
            {
                "path": "/",
                "purpose": "state",
                "free": 200 * GIB,
                "free_inodes": 10_000_000,
                "filesystem": "ext4",
                "writable": True,
            }
        ],
    }
    return document | ({"container": row["container"]} if "container" in row else {})


# The first GCC that knows an option (GCC's release notes, "What's new").
SINCE = {
    "x86_64": {
        "-mavx2": 5,
        "-mavx512f": 5,
        "-mavx512bf16": 10,
        "-mavx512vnni": 8,
        "-mavx512fp16": 12,
        "-mamx-tile": 11,
        "-mamx-bf16": 11,
        "-mamx-fp8": 15,
        "-mavx10.2": 15,
        "-mno-avx256-split-unaligned-load": 5,
    },
    "aarch64": {
        "-march=armv8.2-a+dotprod+fp16": 8,
        "-march=armv8.2-a+bf16+dotprod+fp16": 10,
        "-march=armv8.2-a+bf16+dotprod+fp16+i8mm": 10,
    },
    "ppc64le": {"-mcpu=power9": 6, "-mcpu=power10": 10},
    "s390x": {"-mzvector": 5},
    "riscv64": {},
}


def compiler(version: str, path: str, arch: str, triple: str) -> dict[str, Any]:
    """Return a GNU compiler of a version, with the options that GCC of this version knows."""
    major = int(version.partition(".")[0])
    return {
        "path": path,
        "cc": path.replace("g++", "gcc"),
        "kind": "gnu",
        "version": version,
        "target": triple,
        "works": True,
        "cxx20": major >= 10,
        "options": [[name, major >= since] for name, since in SINCE[arch].items()],
        "failure": "",
    }


def source(row: dict[str, Any]) -> str:
    """Say where the processor's words come from."""
    if "recorded" in row:
        return f"archspec's recorded machine {row['recorded']}"
    if "target" in row:
        return f"archspec's microarchitecture {row['target']}"
    return str(row["source"])


def dump(value: Any) -> str:
    """Return a JSON document as it is kept here."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def write(folder: Path, made: dict[str, str]) -> None:
    """Write a recorded host in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


SCRUBBED = (
    (r"\([^()\s]+@[^()\s]+\)", "(builder@host)"),
    (r"(?m)^.* /mnt/.*\n", ""),
    (r"/[\w.-]+/[0-9a-f]{32}\b", "/service/unit"),
    (r"(\d+\.\d+\.\d+)-[\w.-]+", r"\1"),
)


def scrub(text: str) -> str:
    """Leave out what names a machine, a builder or a group of this host."""
    for pattern, instead in SCRUBBED:
        text = re.sub(pattern, instead, text)
    return text


def shown(name: str) -> bool:
    """Whether a file is kept: the groups between the mount and the process's own are not."""
    return re.fullmatch(r"sys/fs/cgroup/[\w,]+/[\w.-]+/[^/]+", name) is None


def record(folder: Path) -> None:
    """Write this machine's own files to ``folder``, without what would name it."""
    from cpubuild.facts import container, cpu, memory, numa
    from cpubuild.facts.collect import collect
    from cpubuild.jsonio import plain

    root = Path("/")
    texts = {**cpu.probe(root), **memory.probe(root), **numa.probe(root)}
    texts |= container.probe(root, {})
    texts.pop("proc/1/environ", None)
    texts["etc/os-release"] = Path("/etc/os-release").read_text("utf-8")
    status = texts["proc/self/status"].splitlines(keepends=True)
    texts["proc/self/status"] = "".join(line for line in status if line.startswith("Cpus_"))
    made = {scrub(name): scrub(text) for name, text in sorted(texts.items()) if shown(name)}
    facts = plain(collect(disks={"state": root}, environ={"PATH": "/usr/bin:/bin"}))
    names = ("compilers", "interpreters", "libraries", "container", "libc", "disks")
    told = {name: facts[name] for name in names}
    told["tools"] = [tool for tool in facts["tools"] if tool["path"]]
    made["recorded.json"] = dump(told)
    expected = folder / "expected.json"
    if expected.exists():
        made["expected.json"] = expected.read_text("utf-8")
    write(folder, made)


def main() -> None:
    """Write every host of the table, or record this one."""
    if sys.argv[1:2] == ["--record"]:
        record(Path(sys.argv[2]))
        return
    for row in rows():
        write(HERE / row["name"], host_files(row))


if __name__ == "__main__":
    main()
