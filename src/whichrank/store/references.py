"""When iterations began, by which the iterations of other ranks are numbered.

Ranks whose iterations begin with the same operations are about as far at the same time. Stages of a pipeline are not:
where one begins an iteration in the middle of another one's, two ranks of that stage might be numbered differently. So
a rank is numbered by ranks that begin as it does, and only the first of these by others.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

KEPT: Final = 64
"""Latest iterations of each sort, of whichever ranks."""
MOST_SORTS: Final = 256
"""Sorts of which iterations are kept."""
RECENT: Final = 16
"""Iterations: of a sort that has had none for longer, since a job has phases that take turns, others say more."""


class References:
    """The latest iterations, by the sort of their beginning; times are on the analyzer's clock."""

    def __init__(self) -> None:
        self._of: dict[int, deque[tuple[float, int]]] = {}
        self._now: dict[int, int] = {}  # how many of them are of iterations that begin as they do now
        self._latest = -1  # the sort of the latest one

    def has_recent(self, sort: int, at_s: float) -> bool:
        """Whether an iteration of this sort began shortly before or after this time."""
        known = self._of.get(sort)
        return known is not None and abs(known[-1][0] - at_s) <= RECENT * _each_s(known)

    def add(self, sort: int, at_s: NDArray[np.float64], number: NDArray[np.int64]) -> None:
        """Take iterations of a rank: when they began, and their numbers, (n,)."""
        if sort not in self._of and len(self._of) >= MOST_SORTS:
            return
        self._of.setdefault(sort, deque(maxlen=KEPT)).extend(zip(at_s.tolist(), number.tolist(), strict=True))
        self._now[sort] = self._now.get(sort, 0) + len(number)
        self._latest = sort

    def begin_anew(self) -> None:
        """Iterations begin with something else than before: how long they took says nothing."""
        self._now.clear()

    def number_at(self, sort: int, at_s: float) -> int | None:
        """The number of an iteration of this sort that began at that time; None if there is nothing to go by."""
        known = self._of.get(sort if self.has_recent(sort, at_s) else self._latest)
        if not known:
            return None
        nearest_s, number = min(known, key=lambda one: abs(one[0] - at_s))
        each_s = _each_s(known)
        return max(0, number + (round((at_s - nearest_s) / each_s) if each_s > 0 else 0))

    def iteration_s(self) -> float:
        """Seconds from one iteration to the next, by the latest ones; 0 while that is not known."""
        known, now = self._of.get(self._latest), min(self._now.get(self._latest, 0), KEPT)
        return _each_s(deque(islice(known, len(known) - now, None))) if known and now else 0.0


def _each_s(iterations: deque[tuple[float, int]]) -> float:
    """Seconds from one of these iterations to the next, by when they began and their numbers; one at least."""
    at_s, number = (np.array(column) for column in zip(*iterations, strict=True))
    return float(np.ptp(at_s) / max(np.ptp(number), 1))
