"""Debian source packages through private apt directories: the host's mirror and keys, unchanged."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cpubuild import run
from cpubuild.errors import ExitCode, fail

# Not taken over from the host: what runs commands, names its folders, or lowers the guard.
DROPPED = re.compile(
    r"^(Dir\b|DPkg\b|RPM\b|Apt::(Update|Sources|NeverAutoRemove|Never-MarkAuto|Move-Autobit"
    r"|VersionedKernel|Periodic|Archives|Get)|Acquire::(IndexTargets|Languages|Allow|Check-Valid)"
    r"|Unattended-Upgrade)",
    re.IGNORECASE,
)
UPDATE_SECONDS = 180.0
GUARD = (
    'Acquire::AllowInsecureRepositories "false";',
    'Acquire::AllowWeakRepositories "false";',
    'Acquire::AllowDowngradeToInsecureRepositories "false";',
    'APT::Get::AllowUnauthenticated "false";',
    'Acquire::Languages "none";',
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AptEntry:
    """One repository of the host: ``signed_by`` is a keyring, key block or None (default keys)."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    types: tuple[str, ...]
    signed_by: str | None
    file: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AptSource:
    """A source package as the signed index lists it: ``files`` are name, sha256 and size."""

    package: str
    version: str
    suite: str
    uri: str
    files: tuple[tuple[str, str, int], ...]


def read_entries(root: Path = Path("/")) -> tuple[AptEntry, ...]:
    """The repositories that the host's apt is configured with, of both file formats."""
    etc = root / "etc/apt"
    parts = etc / "sources.list.d"
    paths = [etc / "sources.list"]
    if parts.is_dir():
        paths += sorted(p for p in parts.iterdir() if p.suffix in (".list", ".sources"))
    found: list[AptEntry] = []
    for path in paths:
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            parse = parse_deb822 if path.suffix == ".sources" else parse_one_line
            found += parse(text, str(path))
    return tuple(found)


def parse_deb822(text: str, file: str) -> list[AptEntry]:
    """Read a ``.sources`` file; disabled stanzas are left out, a key block is kept as written."""
    found: list[AptEntry] = []
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields = _fields(stanza)
        if not fields.get("uris") or fields.get("enabled", "yes").strip().lower() == "no":
            continue
        found.append(
            AptEntry(
                uris=tuple(fields["uris"].split()),
                suites=tuple(fields.get("suites", "").split()),
                components=tuple(fields.get("components", "").split()),
                types=tuple(fields.get("types", "").split()),
                signed_by=fields.get("signed-by") or None,
                file=file,
            )
        )
    return found


def _fields(stanza: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in (" ", "\t") and name:
            fields[name] += "\n" + line
            continue
        name, colon, value = line.partition(":")
        name = name.strip().lower() if colon else ""
        if name:
            fields[name] = value.strip()
    return fields


def parse_one_line(text: str, file: str) -> list[AptEntry]:
    """Read a ``sources.list`` file: ``deb [options] uri suite component...``."""
    found: list[AptEntry] = []
    for line in text.splitlines():
        match = re.match(r"\s*(deb|deb-src)\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)\s*([^#]*)", line)
        if match is None:
            continue
        kind, options, uri, suite, components = match.groups()
        keys = re.search(r"signed-by=(\S+)", options or "")
        found.append(
            AptEntry(
                uris=(uri,),
                suites=(suite,),
                components=tuple(components.split()),
                types=(kind,),
                signed_by=keys[1].replace(",", " ") if keys else None,
                file=file,
            )
        )
    return found


def main_entry(entries: Iterable[AptEntry], codename: str) -> AptEntry | None:
    """The entry of the distribution itself: it has the suite named like the release, and main."""
    return next(
        (
            e
            for e in entries
            if codename in e.suites
            and "main" in e.components
            and not e.uris[0].startswith("cdrom:")
        ),
        None,
    )


def source_stanza(entry: AptEntry, suite: str, component: str) -> str:
    """The deb-src entry, in apt's format, for ``suite`` on the mirror of ``entry``."""
    lines = [
        "Types: deb-src",
        f"URIs: {' '.join(entry.uris)}",
        f"Suites: {suite}",
        f"Components: {component}",
    ]
    if entry.signed_by:
        lines.append(f"Signed-By: {entry.signed_by}")
    return "\n".join(lines) + "\n"


def private_config(dump: str, home: Path) -> str:
    """Write apt's configuration for ``home``: of the host's only the network settings."""
    kept = [line for line in dump.splitlines() if line.strip() and not DROPPED.match(line)]
    folders = {
        "Dir::Etc::main": f"{home}/etc/none",
        "Dir::Etc::parts": f"{home}/etc/empty",
        "Dir::Etc::sourcelist": f"{home}/etc/none",
        "Dir::Etc::sourceparts": f"{home}/sources",
        "Dir::Etc::preferences": f"{home}/etc/none",
        "Dir::Etc::preferencesparts": f"{home}/etc/empty",
        "Dir::State": f"{home}/state",
        "Dir::State::lists": f"{home}/state/lists",
        "Dir::State::status": f"{home}/state/status",
        "Dir::Cache": f"{home}/cache",
        "Dir::Log": f"{home}/log",
    }
    return "\n".join([*kept, *(f'{k} "{v}";' for k, v in folders.items()), *GUARD]) + "\n"


class PrivateApt:
    """apt with its own lists, cache and sources under ``home``; works for root and for users."""

    def __init__(self, home: Path) -> None:
        """Name the folder; nothing is made before ``open``."""
        self.home = home.absolute()

    def open(self, stanza: str) -> None:
        """Make the folders and the configuration, with ``stanza`` as the only repository."""
        if run.capture(["apt-get", "--version"], timeout=20).returncode == 127:
            raise fail(ExitCode.PREREQUISITE, "apt-get is not on this host")
        folders = ("etc/empty", "sources", "state/lists/partial", "cache/archives/partial", "log")
        for name in folders:
            (self.home / name).mkdir(parents=True, exist_ok=True)
        (self.home / "etc/none").touch()
        (self.home / "state/status").touch()
        (self.home / "sources/only.sources").write_text(stanza, encoding="utf-8")
        dump = run.capture(["apt-config", "dump"], timeout=20).stdout
        (self.home / "apt.conf").write_text(private_config(dump, self.home), encoding="utf-8")

    def _run(self, *args: str, cwd: Path | None = None) -> run.Completed:
        env = dict(os.environ) | {"APT_CONFIG": str(self.home / "apt.conf"), "LC_ALL": "C.UTF-8"}
        return run.capture(args, env=env, cwd=cwd, timeout=UPDATE_SECONDS)

    def update(self) -> str:
        """Fetch the signed index; return ``""``, or why it could not be used."""
        done = self._run("apt-get", "-q", "-o", "APT::Update::Error-Mode=any", "update")
        if done.ok:
            return ""
        return complaint(done.stderr + done.stdout) or f"apt-get update: {done.describe_end()}"

    def source(self, package: str, suite: str) -> AptSource | None:
        """The newest version of ``package`` in the fetched index; None if it has none."""
        done = self._run("apt-cache", "showsrc", "--only-source", package)
        found = parse_showsrc(done.stdout) if done.ok else []
        if not found:
            return None
        version, files = found[-1]
        uris = (self.home / "sources/only.sources").read_text(encoding="utf-8")
        uri = next((k[6:] for k in uris.splitlines() if k.startswith("URIs: ")), "")
        return AptSource(package=package, version=version, suite=suite, uri=uri, files=files)

    def download(self, source: AptSource, folder: Path) -> None:
        """Fetch the files of ``source`` into ``folder``; apt checks them by the signed index."""
        done = self._run(
            "apt-get",
            "-q",
            "source",
            "--download-only",
            f"{source.package}={source.version}",
            cwd=folder,
        )
        run.must(
            done,
            ExitCode.DOWNLOAD,
            f"the source package {source.package} {source.version} could not be fetched",
            why=f"it was to come from {source.uri} ({source.suite})",
        )


def complaint(text: str) -> str:
    """The line of apt's output that tells best what went wrong: the key, else the first error."""
    said = [k for k in text.splitlines() if k.startswith(("E:", "W:")) and "unsandboxed" not in k]
    keys = [k for k in said if "NO_PUBKEY" in k or "GPG error" in k]
    errors = [k for k in said if k.startswith("E:")]
    return next((k[2:].strip() for k in (*keys, *errors, *said)), "")


def parse_showsrc(text: str) -> list[tuple[str, tuple[tuple[str, str, int], ...]]]:
    """Read ``apt-cache showsrc``: versions in apt's order, with name, sha256, size of files."""
    found = []
    for stanza in re.split(r"\n[ \t]*\n", text.strip()):
        fields = _fields(stanza)
        files = [line.split() for line in fields.get("checksums-sha256", "").splitlines()]
        listed = tuple((f[2], f[0], int(f[1])) for f in files if len(f) == 3)
        if fields.get("version") and listed:
            found.append((fields["version"], listed))
    return found
