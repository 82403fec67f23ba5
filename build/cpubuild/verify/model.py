"""The report of a verification, as frozen data, as JSON and as lines of text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["quick", "default"]
CheckStatus = Literal["pass", "warn", "fail", "skip", "unknown"]
SCHEMA = "cpubuild/verify/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing looked at: what came out, in a sentence, with evidence and remedies.

    ``seconds`` is what finding out cost, 0 where it came with the answer to another check.
    ``unknown`` means it could not be told; it is never read as ``pass``.
    """

    id: str
    status: CheckStatus
    summary: str
    evidence: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The check as the schema has it."""
        return {
            "id": self.id,
            "status": self.status,
            "summary": self.summary,
            "evidence": list(self.evidence),
            "remedy": list(self.remedy),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class VllmAnswer:
    """The distribution that owns the module, and the version vLLM sees; None: there is none."""

    distribution: str | None = None
    version: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlatformAnswer:
    """The class of ``current_platform`` in a clean environment; None: it could not be asked."""

    cls: str | None = None
    is_cpu: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelAnswer:
    """File name of the kernel library in the process, and the widest ISA found in it.

    ``files`` holds (name, sha256) of every library in the module's folder; empty: not looked at.
    """

    library: str | None = None
    isa: str | None = None
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """A fixed workload, timed several times: tokens in each run (asked and generated), seconds.

    ``cpus`` is how many the process may use, ``others`` how many CPUs other processes kept busy
    meanwhile (None: it could not be told).
    """

    tokens: int
    runs: tuple[float, ...]
    cpus: int
    others: float | None = None

    @property
    def best(self) -> float:
        """Tokens per second in the fastest run, the one that was disturbed least."""
        return self.tokens / min(self.runs)

    @property
    def noise(self) -> float:
        """How much longer than the fastest the median run took, as a part of the fastest."""
        fastest = min(self.runs)
        return (sorted(self.runs)[len(self.runs) // 2] - fastest) / fastest

    def to_json(self) -> dict[str, Any]:
        """The measurement as the schema has it."""
        return {
            "tokens": self.tokens,
            "runs": [round(s, 4) for s in self.runs],
            "cpus": self.cpus,
            "others": None if self.others is None else round(self.others, 2),
            "tokens_per_second": round(self.best, 1),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Smoke:
    """How many tokens the first generation gave, and how many seconds it took without start.

    ``asked`` is the fingerprint of model and prompts, ``digest`` that of the tokens that came.
    """

    tokens: int
    seconds: float
    asked: str | None = None
    digest: str | None = None
    speed: Speed | None = None

    def to_json(self) -> dict[str, Any]:
        """The answer as the schema has it."""
        return {
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "asked": self.asked,
            "digest": self.digest,
            "speed": self.speed.to_json() if self.speed else None,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport:
    """Everything a verification found out; ``folder`` keeps logs and documents.

    ``unproved`` names the checks that the verdict needs and that were skipped or not decided: with
    any of them the verdict is ``fail``, even when no check failed.
    """

    verdict: Literal["pass", "fail"]
    level: Level
    target: str
    folder: str
    checks: tuple[Check, ...]
    seconds: float
    vllm: VllmAnswer = field(default_factory=VllmAnswer)
    platform: PlatformAnswer = field(default_factory=PlatformAnswer)
    kernels: KernelAnswer = field(default_factory=KernelAnswer)
    smoke: Smoke | None = None
    unproved: tuple[str, ...] = ()

    def check(self, id_: str) -> Check | None:
        """The check called ``id_``, None when it was not run."""
        return next((c for c in self.checks if c.id == id_), None)

    def to_json(self) -> dict[str, Any]:
        """The document that data/schemas/verify.json describes."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "level": self.level,
            "target": self.target,
            "folder": self.folder,
            "seconds": round(self.seconds, 3),
            "vllm": {"distribution": self.vllm.distribution, "version": self.vllm.version},
            "platform": {"class": self.platform.cls, "is_cpu": self.platform.is_cpu},
            "kernels": {
                "library": self.kernels.library,
                "isa": self.kernels.isa,
                "files": dict(self.kernels.files),
            },
            "smoke": self.smoke.to_json() if self.smoke else None,
            "unproved": list(self.unproved),
            "checks": [c.to_json() for c in self.checks],
        }

    def lines(self, *, verbose: bool = False) -> list[str]:
        """The report for people: a line per check, reasons and remedies under what is not well."""
        width = max((len(c.id) for c in self.checks), default=0)
        lines = []
        for check in self.checks:
            lines.append(f"{check.status:7} {check.id:{width}}  {check.summary}")
            if verbose or check.status in ("fail", "unknown"):
                lines += [f"{'':8}{e}" for e in check.evidence]
            if check.status in ("fail", "warn", "unknown"):
                lines += [f"{'':8}-> {r}" for r in check.remedy]
        if self.unproved:
            lines.append(f"not proved, and needed: {', '.join(self.unproved)}")
        failed = sum(c.status == "fail" for c in self.checks)
        lines.append(
            f"{self.verdict}: {len(self.checks)} checks, {failed} failed, "
            f"{self.seconds:.0f} s; logs in {self.folder}"
        )
        return lines
