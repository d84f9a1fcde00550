"""How long operations usually block a thread, per communicator: what lasts much longer is suspicious (DESIGN 5.2).

Histograms with two bins per octave, so a percentile is right within a factor of 1.4, for ever and in little memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.columns.counts import count_waits

BINS = 64
"""Two per octave of microseconds: up to 71 minutes, where the ring's own count ends."""
LEAST = 100
"""Operations before a percentile of one in a hundred means anything."""
MEMORY = 8192
"""Operations of a communicator after which the older ones count half."""


class UsualWaits:
    """Waits of completed operations by communicator."""

    def __init__(self) -> None:
        self._counts = np.zeros((0, BINS), np.float32)
        self._total = np.zeros(0)

    def add(self, comm: NDArray[np.int64], wait_us: NDArray[Any]) -> None:
        """Take completed operations.

        Args:
            comm: Index of the communicator of each.
            wait_us: How long a thread was blocked on it, in microseconds.
        """
        if not len(comm):
            return
        more = int(comm.max()) + 1 - len(self._counts)
        if more > 0:
            more = max(more, len(self._counts))
            self._counts = np.concatenate((self._counts, np.zeros((more, BINS), np.float32)))
            self._total = np.append(self._total, np.zeros(more))
        count_waits(comm, wait_us, self._counts, self._total)
        full = np.flatnonzero(self._total > MEMORY)
        self._counts[full] /= 2
        self._total[full] /= 2

    def p99_s(self, comm: int) -> float:
        """Seconds that 99 of 100 waits on a communicator stay below; 0 while too few are known."""
        if not 0 <= comm < len(self._counts):
            return 0.0
        counts, total = self._counts[comm], self._total[comm]
        if total < LEAST:
            return 0.0
        place = int(np.searchsorted(np.cumsum(counts), 0.99 * total))
        return float(2 ** ((place + 1) / 2)) / 1e6
