"""Tracks of a trace: operations of a rank and communicator that overlap in time need tracks of their own.

Viewers nest the slices of a track into each other, so a slice may end neither within another nor be cut by one.
Operations of a communicator do overlap: asynchronous ones, and sends and receives that are posted early.
"""

from __future__ import annotations

import heapq

import numpy as np

from whichrank.model.picture import Bools, Ints
from whichrank.surface.report.spans import Spans

NEVER = np.iinfo(np.int64).max


def tracks_of(spans: Spans, start_us: Ints, end_us: Ints, never_ends: Bools) -> Ints:
    """The track of each operation among those of its rank and communicator, from 0.

    Each goes to the first track on which all before it have ended. Example: operations from 0 to 10, from 5 to 15 and
    from 10 to 20 µs get the tracks 0, 1 and 0.

    Args:
        spans: Rows of SPAN.
        start_us: Of each.
        end_us: Of each.
        never_ends: Which have no end: nothing else comes on their tracks any more.
    """
    track = np.zeros(len(spans), np.int64)
    end_us = np.where(never_ends, NEVER, end_us)
    key = spans["rank"].astype(np.int64) << 32 | spans["comm"]
    order = np.lexsort((end_us, start_us, key))
    bounds = np.flatnonzero(np.diff(key[order], prepend=-1))
    for mine in np.split(order, bounds[1:]) if len(order) else []:
        if (start_us[mine][1:] < np.maximum.accumulate(end_us[mine])[:-1]).any():
            track[mine] = _packed(start_us[mine].tolist(), end_us[mine].tolist())
    return track


def _packed(start_us: list[int], end_us: list[int]) -> list[int]:
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    track = []
    for start, end in zip(start_us, end_us, strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        mine = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (end, mine))
        track.append(mine)
    return track
