"""The watch loop of the native library, as the agent uses it: it looks at the rings while the agent sleeps.

It runs in a thread of its own and looks four times a second, in microseconds; when something may matter it wakes the
agent, which then takes a snapshot and decides. Where the library is missing, or its one loop is taken by another agent
of this process, the agent looks for itself as often as ever.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Final

import numpy as np

from whichrank.agent.outbox import MOST_RECORDS_PER_BATCH
from whichrank.agent.rank import RankWatch
from whichrank.errors import NativeLibraryError
from whichrank.native import load_core
from whichrank.ring.layout import RECORDS

EVERY_MS: Final = 250
MOST_RECORDS: Final = RECORDS // 2
"""Of a ring, since the snapshot: it is read before any are overwritten."""
MOST_OF_A_NODE: Final = MOST_RECORDS_PER_BATCH // 2
"""Of all its rings together: one batch can say them, with what comes until then."""
MARKS: Final = ("closed_ns", "exception_ns", "first_failure_ns", "init_ns")
WATCHED: Final = np.dtype([("ring_fd", "i4"), ("stat_fd", "i4"), ("head", "u8"), ("marks", "u8")])
"""`wr_watched` of `native/include/whichrank/watch.h`, byte for byte."""


class NativeWatch:
    """Wakes the agent when something may matter.

    Args:
        wake_fd: An eventfd, to which it adds.
        longest_ms: An operation in flight or a blocked thread matters once it lasts so long.

    Attributes:
        is_there: The loop can be used.
        is_armed: It looks, or has seen something since `arm`.
        most_records: New ones of a ring that matter.
    """

    def __init__(self, wake_fd: int, longest_ms: int) -> None:
        self._core = _core()
        self.is_there = bool(self._core and not self._core.wr_watch_start(wake_fd, EVERY_MS, longest_ms))
        self.is_armed, self.most_records = False, MOST_RECORDS

    def arm(self, watches: Sequence[RankWatch]) -> bool:
        """Look at these ranks until one matters; they stay open until `disarm`. False if that cannot be."""
        if not self.is_there or self._core is None:
            return False
        rows = np.zeros(len(watches), WATCHED)
        rows["ring_fd"] = [watch.reader.fileno() for watch in watches]
        rows["stat_fd"] = [watch.stat_fd() for watch in watches]
        headers = [watch.snapshot.header for watch in watches]
        rows["head"] = [watch.reader.cursor for watch in watches]
        rows["marks"] = [sum(int(header[mark][0]) for mark in MARKS) for header in headers]
        self.most_records = max(1, min(MOST_RECORDS, MOST_OF_A_NODE // max(len(rows), 1)))
        self.is_armed = not self._core.wr_watch_arm(rows.ctypes.data, len(rows), self.most_records)
        return self.is_armed

    def disarm(self) -> None:
        """Look no more."""
        if self.is_armed and self._core is not None:
            self._core.wr_watch_disarm()
            self.is_armed = False

    def close(self) -> None:
        """End the thread."""
        if self.is_there and self._core is not None:
            self._core.wr_watch_stop()
            self.is_there = self.is_armed = False


def _core() -> ctypes.CDLL | None:
    try:
        core = load_core()
        core.wr_watch_start.argtypes = (ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32)
        core.wr_watch_arm.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64)
        core.wr_watch_disarm.restype = core.wr_watch_stop.restype = None
    except (NativeLibraryError, AttributeError):  # not installed, or an older one
        return None
    return core
