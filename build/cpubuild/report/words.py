"""Numbers as people read them: durations, sizes, shares, clock times."""

from __future__ import annotations

from datetime import UTC, datetime

TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400)


def duration(seconds: float) -> str:
    """Seconds in words: ``0.4 s``, ``48 s``, ``34 min 33 s``, ``1 h 02 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size(count: float) -> str:
    """Bytes in words, in powers of 1000."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:.0f} B"


def share(part: float, whole: float) -> str:
    """A part of a whole in per cent; neither nothing nor all is said of what is not."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    if 99.5 <= percent < 100:
        return ">99 %"
    return "<1 %" if 0 < percent < 1 else f"{percent:.0f} %"


def moment(clock: float) -> str:
    """A POSIX time as date and time in UTC."""
    return datetime.fromtimestamp(clock, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def tick(seconds: float) -> str:
    """A mark on the time axis."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min" if not rest else f"{minutes}:{rest:02d}"
    return f"{minutes // 60}:{minutes % 60:02d} h"


def tick_step(seconds: float, most: int) -> int:
    """The distance between marks so that ``seconds`` get at most ``most`` of them."""
    return next((t for t in TICKS if seconds / t <= most), 86400)


def count(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}".replace(",", "\u2009")
