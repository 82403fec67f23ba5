"""The state root: where everything lies, the lock, what is installed, what is current."""

from __future__ import annotations

import contextlib
import csv
import errno
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cpubuild import jsonio, sessions, ui
from cpubuild.errors import CpuBuildError, ExitCode, Problem, fail

RECEIPT = "receipt.json"
REFUSALS = frozenset(
    {errno.EACCES, errno.EDQUOT, errno.EIO, errno.EISDIR, errno.ENOSPC, errno.ENOTDIR}
    | {errno.EPERM, errno.EROFS}
)
LAYOUT = (
    *("downloads", "sources", "buildenvs", "builds", "wheels", "locks", "envs", "runs", "cache"),
    *("models", "tools"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """Names of everything below one state root; nothing is created before :meth:`prepare`."""

    root: Path

    @property
    def downloads(self) -> Path:
        """Downloaded files, by content."""
        return self.root / "downloads"

    @property
    def sources(self) -> Path:
        """Unpacked source trees as they were published."""
        return self.root / "sources"

    @property
    def buildenvs(self) -> Path:
        """Environments that hold torch and the build requirements."""
        return self.root / "buildenvs"

    @property
    def builds(self) -> Path:
        """Patched trees with their objects, one for each wheel key."""
        return self.root / "builds"

    @property
    def wheels(self) -> Path:
        """Finished wheels with their manifests, one folder for each wheel key."""
        return self.root / "wheels"

    @property
    def locks(self) -> Path:
        """Resolved run-time requirements with hashes, one for each plan."""
        return self.root / "locks"

    @property
    def envs(self) -> Path:
        """Target environments, one for each plan."""
        return self.root / "envs"

    @property
    def runs(self) -> Path:
        """One folder for each run: logs, commands, step results."""
        return self.root / "runs"

    @property
    def cache(self) -> Path:
        """Results of slow probes, with the fingerprint of what they looked at."""
        return self.root / "cache"

    @property
    def models(self) -> Path:
        """Models with their receipts, by hub, owner, name and revision."""
        return self.root / "models"

    @property
    def tools(self) -> Path:
        """Environments that single verbs need, by name and content."""
        return self.root / "tools"

    @property
    def running(self) -> Path:
        """Names the processes that a run has started, one file for each, while they run."""
        return self.root / "running"

    @property
    def current(self) -> Path:
        """The link to the environment in use."""
        return self.root / "current"

    def problems(self) -> tuple[Problem, ...]:
        """Why the root cannot hold state, found without touching it; empty when it can."""
        place = self.root
        while not _there(place) and place != place.parent:
            place = place.parent
        if not place.is_dir():
            return (unusable(place, "a folder is needed, and it is none"),)
        if not writable(place):
            return (unusable(place, "this user cannot write there, or it is read-only"),)
        return self.in_the_way()

    def in_the_way(self) -> tuple[Problem, ...]:
        """Everything below the root that lies where something of another kind belongs."""
        found = [
            in_the_way(path, "it must be a folder")
            for path in (*(self.root / name for name in LAYOUT), self.running)
            if os.path.lexists(path) and not path.is_dir()
        ]
        if os.path.lexists(self.current) and not self.current.is_symlink():
            found.append(in_the_way(self.current, "it must be a link that this tool may move"))
        lock = self.root / "lock"
        if os.path.lexists(lock) and not lock.is_file():
            found.append(in_the_way(lock, "it must be a plain file"))
        return tuple(found)

    def prepare(self) -> None:
        """Create the folders; a SETTINGS error if the root cannot hold them."""
        if blocked := self.in_the_way():
            raise CpuBuildError(*blocked)
        try:
            for name in LAYOUT:
                (self.root / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CpuBuildError(
                unusable(self.root, f"{error.strerror}: {error.filename}")
            ) from error

    def own(self) -> None:
        """Create the folders and the mark of a state root, for work that needs no lock."""
        self.prepare()
        (self.root / "lock").touch()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the state root alone; a BUSY error at once if another run has it."""
        from filelock import FileLock, Timeout

        self.prepare()
        holder = self.root / "lock.holder"
        lock = FileLock(self.root / "lock", timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            raise busy(self.root, holder) from error
        except OSError as error:
            raise CpuBuildError(
                unusable(self.root, f"{error.strerror}: {error.filename}")
            ) from error
        try:
            if sessions.end_recorded(self.running):
                ui.say("a run that was killed had left processes running; they are ended")
            holder.write_text(f"process {os.getpid()} since {now()}\n", encoding="utf-8")
            yield
        except OSError as error:
            if not self.refuses(error):
                raise
            place = error.filename or "while writing"
            raise CpuBuildError(unusable(self.root, f"{error.strerror}: {place}")) from error
        finally:
            lock.release()

    def refuses(self, error: OSError) -> bool:
        """Whether it is the state root that cannot be written, and not something else that failed.

        A full disk is told without a name.
        """
        if error.errno not in REFUSALS:
            return False
        named = error.filename2 or error.filename
        return named is None or Path(os.fsdecode(named)).is_relative_to(self.root)

    def current_env(self) -> Path | None:
        """The environment ``current`` points to, if it is there."""
        target = self.current
        if not target.is_symlink():
            return None
        try:
            resolved = target.resolve()
        except RuntimeError:  # a link to itself
            return None
        return resolved if (resolved / RECEIPT).is_file() else None

    def activate(self, env: Path) -> bool:
        """Let ``current`` point to ``env`` in one atomic step; False if it did already."""
        relative = os.path.relpath(env, self.root)
        if self.current.is_symlink() and os.readlink(self.current) == relative:  # noqa: PTH115
            return False
        beside = self.root / f".current.{os.getpid()}"
        beside.unlink(missing_ok=True)
        beside.symlink_to(relative)
        beside.replace(self.current)
        return True

    def environments(self) -> tuple[tuple[Path, dict[str, Any] | None], ...]:
        """Every environment with its receipt (None: incomplete), oldest first."""
        if not self.envs.is_dir():
            return ()
        found = [(p, receipt_of(p)) for p in self.envs.iterdir() if p.is_dir()]
        return tuple(sorted(found, key=lambda pair: (str((pair[1] or {}).get("created")), pair[0])))

    def installed(self, *, otherwise: str) -> Path:
        """The environment in use; a SETTINGS error if there is none, with another way to go on."""
        env = self.current_env()
        if env is not None:
            return env
        raise fail(
            ExitCode.SETTINGS,
            f"nothing is installed under {self.root}",
            why="there is no verified environment yet",
            remedy=("cpubuild bootstrap", otherwise),
        )

    def new_run(self, verb: str) -> Path:
        """Create the folder of this run; older runs beyond fifty are removed."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        folder = self.runs / f"{stamp}-{verb}-{os.getpid()}"
        self.prepare()
        folder.mkdir(exist_ok=True)
        old = sorted(p for p in self.runs.iterdir() if p.is_dir())[:-50]
        for path in old:
            shutil.rmtree(path, ignore_errors=True)
        return folder

    def last_run(self) -> Path | None:
        """The newest run's folder."""
        if not self.runs.is_dir():
            return None
        return max((p for p in self.runs.iterdir() if p.is_dir()), default=None)


def unusable(place: Path, reason: str) -> Problem:
    """The problem of a state root that cannot be written."""
    return Problem(
        what=f"the state root cannot be used: {place}: {reason}",
        why="sources, environments, wheels and receipts are kept there",
        remedy=(
            "give --state (or CPUBUILD_STATE) a folder that this user can write",
            f"ls -ld {place}",
        ),
        exit_code=ExitCode.SETTINGS,
    )


def in_the_way(path: Path, needed: str) -> Problem:
    """The problem of something below the state root that is of the wrong kind."""
    kind = "a folder" if path.is_dir() else "a file" if path.exists() else "a link to nothing"
    return Problem(
        what=f"{path} is in the way: it is {kind}, and {needed}",
        why="the state root keeps something of its own under this name",
        remedy=(f"mv {path} {path}.old", "give another --state (or CPUBUILD_STATE)"),
        exit_code=ExitCode.SETTINGS,
    )


def busy(root: Path, holder: Path) -> CpuBuildError:
    """The BUSY error, naming who holds the lock if that can be read."""
    who = "another process"
    with contextlib.suppress(OSError, UnicodeError):
        who = holder.read_text(encoding="utf-8").strip() or who
    return fail(
        ExitCode.BUSY,
        f"the state root {root} is in use by {who}",
        why="two runs would write the same environments",
        remedy=("wait for it to end and try again", "give another --state"),
    )


def _there(path: Path) -> bool:
    """Whether something is at ``path``; what cannot be looked at counts as not there."""
    try:
        return path.is_symlink() or path.exists()
    except OSError:
        return False


def writable(folder: Path) -> bool:
    """Whether a file can be made in ``folder``; even root cannot on a read-only mount."""
    read_only = bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    return os.access(folder, os.W_OK | os.X_OK) and not read_only


def receipt_of(env: Path) -> dict[str, Any] | None:
    """The receipt of an environment; None if it has none, or one that cannot be read as such."""
    try:
        kept = jsonio.read(env / RECEIPT)
    except CpuBuildError:
        return None
    shapes = (("verify", dict), ("vllm", dict), ("requests", list))
    good = kept is not None and all(isinstance(kept.get(n, k()), k) for n, k in shapes)
    return kept if good else None


def whole(env: Path) -> bool:
    """Whether an environment still has what it was made of.

    Every file of the vllm wheel with its size, torch's library, the interpreter, the command.
    """
    record = next(env.glob("lib/python3*/site-packages/vllm-*.dist-info/RECORD"), None)
    if record is None:
        return False
    base = record.parent.parent
    needed = (env / "bin/python", env / "bin/vllm", base / "torch/lib/libtorch_cpu.so")
    if not all(path.is_file() for path in needed):
        return False
    try:
        with record.open(encoding="utf-8", newline="") as rows:
            for name, _, size in csv.reader(rows):
                if size and (base / name).stat().st_size != int(size):
                    return False
    except (OSError, ValueError, csv.Error):
        return False
    return True


def now() -> str:
    """The time in UTC, ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def size_of(path: Path) -> int:
    """Bytes a folder takes on disk; a file with several names counts in full."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            with contextlib.suppress(OSError):
                total += (Path(folder) / name).lstat().st_size
    return total
