"""What is measured: a number with its n, its range, and what it must not exceed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    Attributes:
        what: What is measured, in words.
        ranks: Size of the job.
        n: How many samples.
        median: Their median.
        low: The smallest.
        high: The largest.
        unit: Of the three.
        limit: What the median must not exceed; None: nothing is asked.
        is_right: Whether what was said of the job is true; None: nothing was said.
    """

    what: str
    ranks: int
    n: int
    median: float
    low: float
    high: float
    unit: str
    limit: float | None = None
    is_right: bool | None = None

    @property
    def is_met(self) -> bool:
        """Whether all that is asked of it is so."""
        return self.is_right is not False and (self.limit is None or self.median <= self.limit)


def figure(
    what: str, ranks: int, samples: Sequence[float], unit: str, limit: float | None = None,
    is_right: bool | None = None,
) -> Figure:  # fmt: skip
    """Median and range of samples."""
    middle = statistics.median(samples)
    return Figure(what, ranks, len(samples), middle, min(samples), max(samples), unit, limit, is_right)
