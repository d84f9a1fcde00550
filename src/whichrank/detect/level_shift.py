"""Is the difference between two levels of a series more than its noise? Medians, and a test that assumes no shape.

The series may have heavy tails, or a slow iteration now and then for a checkpoint. So nothing is taken to be normal:
what counts is how often single values of the series were that far off their level before.

Example: iterations take 1.0 s, and of the last 60 one took 1.5 s. Three in a row of 1.5 s come by chance with a
likelihood of (2/62)^3 = 3e-5, five in a row with 3e-8.
"""

from __future__ import annotations

from math import comb
from typing import Final

import numpy as np

from whichrank.model.iterations import Bools, Floats, Ints
from whichrank.model.spread import SIGMA_PER_MAD

KEPT: Final = 64
"""Latest values of a series that are compared: twice the length from which a median is good to a fifth of the noise."""
LEAST_VALUES: Final = 3
"""Values of a new level, at the least: one or two slow iterations are a pause."""
CHANCE: Final = 3.3e-5
"""Likelihood that three values are that far off by chance, below which they are a new level. Three suffice if none of
the 30 values before was so far off, or one of 61."""
MEDIAN_ERROR: Final = 1.25
"""Standard error of a median of n normal values, in their standard deviation divided by the root of n."""
_WAYS = np.array([[comb(n, k) for k in range(KEPT + 1)] for n in range(KEPT + 1)], np.float64)
"""In how many ways k of n values can be hits, at [n, k]."""


def is_shift(
    values: Floats,
    its_level: Floats,
    is_new: Bools,
    before: Floats,
    after: Floats,
    least_change: Floats,
    least_spreads: Floats,
) -> Bools:
    """Whether the new level of each series is more than noise.

    Args:
        values: The latest values of each series, (m, n) with m at most `KEPT`.
        its_level: The level that each value belongs to, NaN for values that do not count, (m, n).
        is_new: Values of the new level, at least one for each series, (m, n).
        before: The level before, (n,).
        after: The new level, (n,).
        least_change: How much the levels must differ, beyond the standard error of the new one, (n,).
        least_spreads: How much they must differ, in spreads of the values around their levels, (n,).

    Returns:
        True where the levels differ by so much, and the new level would hardly come by
        chance, (n,). Of a longer run the chance must be smaller, since it had more places to begin: with length^-2.
    """
    size, direction = np.abs(after - before), np.sign(after - before)
    spread = SIGMA_PER_MAD * medians(np.abs(values - its_level), np.isfinite(its_level))
    off = direction * (values - np.where(is_new, before, its_level))
    with np.errstate(invalid="ignore"):
        is_hit = off >= size / 2
    is_earlier = np.isfinite(its_level) & ~is_new
    usual_share = ((is_hit & is_earlier).sum(axis=0) + 1) / (is_earlier.sum(axis=0) + 2)
    length = is_new.sum(axis=0)
    chance = at_least((is_hit & is_new).sum(axis=0), length, usual_share)
    least = np.maximum(least_change + MEDIAN_ERROR * spread / np.sqrt(length), least_spreads * spread)
    return np.asarray((size >= least) & (chance <= CHANCE * (LEAST_VALUES / length) ** 2))


def medians(values: Floats, which: Bools) -> Floats:
    """The median of some values of each column; infinite where there are none.

    Args:
        values: (m, n).
        which: Those that count, (m, n).

    Returns:
        (n,).
    """
    count = np.maximum(which.sum(axis=0), 1)
    in_order = np.sort(np.where(which, values, np.inf), axis=0)
    column = np.arange(values.shape[1])
    return np.asarray((in_order[(count - 1) // 2, column] + in_order[count // 2, column]) / 2)


def at_least(hits: Ints, trials: Ints, share: Floats) -> Floats:
    """How likely so many hits or more are by chance (binomial distribution).

    Args:
        hits: (n,).
        trials: `KEPT` at most, (n,).
        share: Likelihood of a hit, (n,).

    Returns:
        (n,).
    """
    k = np.arange(KEPT + 1)[:, None]
    terms = _WAYS[trials].T * share**k * (1 - share) ** np.maximum(trials - k, 0)
    return np.asarray(np.where(k >= hits, terms, 0).sum(axis=0))
