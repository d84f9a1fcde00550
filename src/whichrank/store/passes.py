"""How far each rank is in its iteration: backward passes that it has begun and done with, messages in its pipeline.

So it can be said in which part of an iteration a rank stands, and of which microbatch: in a backward pass, before one,
or behind the last one. How many passes an iteration has, and how many operations come before the first of them, is
taken from the two before. The order of events is that of operations, which are numbered; that of marks between two
operations is by the rank's own clock. Nothing is said of ranks that make no optimizer step: where their iterations
begin, by their operations, may be in the middle of a pass.

Example: a rank in the middle of a pipeline has sent three messages to the next stage since its step, and has begun one
backward pass of the usual four: forward, microbatch 3.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.kinds import Kind
from whichrank.model.roles import role_of_description
from whichrank.store.communicators import Communicators
from whichrank.store.completed import Completed

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Rows = np.ndarray[Any, Any]


class _Event(IntEnum):
    """What happened; of marks of the same time the first one here comes first."""

    AHEAD = 0
    """A message was sent to the next stage. This and the next two are operations, the others marks."""
    ARRIVED = 1
    """One has come from the stage before."""
    SENT_BY_LAST = 2
    """The last place of a pipeline has sent one."""
    END = 3
    BEGIN = 4
    STEP = 5


_COUNTED: Final = 4
"""Columns of counts: of AHEAD and ARRIVED, and of passes that are over and begun."""
AHEAD, ARRIVED, OVER, BEGUN, LEAD, BETWEEN = range(6)
"""Columns of what is known of an iteration. LEAD: operations between the step and the first pass. BETWEEN: 1 if there
are some between the first pass and the second."""


START: Final = "iteration start"
"""Between the optimizer's step and the first operation of the next iteration."""


class Passes:
    """Of each rank three times six numbers."""

    def __init__(self) -> None:
        self._step_ns, self._step_at = np.zeros(0, np.int64), np.zeros(0, np.int64)  # time and ordinal of the latest
        self._end_at = np.zeros(0, np.int64)  # ordinal of the end of the first pass since
        self._now, self._last, self._before = (np.zeros((0, 6), np.int64) for _ in range(3))  # iterations
        self._pipeline = np.zeros(0, np.int64)  # the communicator of each rank that carries such messages, -1 none
        self._is_pipeline, self._goes_round = np.zeros(0, np.bool_), np.zeros(0, np.bool_)  # by communicator

    def feed(self, passes: Rows, steps: Rows, done: Completed, comms: Communicators) -> None:
        """Take what is new.

        Args:
            passes: Backward passes, rows of RECORD_REPORTED: one when it begins, without an end, and one when it ends.
            steps: Optimizer steps, the same.
            done: Completed operations.
            comms: All communicators.
        """
        rank, at_ns, what, ordinal, comm = _joined([*_marks(passes, steps), *self._messages(done, comms)])
        if not len(rank):
            return
        self._grow(1 + int(rank.max()))
        in_pipeline = comm >= 0
        self._pipeline[rank[in_pipeline]] = comm[in_pipeline]
        is_op = what <= _Event.SENT_BY_LAST
        new = np.where(is_op, ordinal > self._step_at[rank], at_ns > self._step_ns[rank])
        order = np.lexsort((what, at_ns, ~is_op, ordinal, rank))  # a mark has the ordinal of the operation before it
        order = order[new[order]]
        rank, at_ns, what, ordinal, comm = (column[order] for column in (rank, at_ns, what, ordinal, comm))
        if len(rank):
            self._take(rank, at_ns, what, ordinal, comm)

    def _take(self, rank: Ints, at_ns: Ints, what: Ints, ordinal: Ints, comm: Ints) -> None:
        """Events that are newer than the latest step of their ranks, sorted by rank and order."""
        first = np.flatnonzero(np.append(True, np.diff(rank) != 0))
        of = np.cumsum(np.append(False, np.diff(rank) != 0))  # which of the ranks here
        ranks, is_step = rank[first], what == _Event.STEP
        turn = np.cumsum(is_step) - is_step  # steps before it, of all ranks
        turn -= turn[first][of]
        steps = np.bincount(of[is_step], minlength=len(ranks))
        part = np.cumsum(np.append(False, (np.diff(rank) != 0) | (np.diff(turn) != 0)))  # of one rank and iteration
        heads = np.flatnonzero(np.append(True, np.diff(part) != 0))
        found = np.zeros((len(heads), 6), np.int64)
        kinds = (_Event.AHEAD, _Event.ARRIVED, _Event.END, _Event.BEGIN)
        for column, kind in enumerate(kinds):
            found[:, column] = np.bincount(part[what == kind], minlength=len(heads))
        has_carry = turn[heads] == 0
        carried = np.where(has_carry[:, None], self._now[rank[heads]], 0)
        found[:, :_COUNTED] += carried[:, :_COUNTED]
        # Where the iteration began, by operations: at the step before it.
        began_at = self._step_at[rank[heads]]
        began_at[~has_carry] = ordinal[heads[~has_carry] - 1]
        self._note_leads(found, carried, what, ordinal, part, heads, began_at, rank)
        before_first = (what == _Event.SENT_BY_LAST) & (_begun_before(what, part, heads) + carried[part, BEGUN] == 0)
        is_known = turn + (self._step_ns[rank] > 0) > 0
        self._goes_round[comm[before_first & is_known]] = True
        self._shift(ranks, steps, found, turn[heads], of[heads])
        last = np.flatnonzero(is_step & (turn == steps[of] - 1))
        self._step_ns[rank[last]], self._step_at[rank[last]] = at_ns[last], ordinal[last]

    def _note_leads(
        self, found: Ints, carried: Ints, what: Ints, ordinal: Ints, part: Ints, heads: Ints, began_at: Ints, rank: Ints
    ) -> None:
        """Fill LEAD and BETWEEN of iterations."""
        found[:, LEAD], found[:, BETWEEN] = carried[:, LEAD], carried[:, BETWEEN]
        number = _begun_before(what, part, heads) + carried[part, BEGUN]
        begins = what == _Event.BEGIN
        first, second = np.flatnonzero(begins & (number == 0)), np.flatnonzero(begins & (number == 1))
        found[part[first], LEAD] = ordinal[first] - began_at[part[first]]
        end_at = self._end_at[rank[heads]]
        ended = np.cumsum(what == _Event.END) - (what == _Event.END)
        ended = ended - ended[heads][part] + carried[part, OVER]
        first_end = np.flatnonzero((what == _Event.END) & (ended == 0))
        end_at[part[first_end]] = ordinal[first_end]
        found[part[second], BETWEEN] = ordinal[second] > end_at[part[second]]
        self._end_at[rank[heads]] = end_at  # of the last iteration of each rank, which comes last

    def _shift(self, ranks: Ints, steps: Ints, found: Ints, turn: Ints, of: Ints) -> None:
        """Iterations that are over become the last ones; one that has begun without an event is empty."""
        now, last = np.zeros((len(ranks), 6), np.int64), self._last[ranks]
        before = np.where((steps == 1)[:, None], last, self._before[ranks])
        for back, column in ((0, now), (1, last), (2, before)):
            at = np.flatnonzero(turn == steps[of] - back)
            column[of[at]] = found[at]
        self._now[ranks], self._last[ranks], self._before[ranks] = now, last, before

    def part_of(self, rank: int, ordinal: int) -> tuple[str, int | None] | None:
        """Phase and microbatch that a rank stands in; None where it is not known.

        Before its first operation in an iteration it may be in a forward pass, load data, evaluate or save something:
        that is called by its place. Behind the last pass is known if the two iterations before had equally many. A
        microbatch has a number where gradients of several are added up; in a pipeline where each rank holds one stage,
        and each message stands for a pass.

        Args:
            rank: Which one.
            ordinal: Of the operation that it has begun last.
        """
        if rank >= len(self._now) or not self._step_ns[rank]:
            return None
        now, last, before = self._now[rank], self._last[rank], self._before[rank]
        usual, has_numbers = self._usual(rank)
        if now[BEGUN] > now[OVER]:
            return "backward", int(now[BEGUN]) - 1 if has_numbers and now[BEGUN] <= usual else None
        if usual and now[BEGUN] == usual:
            return "optimizer", None
        begun_ops = ordinal - int(self._step_at[rank])
        if usual and not now[:_COUNTED].any() and begun_ops == 0:
            return START, None
        is_leading = now[BEGUN] == 0 and 0 < begun_ops <= last[LEAD] == before[LEAD]
        if not usual or now[BEGUN] > usual or not (now[BEGUN] or now[AHEAD] or is_leading):
            return None
        if self._pipeline[rank] < 0:
            in_turn = now[BEGUN] > 0 or (last[BETWEEN] > 0 and before[BETWEEN] > 0)
            return "forward", int(now[BEGUN]) if has_numbers and in_turn else None
        if not has_numbers:
            return "forward", None
        number = int(now[AHEAD] if last[AHEAD] else now[ARRIVED] - 1)
        return ("forward", number) if 0 <= number < usual else None

    def part_of_message(self, rank: int, *, is_from_next: bool) -> tuple[str, int | None] | None:
        """Phase and microbatch of the message of its pipeline that a rank waits for; None where it is not known.

        From the next stage gradients come, from the one before what its forward pass has made.

        Args:
            rank: Which one.
            is_from_next: It comes from the next stage.
        """
        if rank >= len(self._now) or not self._step_ns[rank] or self._pipeline[rank] < 0 or self._is_round(rank):
            return None
        usual, has_numbers = self._usual(rank)
        number = int(self._now[rank, BEGUN if is_from_next else ARRIVED])
        return "backward" if is_from_next else "forward", number if has_numbers and number < usual else None

    def _usual(self, rank: int) -> tuple[int, bool]:
        """Backward passes of an iteration, 0 where the two before differ, and whether its microbatches have numbers."""
        last, before = self._last[rank], self._before[rank]
        usual = int(last[BEGUN]) if last[BEGUN] == before[BEGUN] else 0
        stands_for_pass = last[AHEAD if last[AHEAD] else ARRIVED] == usual
        is_simple = self._pipeline[rank] < 0 or bool(stands_for_pass and not self._is_round(rank))
        return usual, usual > 1 and is_simple

    def forget(self, rank: int) -> None:
        """The rank's process was replaced."""
        if rank < len(self._now):
            self._step_ns[rank] = self._step_at[rank] = self._end_at[rank] = 0
            self._now[rank], self._last[rank], self._before[rank] = 0, 0, 0

    def _is_round(self, rank: int) -> bool:
        """Whether ranks of this one's pipeline hold several stages each."""
        return bool(self._goes_round[self._pipeline[rank]])

    def _messages(self, done: Completed, comms: Communicators) -> list[tuple[Ints, Ints, int, Ints, Ints]]:
        """Messages of pipelines, among completed operations, as `_joined` takes them."""
        if new := comms.info[len(self._is_pipeline) :]:
            of_new = [role_of_description(info.desc) == "pp" for info in new]
            self._is_pipeline = np.append(self._is_pipeline, of_new)
            self._goes_round = np.append(self._goes_round, np.zeros(len(of_new), np.bool_))
        at = np.flatnonzero((done["kind"] == Kind.SEND) | (done["kind"] == Kind.RECV))
        at = at[self._is_pipeline[done.comm[at]] & (done.place[at] >= 0)]
        size, place = comms.size[done.comm[at]], done.place[at]
        step = (done["peer"][at].astype(np.int64) - place) % np.maximum(size, 1)
        is_send = done["kind"][at] == Kind.SEND
        ahead = is_send & np.where(size == 2, place == 0, step == 1)
        arrived = ~is_send & np.where(size == 2, place == 1, step == size - 1)
        by_last = is_send & (place == size - 1) & (size > 1)
        return [
            (
                done.rank[at[which]].astype(np.int64), done["t_issue_ns"][at[which]].astype(np.int64), int(what),
                done["ordinal"][at[which]].astype(np.int64), done.comm[at[which]].astype(np.int64),
            )
            for what, which in ((_Event.AHEAD, ahead), (_Event.ARRIVED, arrived), (_Event.SENT_BY_LAST, by_last))
        ]  # fmt: skip

    def _grow(self, size: int) -> None:
        more = size - len(self._now)
        if more > 0:
            zeros = np.zeros(max(more, len(self._now)), np.int64)
            rows = np.zeros((len(zeros), 6), np.int64)
            self._step_ns, self._step_at = np.append(self._step_ns, zeros), np.append(self._step_at, zeros)
            self._end_at, self._pipeline = np.append(self._end_at, zeros), np.append(self._pipeline, zeros - 1)
            self._now, self._last = np.concatenate((self._now, rows)), np.concatenate((self._last, rows))
            self._before = np.concatenate((self._before, rows))


def _marks(passes: Rows, steps: Rows) -> list[tuple[Ints, Ints, int, Ints, Ints]]:
    """Begins and ends of passes, and steps, as `_joined` takes them."""
    is_end = passes["row"]["t_end_ns"] > 0
    found = []
    for rows, what, at in (
        (passes[~is_end], _Event.BEGIN, "t_issue_ns"),
        (passes[is_end], _Event.END, "t_end_ns"),
        (steps, _Event.STEP, "t_issue_ns"),
    ):
        row = rows["row"]
        columns = (rows["rank"], row[at], row["ordinal"])
        rank, at_ns, ordinal = (column.astype(np.int64) for column in columns)
        found.append((rank, at_ns, int(what), ordinal, np.full(len(rows), -1)))
    return found


def _joined(parts: list[tuple[Ints, Ints, int, Ints, Ints]]) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Rank, time, what, ordinal and communicator (-1 none) of events, (n,) each."""
    what = np.concatenate([np.full(len(part[0]), part[2]) for part in parts])
    rank, at_ns, ordinal, comm = (np.concatenate([part[column] for part in parts]) for column in (0, 1, 3, 4))
    return rank, at_ns, what, ordinal, comm


def _begun_before(what: Ints, part: Ints, heads: Ints) -> Ints:
    """How many passes were begun before each event in its iteration, among these, (n,)."""
    begins = what == _Event.BEGIN
    count = np.cumsum(begins) - begins
    found: Ints = count - count[heads][part]
    return found
