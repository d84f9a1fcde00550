"""The tables of a ring as they are read: working memory for two readings, and the rows that both agree on.

A row counts if its version was even and is the same at the second reading; its content is that of the first. Pairs have
no version: their key is claimed first and taken away last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whichrank.model.rows import FRAME, HEADER, INFLIGHT_ROW, PAIR, WAIT
from whichrank.ring.layout import INFLIGHT, PAIRS, RING, WAITS

Rows = NDArray[np.void]


def offset(field: str, dtype: np.dtype[np.void] = RING) -> int:
    """Where a field begins, in bytes."""
    fields = dtype.fields
    assert fields is not None
    return int(fields[field][1])


_SPLITS_HEAD_AT = offset("splits_head")
_FRAME_AT, _INFLIGHT_AT, _WAIT_AT, _PAIR_AT = offset("frame"), offset("inflight"), offset("wait"), offset("pair")
_NO_FRAME = np.empty(0, FRAME)
_TABLES_END = _PAIR_AT + PAIRS * PAIR.itemsize


class RingSnapshot(NamedTuple):
    """A consistent copy of the tables of one ring; rows have the dtypes of `whichrank.model.rows`."""

    read_ns: int
    """CLOCK_MONOTONIC when the reading was done; no time in the rows is later, except a heartbeat in between."""
    header: Rows
    """One row of HEADER."""
    comms: Rows
    """Communicators, live (state 1) and closed (2)."""
    comm_slots: NDArray[np.intp]
    inflight: Rows
    inflight_slots: NDArray[np.intp]
    waits: Rows
    pairs: Rows
    frame: Rows = _NO_FRAME
    """One row of FRAME; each of its counts is old or new, not all are of one moment."""
    splits_head: int = 0
    """All-to-alls begun; wraps at 2^32."""


class Scratch:
    """Two copies of the tables in memory that is used again at every snapshot. Not for two threads at once."""

    def __init__(self) -> None:
        self.first, self.second = bytearray(_TABLES_END), bytearray(_TABLES_END)
        self.first_without_pairs = memoryview(self.first)[:_PAIR_AT]
        self.header = np.frombuffer(self.first, HEADER, 1)
        self.frame = np.frombuffer(self.first, FRAME, 1, _FRAME_AT)
        self.splits_head = np.frombuffer(self.first, "u4", 1, _SPLITS_HEAD_AT)
        self.inflight, self.inflight_again = self._views(INFLIGHT_ROW, INFLIGHT, _INFLIGHT_AT)
        self.waits, self.waits_again = self._views(WAIT, WAITS, _WAIT_AT)
        self.pairs, self.pairs_again = self._views(PAIR, PAIRS, _PAIR_AT)

    def second_reading(
        self, inflight: NDArray[np.intp], waits: NDArray[np.intp], pairs: NDArray[np.intp]
    ) -> tuple[memoryview, int]:
        """The part of the second copy that holds these rows, and its place in a ring: mostly the first few of a table.

        Args:
            inflight: Places of rows that are used, in order.
            waits: The same.
            pairs: The same.
        """
        tables = ((inflight, self.inflight, _INFLIGHT_AT), (waits, self.waits, _WAIT_AT), (pairs, self.pairs, _PAIR_AT))
        used = [(places, rows.itemsize, at) for places, rows, at in tables if places.size]
        places, size, at = used[0]
        first = at + int(places[0]) * size
        places, size, at = used[-1]
        return memoryview(self.second)[first : at + (int(places[-1]) + 1) * size], first

    def _views(self, dtype: np.dtype[np.void], count: int, at: int) -> tuple[Rows, Rows]:
        return np.frombuffer(self.first, dtype, count, at), np.frombuffer(self.second, dtype, count, at)


def unchanged(used: NDArray[np.intp], rows: Rows, again: Rows) -> NDArray[np.intp]:
    """Places of `used` whose row was whole at the first reading and is the same one at the second."""
    version = rows["version"][used]
    kept: NDArray[np.intp] = used[(version == again["version"][used]) & (version & 1 == 0)]
    return kept


def same_pair(used: NDArray[np.intp], rows: Rows, again: Rows) -> NDArray[np.intp]:
    """As `unchanged`, for pairs."""
    key = rows["key"][used]
    kept: NDArray[np.intp] = used[(rows["kind"][used] != 0) & (key != 0) & (key == again["key"][used])]
    return kept
