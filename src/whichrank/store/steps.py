"""Optimizer steps: where an iteration ends, by the program's own word.

torch calls a hook after each `Optimizer.step`, and the sensor writes it among the records. Steps with no operation in
between (one optimizer per part of a model) are one. Where there are none (an optimizer that is compiled or not torch's)
iterations are counted by their period, if at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT = 64
"""Of each rank."""


@dataclass(frozen=True)
class LatestSteps:
    """The latest steps of some ranks.

    Attributes:
        number: Of each, from 1; 0: none is known, (R,).
        at_ns: When it was made, on the clock of its host, (R,).
        lasted_ns: What the latest two iterations took, the shorter one: a single long one says nothing of the next. 0:
            not known, (R,).
    """

    number: NDArray[np.int64]
    at_ns: NDArray[np.int64]
    lasted_ns: NDArray[np.int64]


class Steps:
    """The latest optimizer steps of each rank. Times are nanoseconds on each host's own clock."""

    def __init__(self) -> None:
        self._count = np.zeros(0, np.int64)
        self._counter = np.zeros((0, KEPT), np.int64)  # which step stands in each place; some may never be reported
        self._ordinal = np.zeros((0, KEPT), np.int64)
        self._at_ns = np.zeros((0, KEPT), np.int64)

    def feed(self, rank: NDArray[Any], rows: np.ndarray[Any, Any]) -> None:
        """Take steps.

        Args:
            rank: Of each row.
            rows: Rows of RECORD: `counter` counts the steps of the process, `ordinal` the operations begun before.
        """
        if not len(rows):
            return
        self._grow(int(rank.max()) + 1)
        rank, counter = rank.astype(np.int64), rows["counter"].astype(np.int64)
        self._counter[rank, counter % KEPT] = counter
        self._ordinal[rank, counter % KEPT] = rows["ordinal"]
        self._at_ns[rank, counter % KEPT] = rows["t_issue_ns"]
        np.maximum.at(self._count, rank, counter)

    def forget(self, rank: int) -> None:
        """The rank's process was replaced."""
        if rank < len(self._count):
            self._count[rank] = self._counter[rank] = self._ordinal[rank] = self._at_ns[rank] = 0

    def count(self, rank: int) -> int:
        """Steps that a rank has begun; 0: none is known."""
        return int(self._count[rank]) if rank < len(self._count) else 0

    def iteration_of(self, rank: int, ordinal: int) -> int | None:
        """The iteration to which an operation belongs, from 0; None if that is not known or too long ago."""
        count = self.count(rank)
        if not count:
            return None
        known = self._known(rank)
        before = known[self._ordinal[rank, known % KEPT] < ordinal]
        if not len(before):
            return 0 if known[0] == 1 else None
        after = known[len(before) : len(before) + 1]
        # Between two steps of which those in between were never reported it is not known which.
        return int(before[-1]) if not len(after) or after[0] == before[-1] + 1 else None

    def begun_ns(self, rank: int, iteration: int) -> int:
        """When a rank began an iteration, on the clock of its host; 0 if that is not known."""
        known = 0 < iteration <= self.count(rank) and self._counter[rank, iteration % KEPT] == iteration
        return int(self._at_ns[rank, iteration % KEPT]) if known else 0

    def iteration_s(self, ranks: int) -> float:
        """Seconds from step to step, the median over this many ranks at most; 0 while it is not known."""
        counter, count = self._counter[:ranks], self._count[:ranks, None]
        known = (counter > 0) & (counter > count - KEPT)
        first, last = np.where(known, counter, count).min(axis=1), np.where(known, counter, 0).max(axis=1)
        several = np.flatnonzero(last > first)
        if not len(several):
            return 0.0
        first, last, at_ns = first[several], last[several], self._at_ns[several]
        row = np.arange(len(several))
        return float(np.median((at_ns[row, last % KEPT] - at_ns[row, first % KEPT]) / (last - first))) / 1e9

    def latest(self, ranks: NDArray[np.int64]) -> LatestSteps:
        """The latest step of each of these ranks; of one that was not reported 0."""
        count, at_ns, lasted_ns = (np.zeros(len(ranks), np.int64) for _ in range(3))
        known = np.flatnonzero(ranks < len(self._count))
        rank = ranks[known]
        count[known] = self._count[rank]
        at_ns[known] = self._at_ns[rank, count[known] % KEPT]
        three = count[known, None] - np.arange(3)
        has_three = (self._counter[rank[:, None], three % KEPT] == three).all(axis=1) & (count[known] > 2)
        shorter_ns = -np.diff(self._at_ns[rank[:, None], three % KEPT], axis=1).max(axis=1, initial=-(1 << 62))
        lasted_ns[known] = np.where(has_three, shorter_ns, 0)
        return LatestSteps(count, at_ns, lasted_ns)

    def _known(self, rank: int) -> NDArray[np.int64]:
        """The latest steps of a rank that were reported, oldest first."""
        count = self.count(rank)
        latest = np.arange(max(1, count - KEPT + 1), count + 1)
        return latest[self._counter[rank, latest % KEPT] == latest] if count else latest[:0]

    def _grow(self, size: int) -> None:
        more = size - len(self._count)
        if more > 0:
            more = max(more, len(self._count))
            self._count = np.append(self._count, np.zeros(more, np.int64))
            self._counter = np.concatenate((self._counter, np.zeros((more, KEPT), np.int64)))
            self._ordinal = np.concatenate((self._ordinal, np.zeros((more, KEPT), np.int64)))
            self._at_ns = np.concatenate((self._at_ns, np.zeros((more, KEPT), np.int64)))
