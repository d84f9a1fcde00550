"""How many operations each rank issues in a second: with the operations of an iteration, how long one takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.store.growing import Growing

LEAST_S: Final = 1.0
"""Between two measurements of a rank."""
_NEWEST: Final = 0.3
"""Weight of the newest measurement; those before keep the rest."""


class OpRates:
    """By rank, smoothed: columns that grow with the highest rank."""

    def __init__(self) -> None:
        self._at_s, self._ordinal, self._rate = Growing(np.float64), Growing(np.int64), Growing(np.float64)

    def feed(self, rank: NDArray[Any], ordinal: NDArray[Any], now_s: float) -> None:
        """Take how many operations ranks have issued by now; no rank twice."""
        more = int(rank.max(initial=-1)) + 1 - len(self._at_s.rows)
        if more > 0:
            self._at_s.append(np.full(more, -np.inf))
            for column in (self._ordinal, self._rate):
                column.append(more)
        lasted_s = now_s - self._at_s.rows[rank]
        due = lasted_s >= LEAST_S
        rank, ordinal, lasted_s = rank[due], ordinal[due].astype(np.int64), lasted_s[due]
        issued, before = ordinal - self._ordinal.rows[rank], self._rate.rows[rank]
        now = issued / lasted_s  # 0 at the first measurement, which is endlessly long after none
        smoothed = np.where(before > 0, (1 - _NEWEST) * before + _NEWEST * now, now)
        self._rate.rows[rank] = np.where(issued > 0, smoothed, before)
        self._at_s.rows[rank], self._ordinal.rows[rank] = now_s, ordinal

    def known(self, most: int) -> Iterator[tuple[int, float]]:
        """Rank and operations per second of the first ranks, at the most so many, where that is known."""
        rates = self._rate.rows[:most]
        return ((rank, float(rates[rank])) for rank in np.flatnonzero(rates).tolist())
