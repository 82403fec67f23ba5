"""What `tune --measure` tries, and which of it is best; nothing is run here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cpubuild.tune import preload, threads
from cpubuild.tune.kept import Kept
from cpubuild.tune.model import Tuning

DEFAULT = "vLLM's default"
COMPUTED = "as computed"
OURS = (preload.NAME, threads.BIND, threads.RESERVED, threads.COUNT)
NOISE = 0.03
"""Two runs of one setting differ by about so much; less counts as equal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One setting: ``changes`` against what was computed; None takes a variable or option out."""

    name: str
    variables: tuple[tuple[str, str | None], ...] = ()
    dtype: str | None = None
    plain: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a trial gave, in tokens per second (the best run); ``failure`` "" when it ended well.

    ``start`` is in seconds, ``others`` the CPUs that other processes used meanwhile.
    """

    trial: Trial
    single: float = 0.0
    batch: float = 0.0
    start: float = 0.0
    others: float | None = None
    failure: str = ""


def trials(tuning: Tuning, *, cpus: int, other_dtype: str | None) -> tuple[Trial, ...]:
    """The default first, what was computed, then one change at a time of what matters here."""
    have = {v.name: v.value for v in tuning.variables}
    found = [Trial(name=DEFAULT, plain=True), Trial(name=COMPUTED)]
    if preload.NAME in have:
        found.append(Trial(name="LD_PRELOAD left to vLLM", variables=((preload.NAME, None),)))
    found += binding(have, cpus)
    if other_dtype is not None:
        found.append(Trial(name=f"in {other_dtype}", dtype=other_dtype))
    return tuple(found)


def binding(have: Mapping[str, str], cpus: int) -> list[Trial]:
    """One core less or one more for the computation, where the threads are bound by a list."""
    bound = have.get(threads.BIND, "")
    if not bound or "|" in bound or not bound[0].isdigit():
        return []
    mine = numbers(bound)
    if len(mine) > 2 and have.get(threads.RESERVED) == "0":
        fewer = threads.ranges(mine[:-1])
        return [Trial(name="one core left idle", variables=((threads.BIND, fewer),))]
    if len(mine) == 2 and cpus == 2:
        one = threads.ranges(mine[-1:])
        return [Trial(name="one core alone", variables=((threads.BIND, one),))]
    return []


def numbers(text: str) -> tuple[int, ...]:
    """The CPUs of a list such as 0-3,8."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def score(measured: Measured, base: Measured) -> float:
    """How much faster than the default: the geometric mean over one stream and the batch."""
    return math.sqrt(measured.single / base.single * measured.batch / base.batch)


def best(seen: Sequence[Measured]) -> Measured:
    """The fastest that is nowhere slower than the default, computed before others of its speed.

    The first of ``seen`` is the default; where it failed, the fastest of the rest.
    """
    base = seen[0]
    well = [m for m in seen if not m.failure]
    if base.failure:
        return max(well, key=lambda m: math.sqrt(m.single * m.batch))
    good = [m for m in well if m is base or (m.single >= base.single and m.batch >= base.batch)]
    top = max(score(m, base) for m in good)
    near = [m for m in good if score(m, base) >= top * (1 - NOISE)]
    computed = [m for m in near if m.trial.name == COMPUTED]
    return computed[0] if computed else max(near, key=lambda m: score(m, base))


def kept_of(chosen: Measured, base: Measured, tuning: Tuning, day: str) -> Kept:
    """What is kept of a choice: its changes against what was computed, and the numbers."""
    have = {v.name for v in tuning.variables}
    variables = chosen.trial.variables
    if chosen.trial.plain:
        variables = tuple((name, None) for name in OURS if name in have)
    options = (("--dtype", chosen.trial.dtype),) if chosen.trial.dtype else ()
    compared = (
        f"vLLM's default: {base.single:.1f} and {base.batch:.1f}"
        if not base.failure
        else f"vLLM's default did not start: {base.failure}"
    )
    return Kept(
        variables=variables,
        options=options,
        said=f"measured {day}, {chosen.trial.name}: {chosen.single:.1f} tokens/s for one stream, "
        f"{chosen.batch:.1f} for eight; {compared}",
        measured={},
    )


def rows(seen: Sequence[Measured], chosen: Measured) -> list[str]:
    """The table of what was seen."""
    base = seen[0]
    width = max(len(m.trial.name) for m in seen)
    shown = [f"{'':<{width}}   one stream  eight streams  against the default"]
    for m in seen:
        mark = "*" if m is chosen else " "
        if m.failure:
            shown.append(f"{m.trial.name:<{width}} {mark} failed: {m.failure}")
            continue
        ratio = (
            "" if base.failure else f"{m.single / base.single:.2f} x, {m.batch / base.batch:.2f} x"
        )
        shown.append(f"{m.trial.name:<{width}} {mark} {m.single:>10.2f}  {m.batch:>13.2f}  {ratio}")
    return [*shown, "tokens per second; * is kept"]


def document(seen: Sequence[Measured], chosen: Measured) -> list[dict[str, object]]:
    """The table as data."""
    return [
        {
            "name": m.trial.name,
            "single": m.single if not m.failure else None,
            "batch": m.batch if not m.failure else None,
            "start_seconds": m.start if not m.failure else None,
            "others": m.others,
            "failure": m.failure or None,
            "chosen": m is chosen,
        }
        for m in seen
    ]
