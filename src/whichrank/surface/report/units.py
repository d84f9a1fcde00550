"""Units and times of a page: one unit for all values of a quantity, and moments in UTC."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

LISTED = 32


@dataclass(frozen=True)
class Unit:
    """A unit of time, with as many digits as tell the values of a quantity apart.

    Attributes:
        name: `s`, `ms` or `µs`.
        per_s: How many of it a second has.
        digits: Behind the point.
    """

    name: str
    per_s: float
    digits: int

    def text(self, seconds: float) -> str:
        """The number without the unit."""
        return f"{seconds * self.per_s:,.{self.digits}f}"

    def full(self, seconds: float) -> str:
        """The number with the unit."""
        return f"{self.text(seconds)} {self.name}"


def unit_of(seconds: Iterable[float]) -> Unit:
    """The unit in which to show all of these. Example: 0.0528 s and 1.3 s are 53 ms and 1,300 ms."""
    known = sorted(abs(value) for value in seconds if value and math.isfinite(value))
    middle = known[len(known) // 2] if known else 1.0
    if middle >= 2:
        return Unit("s", 1.0, 1)
    if middle >= 1e-3:
        return Unit("ms", 1e3, 0 if middle >= 0.1 else 1)
    return Unit("µs", 1e6, 0)


def utc(at_s: float, digits: int = 3) -> str:
    """`14:10:15.234` of seconds since 1970."""
    moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=round(at_s, digits))
    return f"{moment:%H:%M:%S}" + (f".{moment.microsecond:06d}"[: digits + 1] if digits else "")


def day(at_s: float) -> str:
    """`2026-11-25`."""
    return f"{datetime.fromtimestamp(0, UTC) + timedelta(seconds=round(at_s, 3)):%Y-%m-%d}"


def moment(at: datetime) -> str:
    """`2026-11-25 14:10:15.234 UTC`."""
    return moment_s(at.timestamp())


def moment_s(at_s: float) -> str:
    """The same of seconds since 1970."""
    return f"{day(at_s)} {utc(at_s)} UTC"


def ticks(from_s: float, to_s: float, most: int = 5) -> list[float]:
    """Round moments in a stretch of time: at most so many, and at least half as many."""
    raw = (to_s - from_s) / most
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= raw)
    return [step * n for n in range(math.ceil(from_s / step), math.floor(to_s / step) + 1)]


def digits_of(step_s: float) -> int:
    """Digits that tell moments so far apart from each other."""
    return min(6, max(0, -math.floor(math.log10(step_s)))) if step_s > 0 else 3


def ranges(ranks: NDArray[np.int64]) -> str:
    """`0-3, 5`: at most so many pieces, then how many more there are."""
    if not len(ranks):
        return ""
    pieces = np.split(ranks, np.flatnonzero(np.diff(ranks) != 1) + 1)
    texts = [
        str(int(piece[0])) if len(piece) == 1 else f"{int(piece[0])}-{int(piece[-1])}" for piece in pieces[:LISTED]
    ]
    more = sum(map(len, pieces[LISTED:]))
    return ", ".join(texts) + (f" and {more} more" if more else "")


def counted(count: int, noun: str = "rank") -> str:
    """`1 rank`, `1,204 ranks`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
