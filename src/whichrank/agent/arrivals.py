"""At what pace data came in on each connection of a rank, by the reads that the socket sensor counted in its ring.

A way that is limited lets data through evenly, so nearly every read finds what came since the one before, at the pace
of the way. Behind a sound way they lie ready, at the pace of a copy in memory, even if the sender was held up before it
sent them. The time between the kernels' first and last byte cannot tell the two apart: late acknowledgements
stretch it on the way back too.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whichrank.agent.rank import RankWatch
from whichrank.errors import RingFormatError
from whichrank.model.places import places
from whichrank.model.rows import PACE, PACES
from whichrank.ring.reader import Rows

LEAST_BYTES: Final = 1 << 16
"""Between two snapshots, for a pace to mean anything."""
REACH_S: Final = 4.5
"""So far back a pace reaches, or to the snapshot before if that is longer."""
_ENDS: Final = ("local_addr", "remote_addr", "local_port", "remote_port")
_WIDTH: Final = 40
_OPEN: Final = 1
_NOTHING: Final[tuple[Rows, Rows]] = (np.empty(0, f"V{_WIDTH}"), np.empty((0, PACES), PACE))


class _Snapshot(NamedTuple):
    at_s: float
    keys: Rows
    paces: Rows


class Arrivals:
    """What has come in on the connections of a node, from snapshot to snapshot."""

    def __init__(self) -> None:
        self._snapshots: deque[_Snapshot] = deque([_Snapshot(-math.inf, *_NOTHING)])

    def add_to(self, rows: Rows, watches: Sequence[RankWatch], now_s: float) -> None:
        """Set `arrived_bytes` and `arrival_rate` of rows of TCP_ROW of these ranks, if anything is known.

        A ring that cannot be read says nothing. However often this is asked, the pace is that of the latest seconds:
        of bursts a snapshot may see none, and what it does not see would be lost.

        Args:
            rows: To be filled in.
            watches: The ranks.
            now_s: CLOCK_MONOTONIC.
        """
        tables, ranks = list[Rows](), list[NDArray[np.int64]]()
        for watch in (watch for watch in watches if not watch.ended_ns):
            with contextlib.suppress(OSError, RingFormatError):
                if (rows_of := watch.reader.connections()).size:
                    # The same ends may have been closed and opened again.
                    tables.append(rows_of[rows_of["state"] == _OPEN])
                    ranks.append(np.full(len(tables[-1]), watch.rank))
        if not tables:
            self._note(_Snapshot(now_s, *_NOTHING))
            return
        table = np.concatenate(tables)
        keys, paces = _keys(table, np.concatenate(ranks)), table["pace"]
        then = self._note(_Snapshot(now_s, keys, paces))
        earlier = places(keys, then.keys)
        before = np.zeros((len(table), PACES), PACE)
        before[earlier >= 0] = then.paces[earlier[earlier >= 0]]
        at = places(_keys(rows, rows["rank"]), keys)
        known = at >= 0
        rows["arrived_bytes"][known] = paces["bytes"].sum(axis=1)[at[known]]
        rows["arrival_rate"][known] = _usual_pace(paces, before)[at[known]]

    def _note(self, latest: _Snapshot) -> _Snapshot:
        """Keep the latest snapshot; returns the one that it is compared with."""
        while len(self._snapshots) > 1 and latest.at_s - self._snapshots[1].at_s >= REACH_S:
            self._snapshots.popleft()
        self._snapshots.append(latest)
        return self._snapshots[0]


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
