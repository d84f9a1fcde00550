"""The operations completed last, as they came: what each member issued in a round is asked in doubt only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.columns.rounds import Lately

Ints = NDArray[np.int64]
Numbers = NDArray[np.uint32]
KEPT_OF_A_RANK = 1 << 15
"""Operations, on average: half a minute of a thousand in a second."""
MOST_KEPT = 1 << 23
"""Of all ranks together."""
_AT_FIRST = 1 << 14
"""Room at first: most jobs are small."""


class DoneLately:
    """A buffer that is written round: twenty bytes for each operation, as many as the ranks may have together."""

    def __init__(self) -> None:
        self._columns: list[NDArray[Any]] = [np.zeros(_AT_FIRST, kind) for kind in ("i4", "i4", "u4", "u4", "u4")]
        self._next = 0  # the place that is written next
        self._is_full = False

    def room_for(self, more: int, ranks: int) -> Lately:
        """The buffer for whoever has this many operations of a job of this many ranks to write."""
        self._make_room(more, min(MOST_KEPT, KEPT_OF_A_RANK * ranks))
        comm, member, counter, sign, ordinal = self._columns
        return Lately.of(
            size=len(comm), next=self._next, comm=comm, member=member, counter=counter, sign=sign, ordinal=ordinal
        )

    def written(self, lately: Lately, count: int) -> None:
        """So many were written there."""
        self._is_full = self._is_full or self._next + count >= lately.size
        self._next = lately.next

    def of(self, comm: int, counter: int) -> tuple[NDArray[np.int32], Numbers, Numbers]:
        """Member, signature and ordinal of each operation of one round that is still there, of each member once.

        An agent that is started anew reports what the ring still has once more: what came last counts.
        """
        comms, members, counters, signs, ordinals = self._columns
        known = len(comms) if self._is_full else self._next
        at = np.flatnonzero(comms[:known] == comm)
        at = at[counters[at] == counter]
        newest_first = at[np.argsort((at - self._next) % len(comms))][::-1]
        _, once = np.unique(members[newest_first], return_index=True)
        at = newest_first[once]
        return members[at], signs[at], ordinals[at]

    def forget(self) -> None:
        """Forget all."""
        self._next, self._is_full = 0, False

    def _make_room(self, more: int, limit: int) -> None:
        """Grow to what is wanted, as far as it is allowed."""
        size = len(self._columns[0])
        known = size if self._is_full else self._next
        if size >= limit or known + more <= size:
            return
        for at, column in enumerate(self._columns):
            in_order = np.concatenate((column[self._next :], column[: self._next])) if self._is_full else column
            self._columns[at] = np.zeros(min(max(2 * size, known + more), limit), column.dtype)
            self._columns[at][:known] = in_order[:known]
        self._next, self._is_full = known, False
