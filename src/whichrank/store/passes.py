"""How far each rank is in its iteration: backward passes that it has begun and done with, messages to the next stage.

So it can be said in which part of an iteration a rank stands, and of which microbatch: in a backward pass, before one,
or behind the last one. How many passes an iteration has is taken from the one before. Times are those of each rank's
own clock, and are compared with its own only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.kinds import Kind
from whichrank.model.roles import role_of_description
from whichrank.store.communicators import Communicators
from whichrank.store.completed import Completed

Ints = NDArray[np.int64]
Rows = np.ndarray[Any, Any]


class Passes:
    """Of each rank five numbers."""

    def __init__(self) -> None:
        self._step_ns = np.zeros(0, np.int64)
        self._begun, self._over, self._sent = (np.zeros(0, np.int64) for _ in range(3))  # since the latest step
        self._usual = np.zeros(0, np.int64)  # passes of the iteration before
        self._is_pipeline = np.zeros(0, np.bool_)  # by communicator

    def feed(self, passes: Rows, steps: Rows, done: Completed, comms: Communicators) -> None:
        """Take what is new.

        Args:
            passes: Backward passes, rows of RECORD_REPORTED: one when it begins, without an end, and one when it ends.
            steps: Optimizer steps, or where iterations begin, the same.
            done: Completed operations.
            comms: All communicators.
        """
        ahead = self._sends_ahead(done, comms)
        if not (len(passes) or len(steps) or len(ahead)):
            return
        ranks = (passes["rank"], steps["rank"], done.rank[ahead])
        self._grow(1 + max(int(rank.max(initial=-1)) for rank in ranks))
        before = self._step_ns.copy()
        rank, at_ns = steps["rank"].astype(np.int64), steps["row"]["t_issue_ns"].astype(np.int64)
        np.maximum.at(self._step_ns, rank, at_ns)
        last_but_one = before.copy()
        earlier = at_ns < self._step_ns[rank]
        np.maximum.at(last_but_one, rank[earlier], at_ns[earlier])
        stepped = self._step_ns > before
        begins = passes[passes["row"]["t_end_ns"] == 0]
        rank, at_ns = begins["rank"].astype(np.int64), begins["row"]["t_issue_ns"].astype(np.int64)
        of_last = stepped[rank] & (at_ns > last_but_one[rank]) & (at_ns <= self._step_ns[rank])
        count = self._count(rank[of_last]) + np.where(last_but_one == before, self._begun, 0)
        self._usual[stepped] = count[stepped]
        for column in (self._begun, self._over, self._sent):
            column[stepped] = 0
        self._begun += self._count(rank[at_ns > self._step_ns[rank]])
        ends = passes[passes["row"]["t_end_ns"] > 0]
        rank, at_ns = ends["rank"].astype(np.int64), ends["row"]["t_end_ns"].astype(np.int64)
        self._over += self._count(rank[at_ns > self._step_ns[rank]])
        rank, at_ns = done.rank[ahead].astype(np.int64), done["t_issue_ns"][ahead].astype(np.int64)
        self._sent += self._count(rank[at_ns > self._step_ns[rank]])

    def part_of(self, rank: int) -> tuple[str, int | None] | None:
        """Phase and microbatch that a rank stands in; None where it is not known. A single microbatch has no number."""
        if rank >= len(self._usual) or not (self._usual[rank] or self._begun[rank]):
            return None
        begun, over, usual = int(self._begun[rank]), int(self._over[rank]), int(self._usual[rank])
        has_several = max(usual, begun) > 1
        if begun > over:
            return "backward", begun - 1 if has_several else None
        if not usual:
            return None  # of the first iteration it is not known how many there will be
        if begun >= usual:
            return "optimizer", None
        ahead = max(begun, min(int(self._sent[rank]), usual - 1))
        return "forward", ahead if has_several else None

    def forget(self, rank: int) -> None:
        """The rank's process was replaced."""
        if rank < len(self._usual):
            for column in (self._step_ns, self._begun, self._over, self._sent, self._usual):
                column[rank] = 0

    def _sends_ahead(self, done: Completed, comms: Communicators) -> Ints:
        """Places of messages to the next stage of a pipeline, among completed operations."""
        if new := comms.info[len(self._is_pipeline) :]:
            of_new = [role_of_description(info.desc) == "pp" for info in new]
            self._is_pipeline = np.append(self._is_pipeline, of_new)
        at = np.flatnonzero(done["kind"] == Kind.SEND)
        at = at[self._is_pipeline[done.comm[at]]]
        size, place = comms.size[done.comm[at]], done.place[at]
        step = (done["peer"][at].astype(np.int64) - place) % np.maximum(size, 1)
        found: Ints = at[(place >= 0) & np.where(size == 2, place == 0, step == 1)]
        return found

    def _count(self, rank: Ints) -> Ints:
        count: Ints = np.bincount(rank, minlength=len(self._usual))
        return count

    def _grow(self, size: int) -> None:
        more = size - len(self._usual)
        if more > 0:
            columns = (self._step_ns, self._begun, self._over, self._sent, self._usual)
            grown = [np.append(column, np.zeros(max(more, len(column)), np.int64)) for column in columns]
            self._step_ns, self._begun, self._over, self._sent, self._usual = grown
