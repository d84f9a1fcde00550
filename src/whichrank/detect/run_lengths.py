"""Bayesian online change-point detection of many series at once: with which value has the present level begun?

A *run* is the hypothesis that the present level of a series began with some value. The exact recursion (Adams and
MacKay, 2007; Greyhound section 4.2) keeps a run for every value that ever came. Here each series keeps a few: a new
run takes the place of the least likely one, so memory and time are bounded. The sum of what was dropped is small,
because a run that explains the values badly loses likelihood with each of them.

The values of a run are normal with unknown mean and variance, so the next one has a Student's t distribution. The
likelihoods are logarithms: those of long runs would underflow.

Under a constant hazard the likelihood of "the level begins with the next value" *is* the hazard, whatever the values
are. So a threshold on it, as papers write it, never fires. `begun_after` gives what can be used: the likelihood that
the present level began after a given value.

Example: 20 values around 0 and then 3 around 8. The likelihood that the level began after value 0 is 0.004 before
them and above 0.99 after them, and the likeliest first value is number 20.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.iterations import Floats, Ints

Floats32 = NDArray[np.float32]
RUNS: Final = 8
"""Runs of each series. A true change needs two, the old level and the new; outliers lately seen take the others."""
HAZARD: Final = 1 / 250
"""Prior likelihood that a level ends with a value: one change in 250. Three values of another level outweigh it."""
LONGEST_RUN: Final = 512
"""Values of a run that count. Older ones fade, so that a long run goes on learning, and tables stay short."""
PRIOR_MEAN_WEIGHT: Final = 0.1
"""Values that the prior mean of a new level counts for: little, since a new level may be anywhere."""
PRIOR_VARIANCE_WEIGHT: Final = 1.0
"""Half of the values that the prior variance counts for: it is that of the series, which a new level mostly keeps."""
LARGEST_OFFSET: Final = 1e15
"""Largest distance from the prior mean, in its spreads. Sums of squares of it fit into a float of 32 bits."""
_COUNT = np.arange(LONGEST_RUN + 1)
_MEAN_WEIGHT = PRIOR_MEAN_WEIGHT + _COUNT
_VARIANCE_WEIGHT = PRIOR_VARIANCE_WEIGHT + _COUNT / 2
_LOG_GAMMA = np.array([math.lgamma(PRIOR_VARIANCE_WEIGHT + n / 2) for n in range(LONGEST_RUN + 2)])
# By the values that a run has, (LONGEST_RUN + 1,) each.
_MEAN_STEP = (1 / (_MEAN_WEIGHT + 1)).astype(np.float32)
_SCALE_STEP = (_MEAN_WEIGHT / (2 * (_MEAN_WEIGHT + 1))).astype(np.float32)
_EXPONENT = (_VARIANCE_WEIGHT + 0.5).astype(np.float32)
_LOG_NORM = (np.diff(_LOG_GAMMA) - 0.5 * np.log(2 * np.pi * (_MEAN_WEIGHT + 1) / _MEAN_WEIGHT)).astype(np.float32)
_FADE = np.float32(_VARIANCE_WEIGHT[-1] / (_VARIANCE_WEIGHT[-1] + 0.5))
"""Keeps the variance of a full run what it is, though its weight grows no more."""
_LOG_HAZARD: Final = np.float32(math.log(HAZARD))
_LOG_GOES_ON: Final = np.float32(math.log1p(-HAZARD))


class RunLengths:
    """The likeliest runs of each of many series.

    Values come in units of the series: a series has mean 0 and spread 1 before anything is known of a level. Each
    series takes 16 bytes for each of its runs.

    Args:
        series: How many.
        runs: Of each.
    """

    def __init__(self, series: int, runs: int = RUNS) -> None:
        self._log_p = np.full((runs, series), -np.inf, np.float32)
        self._log_p[0] = 0.0  # the first value begins a level
        self._began = np.zeros((runs, series), np.int32)
        self._mean = np.zeros((runs, series), np.float32)
        self._scale = np.ones((runs, series), np.float32)  # of the gamma distribution of the precision

    @property
    def nbytes(self) -> int:
        """Memory of all series."""
        return sum(column.nbytes for column in (self._log_p, self._began, self._mean, self._scale))

    def feed(self, of: Ints | slice, number: Ints, values: Floats) -> None:
        """Take one value of each of some series: each run takes it, and one more run begins behind it.

        Args:
            of: Which series, none twice, (n,).
            number: The number of the value in its series, from 0, (n,).
            values: (n,).
        """
        log_p, began, mean, scale = (x[:, of] for x in (self._log_p, self._began, self._mean, self._scale))
        count = np.minimum(number.astype(np.int32) - began, LONGEST_RUN)
        off = np.clip(values, -LARGEST_OFFSET, LARGEST_OFFSET).astype(np.float32) - mean
        added = _SCALE_STEP[count] * off * off
        joint = log_p + _LOG_NORM[count] - np.float32(0.5) * np.log(scale) - _EXPONENT[count] * np.log1p(added / scale)
        joint -= joint.max(axis=0)
        log_p = joint - (np.log(np.exp(joint).sum(axis=0)) - _LOG_GOES_ON)
        mean = mean + _MEAN_STEP[count] * off
        scale = scale + added
        is_full = count == LONGEST_RUN
        if is_full.any():
            scale = np.where(is_full, scale * _FADE, scale)
        dropped, column = log_p.argmin(axis=0), np.arange(len(number))
        log_p -= np.log1p(-np.exp(log_p[dropped, column]))
        began = began.copy()  # of a slice it is a view
        log_p[dropped, column], began[dropped, column] = _LOG_HAZARD, number + 1
        mean[dropped, column], scale[dropped, column] = 0.0, 1.0
        self._log_p[:, of], self._began[:, of], self._mean[:, of], self._scale[:, of] = log_p, began, mean, scale

    def begun_after(self, of: Ints | slice, number: Ints) -> tuple[Floats32, Ints]:
        """How likely the present levels of some series began after a value, and with which they did most likely.

        Args:
            of: Which series, (n,).
            number: The number of the value, (n,).

        Returns:
            The likelihood, (n,), and the number of the first value of the likeliest run that began later, (n,).
        """
        began = self._began[:, of]
        p = np.where(began > number, np.exp(self._log_p[:, of]), 0)
        return p.sum(axis=0), began[p.argmax(axis=0), np.arange(p.shape[1])].astype(np.int64)

    def likelihoods(self, one: int) -> dict[int, float]:
        """By number of a value: how likely the present level of a series begins with it. The last is still to come."""
        kept = np.flatnonzero(np.isfinite(self._log_p[:, one]))
        p = np.exp(self._log_p[kept, one].astype(np.float64))
        return dict(zip(self._began[kept, one].tolist(), p.tolist(), strict=True))
