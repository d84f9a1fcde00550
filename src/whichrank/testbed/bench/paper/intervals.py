"""How sure a share and an F1 score are, from so many runs.

A share has Wilson's interval, which is right for few runs and for shares of 0 and 1 too. F1 is no share of anything, so
its interval comes from resampling runs (bootstrap). Where all runs are right every resample is 1, and the interval says
nothing: the lower bounds of recall and precision do.

Sources: Wilson (1927); Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

CONFIDENCE: Final = 0.95
"""Share of such intervals that hold the true value, as is usual."""
RESAMPLES: Final = 4_000
"""Resamples of the runs: the 100 lowest and the 100 highest are left out."""
_Z: Final = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True)
class Estimate:
    """A value with its interval, in shares of 1.

    Attributes:
        value: The estimate.
        low: Lower end of the interval.
        high: Upper end.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Counts:
    """Runs by what came of them.

    Attributes:
        right: Something was due, and the right rank was named.
        wrong: Something was due, and another rank was named: missed, and a false name.
        silent: Something was due, and nobody was named.
        false: Nothing was due, and a wrong rank was named.
        other: Nothing was due and nobody was named, or the right rank was.
    """

    right: int = 0
    wrong: int = 0
    silent: int = 0
    false: int = 0
    other: int = 0

    @property
    def due(self) -> int:
        """Runs in which somebody is to be named."""
        return self.right + self.wrong + self.silent

    @property
    def false_names(self) -> int:
        """Runs in which a wrong rank was named."""
        return self.wrong + self.false

    @property
    def recall(self) -> Estimate | None:
        """Of the runs in which somebody is to be named, those with the right name; None without any."""
        return share(self.right, self.due)

    @property
    def precision(self) -> Estimate | None:
        """Of the names, those that are right; a right name where nothing was due is none of them."""
        return share(self.right, self.right + self.false_names)

    @property
    def f1(self) -> Estimate | None:
        """Harmonic mean of recall and precision, with a bootstrap over the runs that count; None without any."""
        if not self.due:
            return None
        runs = np.array([self.right, self.wrong, self.silent, self.false])
        drawn = np.random.default_rng(0).multinomial(runs.sum(), runs / runs.sum(), RESAMPLES)
        low, high = np.quantile(_f1(drawn), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        return Estimate(float(_f1(runs)), float(low), float(high))


def share(count: int, of: int) -> Estimate | None:
    """A share with Wilson's interval, None of nothing.

    Example: 8 of 10 are 0.80, from 0.49 to 0.94.
    """
    if not of:
        return None
    p, z2 = count / of, _Z * _Z
    middle = (p + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z * (p * (1 - p) / of + z2 / (4 * of * of)) ** 0.5 / (1 + z2 / of)
    return Estimate(p, max(0.0, middle - half), min(1.0, middle + half))


def _f1(counts: np.ndarray) -> np.ndarray:
    """Of rows of `Counts` but for `other`, (..., 4): 2 TP / (2 TP + FP + FN); 0 without any run."""
    right, wrong, silent, false = (counts[..., at] for at in range(4))
    below = 2 * right + 2 * wrong + silent + false
    return np.asarray(2 * right / np.maximum(below, 1))
