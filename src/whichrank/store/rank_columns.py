"""What is known of each rank now, as arrays over ranks: its latest row, and what was measured between two snapshots."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.telemetry import RANK_ROW, RATE_ROW, ProcessState

MAX_WORLD = 1 << 20
"""Ranks."""
WORKING_CPU = 0.2
"""Share of a core above which a process computes."""


class RankColumns:
    """Arrays over ranks that grow with the highest rank seen."""

    def __init__(self) -> None:
        self.size = 0
        self.rows = np.zeros(0, RANK_ROW)
        self.rates = np.zeros(0, RATE_ROW)
        self.present = np.zeros(0, np.bool_)
        self.read_s = np.zeros(0)
        self.read_after_s = np.full(0, -np.inf)
        self.offset_s = np.zeros(0)  # analyzer seconds minus host monotonic seconds
        self.cpu_share = np.zeros(0)
        self.stopped_polls = np.zeros(0, np.int64)
        self.running_polls = np.zeros(0, np.int64)
        self.stopped_since_s = np.zeros(0)  # when it was seen to be stopped first, if it still is
        self.went_on_s = np.zeros(0)  # when the latest operation was issued, at the earliest, that has completed
        self.agent = np.zeros(0, np.int64)
        self.issuing_tid = np.zeros(0, np.int64)  # thread of the latest operation, 0 none

    def grow(self, size: int) -> None:
        """Make room for so many ranks."""
        if size <= self.size:
            return
        for name, fill in (
            ("rows", None), ("rates", None), ("present", False), ("read_s", 0.0), ("read_after_s", -np.inf),
            ("offset_s", 0.0), ("cpu_share", 0.0), ("stopped_polls", 0), ("running_polls", 0), ("stopped_since_s", 0.0),
            ("agent", -1), ("went_on_s", 0.0), ("issuing_tid", 0),
        ):  # fmt: skip
            old = getattr(self, name)
            new = np.zeros(size, old.dtype) if fill is None else np.full(size, fill, old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
        self.size = size

    def compute(self, which: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of these ranks compute, or would on a machine that is too busy; who waits runs for moments only."""
        return np.asarray((self.running_polls[which] >= 2) | (self.cpu_share[which] > WORKING_CPU))

    def in_phase(self) -> NDArray[np.bool_]:
        """Which ranks are in a phase that their script has marked."""
        return np.asarray(self.rows["phase"] != b"")

    def host_s(self, rank: NDArray[Any], t_ns: NDArray[Any]) -> NDArray[np.float64]:
        """Times of hosts on the analyzer's clock, in seconds, 0 where there is none."""
        return np.where(t_ns > 0, t_ns.astype(np.float64) / 1e9 + self.offset_s[rank], 0.0)

    def have_ended(self) -> NDArray[np.bool_]:
        """Which processes have ended."""
        return np.asarray(are_over(self.rows) | (self.rows["ended_ns"] > 0))


def are_over(rows: np.ndarray[Any, Any]) -> NDArray[np.bool_]:
    """Whether the processes of these rows of RANK_ROW have ended, by their state."""
    return np.asarray((rows["state"] == ProcessState.GONE) | (rows["state"] == ProcessState.ZOMBIE))
