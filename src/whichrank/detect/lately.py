"""What ranks lost in iterations before those of a window: for whether a slowdown is new, or goes from rank to rank.

A window holds few iterations where they are long, and after an onset soon none from before it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.iterations import Floats, Ints, Window

KEPT: Final = 64
"""Iterations that are remembered, 256 bytes of each rank: after so many a slowdown need not be new to be believed."""


class LostLately:
    """By rank and iteration: seconds beyond the usual of its position, as they were seen first."""

    def __init__(self) -> None:
        self._lost_s = np.zeros((0, KEPT), np.float32)
        self._number = np.full(KEPT, -1, np.int64)  # of the iteration in each column
        self._count = 0

    def take(self, window: Window, lost_s: Floats) -> None:
        """Take the iterations of a window that are new.

        Args:
            window: Iterations of R ranks.
            lost_s: Of these, (R, n).
        """
        if len(window.iteration) and window.iteration[-1] < self._number.max():  # they are counted anew
            self._number[:] = -1
        size = int(window.ranks.max(initial=-1)) + 1
        if size > len(self._lost_s):
            more = np.zeros((size - len(self._lost_s), KEPT), np.float32)
            self._lost_s = np.concatenate((self._lost_s, more))
        for column in np.flatnonzero(window.iteration > self._number.max())[-KEPT:].tolist():
            at = self._count % KEPT
            self._lost_s[:, at] = 0.0
            self._lost_s[window.ranks, at] = lost_s[:, column]
            self._number[at] = window.iteration[column]
            self._count += 1

    def before(self, ranks: Ints, iteration: int) -> NDArray[np.float32]:
        """What these ranks lost in iterations with smaller numbers, in order, (len(ranks), k)."""
        order = np.argsort(self._number)
        order = order[(self._number[order] >= 0) & (self._number[order] < iteration)]
        found: NDArray[np.float32] = self._lost_s[np.ix_(ranks, order)]
        return found
