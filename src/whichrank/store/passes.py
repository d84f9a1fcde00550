"""How far each rank is in its iteration: backward passes that it has begun and done with, messages to the next stage.

So it can be said in which part of an iteration a rank stands, and of which microbatch: in a backward pass, before one,
or behind the last one. How many passes an iteration has is taken from the two before. Times are those of each rank's
own clock, and are compared with its own only. Nothing is said of ranks that make no optimizer step: where their
iterations begin, by their operations, may be in the middle of a pass.
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
    """Of each rank seven numbers."""

    def __init__(self) -> None:
        self._step_ns = np.zeros(0, np.int64)
        self._begun, self._over, self._sent = (np.zeros(0, np.int64) for _ in range(3))  # since the latest step
        self._usual, self._usual_before = np.zeros(0, np.int64), np.zeros(0, np.int64)  # passes of latest iterations
        self._in_pipeline = np.zeros(0, np.bool_)  # it has exchanged messages with other stages
        self._is_pipeline = np.zeros(0, np.bool_)  # by communicator

    def feed(self, passes: Rows, steps: Rows, done: Completed, comms: Communicators) -> None:
        """Take what is new.

        Args:
            passes: Backward passes, rows of RECORD_REPORTED: one when it begins, without an end, and one when it ends.
            steps: Optimizer steps, the same.
            done: Completed operations.
            comms: All communicators.
        """
        ahead = self._sends_ahead(done, comms)
        if not (len(passes) or len(steps) or len(ahead)):
            return
        ranks = (passes["rank"], steps["rank"], done.rank[ahead])
        self._grow(1 + max(int(rank.max(initial=-1)) for rank in ranks))
        before = self._step_ns.copy()
        second_ns, third_ns = self._take_steps(steps)
        stepped = self._step_ns > before
        begins = passes[passes["row"]["t_end_ns"] == 0]
        rank, at_ns = begins["rank"].astype(np.int64), begins["row"]["t_issue_ns"].astype(np.int64)
        first = self._count(rank[(at_ns > second_ns[rank]) & (at_ns <= self._step_ns[rank])])
        other = self._count(rank[(at_ns > third_ns[rank]) & (at_ns <= second_ns[rank])])
        other += np.where(third_ns == before, self._begun, 0)
        self._usual_before = np.where(stepped, np.where(second_ns == before, self._usual, other), self._usual_before)
        first += np.where(second_ns == before, self._begun, 0)
        self._usual = np.where(stepped, first, self._usual)
        for column in (self._begun, self._over, self._sent):
            column[stepped] = 0
        has_stepped = self._step_ns > 0
        self._begun += self._count(rank[(at_ns > self._step_ns[rank]) & has_stepped[rank]])
        ends = passes[passes["row"]["t_end_ns"] > 0]
        rank, at_ns = ends["rank"].astype(np.int64), ends["row"]["t_end_ns"].astype(np.int64)
        self._over += self._count(rank[(at_ns > self._step_ns[rank]) & has_stepped[rank]])
        self._in_pipeline[done.rank[ahead]] = True
        rank, at_ns = done.rank[ahead].astype(np.int64), done["t_issue_ns"][ahead].astype(np.int64)
        self._sent += self._count(rank[at_ns > self._step_ns[rank]])

    def _take_steps(self, steps: Rows) -> tuple[Ints, Ints]:
        """Learn the latest step of each rank. Returns the second and third latest, if new, else the last known.

        What is older than the one that was known before is that one: nothing is asked of what lies behind it.
        """
        old = self._step_ns.copy()
        rank, at_ns = steps["rank"].astype(np.int64), steps["row"]["t_issue_ns"].astype(np.int64)
        np.maximum.at(self._step_ns, rank, at_ns)
        found = [self._step_ns]
        for _ in range(2):
            earlier = at_ns < found[-1][rank]
            next_ns = np.where(found[-1] > old, old, found[-1])
            np.maximum.at(next_ns, rank[earlier], at_ns[earlier])
            found.append(next_ns)
        return found[1], found[2]

    def part_of(self, rank: int) -> tuple[str, int | None] | None:
        """Phase and microbatch that a rank stands in; None where it is not known.

        Before the first pass of an iteration it may as well evaluate or save something, unless it has sent a message
        ahead since the step. Behind the last one is known if the two iterations before had equally many. A microbatch
        has a number where gradients of several are added up, and no message tells of a pipeline: a rank of that may
        hold several stages.
        """
        if rank >= len(self._usual):
            return None
        begun, over, sent = int(self._begun[rank]), int(self._over[rank]), int(self._sent[rank])
        usual = int(self._usual[rank]) if self._usual[rank] == self._usual_before[rank] else 0
        has_numbers = usual > 1 and not self._in_pipeline[rank]
        if begun > over:
            return "backward", begun - 1 if has_numbers and begun <= usual else None
        if usual and begun == usual:
            return "optimizer", None
        if usual and (0 < begun < usual or sent):
            return "forward", begun if has_numbers else None
        return None

    def forget(self, rank: int) -> None:
        """The rank's process was replaced."""
        if rank < len(self._usual):
            for column in (self._step_ns, self._begun, self._over, self._sent, self._usual, self._usual_before):
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
            zeros = np.zeros(max(more, len(self._usual)), np.int64)
            self._step_ns, self._begun = np.append(self._step_ns, zeros), np.append(self._begun, zeros)
            self._over, self._sent = np.append(self._over, zeros), np.append(self._sent, zeros)
            self._usual, self._usual_before = np.append(self._usual, zeros), np.append(self._usual_before, zeros)
            self._in_pipeline = np.append(self._in_pipeline, zeros > 0)
