"""The iteration that each rank is in, counted as verdicts count it: optimizer steps, else the period of operations.

Rings keep the latest 8,192 completed operations of a rank, so a frame taken in the middle of a job knows the period at
once. Operations in flight are fed too: one that stays open, such as a posted receive, would else hold everything up.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from whichrank.agent.rank import RankWatch
from whichrank.hang.history import History
from whichrank.model.kinds import Kind
from whichrank.model.telemetry import CommInfo
from whichrank.ring.reader import Rows

RECORDS_PER_POLL = 8192
MOST_BEHIND = 8192
"""Operations that a sequence may be waiting for a missing one before it starts anew."""


class Iterations:
    """Token sequences of the ranks of one job.

    Attributes:
        kinds: Operations seen, by kind, of each communicator id: says the role of an undescribed communicator.
    """

    def __init__(self) -> None:
        self.kinds: dict[int, Counter[int]] = {}
        self._history = History()
        self._info: list[CommInfo] = []
        self._index: dict[int, int] = {}
        self._of: dict[int, tuple[int, int]] = {}

    def add_comm(self, info: CommInfo) -> None:
        """A communicator; known ones are passed over."""
        if info.comm_id not in self._index:
            self._index[info.comm_id] = len(self._info)
            self._info.append(info)
            self._history.add_comms(self._info)

    def feed(self, watch: RankWatch) -> None:
        """Take what a rank has completed since the last call, and what it has in flight."""
        records = watch.records(RECORDS_PER_POLL)
        lost = watch.reader.lost
        before = self._of.get(watch.rank)
        if before is None or before[0] != watch.pid:
            self._history.forget(watch.rank)
            lost = -1  # what came before the first record that we see is lost as well
        if records.size and (before is None or before[1] != lost):
            self._history.sequence(watch.rank).lose(int(records["ordinal"].min()) - 1)
        self._of[watch.rank] = (watch.pid, watch.reader.lost)
        is_step = records["kind"] == Kind.STEP
        self._history.steps.feed(np.full(int(is_step.sum()), watch.rank), records[is_step])
        records = records[~is_step]
        ids = watch.comm_ids(records["comm_slot"], records["epoch"])
        self._count(ids, records)
        flight = watch.snapshot.inflight
        self._take(watch.rank, ids, records)
        self._take(watch.rank, watch.comm_ids(flight["comm_slot"], flight["epoch"]), flight)
        sequence = self._history.sequence(watch.rank)
        latest = int(watch.snapshot.header["ordinal"][0])
        if latest - sequence.last_ordinal > MOST_BEHIND:
            sequence.lose(latest)

    def iteration_of(self, rank: int) -> int | None:
        """The iteration that a rank is in, from 0; None while that is not known."""
        return self._history.iterations(rank)

    def _take(self, rank: int, ids: np.ndarray, rows: Rows) -> None:
        comm = np.array([self._index.get(int(comm_id), -1) for comm_id in ids], np.int64)
        known = comm >= 0
        if known.any():
            self._history.feed(np.full(int(known.sum()), rank), comm[known], rows[known])

    def _count(self, ids: np.ndarray, records: Rows) -> None:
        if not len(ids):
            return
        pairs = np.stack((ids, records["kind"].astype(np.uint64)), axis=1)
        for (comm_id, kind), count in zip(*np.unique(pairs, axis=0, return_counts=True), strict=True):
            self.kinds.setdefault(int(comm_id), Counter())[int(kind)] += int(count)
