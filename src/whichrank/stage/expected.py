"""How long each block should take, learned from the iterations themselves.

The first iteration is warm-up and counts for nothing; the second one is the first expectation. After that a time within
ALPHA of what is expected becomes the expectation, so slow drift is followed; one beyond BETA is anomalous. An anomalous
time is never learned, however long it lasts: what is slow for an hour is not how the job should be. A job may become
faster for good (a neighbour left, a clock rose): what has been shorter than expected, by more than ALPHA, for
BETTER_AFTER iterations in a row is taken, the longest of them.

Example: of a block that took 0.9, 0.40, 0.41, 0.80 and 0.41 s, 0.41 s are expected, and the 0.80 s are anomalous.

Source: MegaTrace, section III.C and Algorithm 2. Its text keeps a running average; its algorithm, as here, takes the
latest time within ALPHA. An average lags behind a drift of some percent in each iteration, and loses it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

ALPHA: Final = 0.05
"""Share of what is expected by which a time may differ and still be taken as the new expectation (MegaTrace)."""
BETA: Final = 0.5
"""Share of what is expected beyond which a time that is longer is anomalous (MegaTrace)."""
BETTER_AFTER: Final = 5
"""Iterations in a row that were faster before it is believed: a block that was skipped or cut short once is no gain."""


class ExpectedTimes:
    """Of the blocks of one or several pipelines; memory does not grow with iterations.

    Args:
        alpha: As ALPHA.
        beta: As BETA.

    Attributes:
        expected_s: Seconds of each block, in the shape of the times; empty before the second iteration. NaN of a block
            that has no time yet.
    """

    def __init__(self, alpha: float = ALPHA, beta: float = BETA) -> None:
        self.expected_s: Floats = np.zeros(0)
        self._alpha, self._beta = alpha, beta
        self._is_warm = False
        self._better: Ints = np.zeros(0, np.int64)
        self._longest_better_s: Floats = np.zeros(0)

    def take(self, times_s: Floats) -> Bools:
        """Judge the times of one iteration, then learn from them.

        Args:
            times_s: Seconds of each block, (n,), or (pipelines, n), always in the same shape; NaN where it is not
                known.

        Returns:
            Which of them are anomalous, in the same shape.
        """
        if not self._is_warm:
            self._is_warm = True
            return np.zeros(times_s.shape, np.bool_)
        if not self.expected_s.size:
            self.expected_s = np.full(times_s.shape, np.nan)
            self._better = np.zeros(times_s.shape, np.int64)
            self._longest_better_s = np.zeros(times_s.shape)
        expected_s, known = self.expected_s, np.isfinite(times_s)
        anomalous: Bools = times_s > (1 + self._beta) * expected_s
        is_better = times_s < (1 - self._alpha) * expected_s
        self._better = np.where(known, np.where(is_better, self._better + 1, 0), self._better)
        longest_s = np.where(self._better > 1, np.maximum(self._longest_better_s, times_s), times_s)
        self._longest_better_s = np.where(is_better, longest_s, self._longest_better_s)
        near = np.abs(times_s - expected_s) <= self._alpha * expected_s
        is_learned = near | (np.isnan(expected_s) & known)
        self.expected_s = np.where(is_learned, times_s, expected_s)
        stays_better = self._better >= BETTER_AFTER
        self.expected_s[stays_better] = self._longest_better_s[stays_better]
        self._better[stays_better] = 0
        return anomalous
