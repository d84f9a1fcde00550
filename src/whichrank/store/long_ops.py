"""The latest operations of each rank that took long: in these it may have waited for others itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from whichrank.model.picture import Floats

LONG_S = 0.3
"""From issue to end."""
KEPT = 4
"""Of each rank."""
APART_S = 1.0
"""Two agents may be so far from each other."""


class LongOps:
    """From when to when ranks were in operations that took long and have completed. Seconds on the analyzer's clock."""

    def __init__(self) -> None:
        self._from_s = np.zeros((0, KEPT))
        self._to_s = np.zeros((0, KEPT))
        self._count = np.zeros(0, np.int64)

    def add(self, rank: NDArray[np.int64], issued_s: Floats, ended_s: Floats) -> None:
        """Take completed operations, in the order of their end for each rank."""
        long = ended_s - issued_s >= LONG_S
        if not long.any():
            return
        rank, issued_s, ended_s = rank[long].astype(np.int64), issued_s[long], ended_s[long]
        self._grow(int(rank.max()) + 1)
        order = np.argsort(rank, kind="stable")
        ranks, first, count = np.unique(rank[order], return_index=True, return_counts=True)
        place = np.arange(len(order)) - np.repeat(first, count)
        last = place >= np.repeat(count, count) - KEPT
        at = rank[order][last], (self._count[rank[order]] + place)[last] % KEPT
        self._from_s[at], self._to_s[at] = issued_s[order][last], ended_s[order][last]
        self._count[ranks] += count

    def forget(self, rank: int) -> None:
        """The rank's process was replaced."""
        if rank < len(self._count):
            self._from_s[rank] = self._to_s[rank] = 0.0

    def within(self, rank: int, begin_s: float, end_s: float) -> bool:
        """Was the rank in one of them at any time between these two, as far as clocks can say?"""
        if rank >= len(self._count):
            return False
        inside = (self._from_s[rank] < end_s + APART_S) & (self._to_s[rank] > begin_s - APART_S)
        return bool((inside & (self._to_s[rank] > 0)).any())

    def latest_s(self, ranks: Sequence[int]) -> Floats:
        """For each of these ranks, when the latest of them ended; 0 if there was none."""
        known = np.array([r if r < len(self._count) else -1 for r in ranks], np.int64)
        latest = np.append(self._to_s.max(axis=1, initial=0.0), 0.0)  # the last one is for ranks that have none
        return np.asarray(latest[known])

    def _grow(self, size: int) -> None:
        more = size - len(self._count)
        if more > 0:
            self._from_s = np.concatenate((self._from_s, np.zeros((more, KEPT))))
            self._to_s = np.concatenate((self._to_s, np.zeros((more, KEPT))))
            self._count = np.append(self._count, np.zeros(more, np.int64))
