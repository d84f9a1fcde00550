"""At what pace data came in on each connection of a rank, by the reads that the socket sensor counted in its ring.

A way that is limited lets data through evenly, so nearly every read finds what came since the one before, at the pace
of the way. Behind a sound way they lie ready, at the pace of a copy in memory, even if the sender was held up before it
sent them. The time between the kernels' first and last byte cannot tell the two apart: late acknowledgements
stretch it on the way back too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.agent.rank import RankWatch
from whichrank.errors import RingFormatError
from whichrank.model.places import places
from whichrank.model.rows import CONNECTION, PACE, PACES
from whichrank.ring.reader import Rows

LEAST_BYTES: Final = 1 << 16
"""Between two looks, for a pace to mean anything."""
_ENDS: Final = ("local_addr", "remote_addr", "local_port", "remote_port")
_WIDTH: Final = 40
_OPEN: Final = 1


class Arrivals:
    """What has come in on the connections of a node, from look to look."""

    def __init__(self) -> None:
        self._keys = np.empty(0, f"V{_WIDTH}")
        self._paces = np.empty((0, PACES), PACE)

    def add_to(self, rows: Rows, watches: Sequence[RankWatch]) -> None:
        """Set `arrived_bytes` and `arrival_rate` of rows of TCP_ROW of these ranks, if anything is known.

        A ring that cannot be read says nothing.
        """
        tables, ranks = [np.empty(0, CONNECTION)], [np.empty(0, np.int64)]
        for watch in (watch for watch in watches if not watch.ended_ns):
            with contextlib.suppress(OSError, RingFormatError):
                rows_of = watch.reader.connections()
                tables.append(rows_of[rows_of["state"] == _OPEN])  # the same ends may have been closed and opened again
                ranks.append(np.full(len(tables[-1]), watch.rank))
        table = np.concatenate(tables)
        keys, paces = _keys(table, np.concatenate(ranks)), table["pace"]
        earlier = places(keys, self._keys)
        before = np.zeros((len(table), PACES), PACE)
        before[earlier >= 0] = self._paces[earlier[earlier >= 0]]
        self._keys, self._paces = keys, paces
        at = places(_keys(rows, rows["rank"]), keys)
        known = at >= 0
        rows["arrived_bytes"][known] = paces["bytes"].sum(axis=1)[at[known]]
        rows["arrival_rate"][known] = _usual_pace(paces, before)[at[known]]


def _usual_pace(paces: Rows, before: Rows) -> NDArray[np.float64]:
    """Bytes per second of the class in which the middle byte since `before` came; 0 where there were too few."""
    arrived = np.maximum(paces["bytes"].astype(np.int64) - before["bytes"].astype(np.int64), 0)
    spent_ns = np.maximum(paces["ns"].astype(np.int64) - before["ns"].astype(np.int64), 1)
    total = arrived.sum(axis=1)
    middle = (2 * arrived.cumsum(axis=1) < total[:, None]).sum(axis=1).clip(max=PACES - 1)
    each = np.arange(len(paces))
    rates = arrived[each, middle] * 1e9 / spent_ns[each, middle]
    return np.where(total >= LEAST_BYTES, rates, 0.0)


def _keys(rows: Rows, rank: NDArray[np.int64]) -> Rows:
    """Rank and both ends as bytes that compare as a whole."""
    keys = np.empty(len(rows), np.dtype([("rank", "u4"), *((name, rows.dtype[name]) for name in _ENDS)]))
    keys["rank"] = rank
    for name in _ENDS:
        keys[name] = rows[name]
    return keys.view(f"V{_WIDTH}")
