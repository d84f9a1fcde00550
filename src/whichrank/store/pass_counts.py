"""How far each rank is in its iteration, as counts: messages in its pipeline, backward passes begun and done with.

Kept of the iteration that is under way and of the two before. The order of events is that of operations, which are
numbered; that of marks between two operations is by the rank's own clock.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.locate.interleaving import Event, weights
from whichrank.locate.phases import LEAST_FORWARD
from whichrank.store.communicators import Communicators
from whichrank.store.completed import Completed
from whichrank.store.pipeline_messages import Message, PipelineMessages

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Rows = np.ndarray[Any, Any]


class _Event(IntEnum):
    """What happened, beside messages; of marks of the same time the first one here comes first."""

    END = len(Message)
    BEGIN = END + 1
    STEP = END + 2


COUNTED: Final = 6
"""Columns of counts: of messages by sort, and of passes that are over and begun."""
AHEAD, ARRIVED, BACK, RETURNED, OVER, BEGUN, LEAD, BETWEEN, APART, SIGN = range(10)
"""Columns of what is known of an iteration. LEAD: operations between the step and the first pass. BETWEEN: 1 if there
are some between the first pass and the second. APART: 1 if there is as much time between both as a forward pass takes.
SIGN: of the order of messages sent and passes begun."""
_COLUMNS: Final = SIGN + 1
_COUNTED_EVENTS: Final = (Message.AHEAD, Message.ARRIVED, Message.BACK, Message.RETURNED, _Event.END, _Event.BEGIN)
IN_ORDER: Final = (AHEAD, BACK, BEGUN)
"""Columns that count the events of `locate.interleaving`."""
_CODE: Final = np.full(_Event.STEP + 1, -1, np.int64)
"""By event here, the event there; -1 none."""
_CODE[[Message.AHEAD, Message.BACK, _Event.BEGIN]] = Event.AHEAD, Event.BACK, Event.BEGIN


class PassCounts:
    """Of each rank three times ten numbers.

    Args:
        comms: All communicators.

    Attributes:
        now: The iteration that is under way, columns as above, (R, 10).
        last: The one before, (R, 10).
        before: The one before that, (R, 10).
        step_ns: When each rank made its latest step, by its own clock; 0 never, (R,).
        step_at: Operations that it had begun by then, (R,).
        pipeline: The communicator on which it exchanges messages with other stages, -1 none, (R,).
    """

    def __init__(self, comms: Communicators) -> None:
        self._comms, self._messages = comms, PipelineMessages(comms)
        self.step_ns, self.step_at = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._end_at = np.zeros(0, np.int64)  # ordinal of the end of the first pass since
        self._first_ns = np.zeros((0, 2), np.int64)  # when that began and ended
        self.now, self.last, self.before = (np.zeros((0, _COLUMNS), np.int64) for _ in range(3))
        self.pipeline = np.zeros(0, np.int64)
        self._goes_round = np.zeros(0, np.bool_)  # by communicator: ranks hold several stages

    def feed(self, passes: Rows, steps: Rows, done: Completed, flight: Rows) -> None:
        """Take what is new.

        Args:
            passes: Backward passes, rows of RECORD_REPORTED: one when it begins, without an end, and one when it ends.
            steps: Optimizer steps, the same.
            done: Completed operations.
            flight: Operations in flight, rows of OPS.
        """
        messages = self._messages.new(done, flight, self.step_at)
        rank, at_ns, what, ordinal, comm = _joined([*_marks(passes, steps), *map(_without_time, messages)])
        if not len(rank):
            return
        self._grow(1 + int(rank.max()), len(self._comms.info))
        self._note_pipelines(rank, comm)
        is_op = what < _Event.END
        new = np.where(is_op, ordinal > self.step_at[rank], at_ns > self.step_ns[rank])
        new &= (comm < 0) | self._is_described(comm) | (comm == self.pipeline[rank])
        order = np.lexsort((what, at_ns, ~is_op, ordinal, rank))  # a mark has the ordinal of the operation before it
        order = order[new[order]]
        rank, at_ns, what, ordinal, comm = (column[order] for column in (rank, at_ns, what, ordinal, comm))
        if len(rank):
            self._take(rank, at_ns, what, ordinal, comm)

    def _note_pipelines(self, rank: Ints, comm: Ints) -> None:
        """Messages say on which communicator the pipeline of a rank is, those on a described one before all others."""
        for is_described in (False, True):
            which = (comm >= 0) & (self._is_described(comm) == is_described)
            which &= is_described | ~self._is_described(self.pipeline[rank])
            self.pipeline[rank[which]] = comm[which]

    def _is_described(self, comm: Ints) -> Bools:
        """Which communicators say that they are pipelines; -1 is none."""
        found, is_any = np.zeros(len(comm), np.bool_), comm >= 0
        found[is_any] = self._messages.is_described[comm[is_any]]
        return found

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
        found = np.zeros((len(heads), _COLUMNS), np.int64)
        for column, kind in enumerate(_COUNTED_EVENTS):
            found[:, column] = np.bincount(part[what == kind], minlength=len(heads))
        has_carry = turn[heads] == 0
        carried = np.where(has_carry[:, None], self.now[rank[heads]], 0)
        found[:, :COUNTED] += carried[:, :COUNTED]
        found[:, SIGN] = carried[:, SIGN] + _added_to_signs(what, part, heads, carried)
        # Where the iteration began, by operations: at the step before it.
        began_at = self.step_at[rank[heads]]
        began_at[~has_carry] = ordinal[heads[~has_carry] - 1]
        self._note_leads(found, carried, what, at_ns, ordinal, part, heads, began_at, rank)
        begun = _before(what == _Event.BEGIN, part, heads) + carried[part, BEGUN]
        is_known = turn + (self.step_ns[rank] > 0) > 0
        self._goes_round[comm[(what == Message.SENT_BY_LAST) & (begun == 0) & is_known]] = True
        self._shift(ranks, steps, found, turn[heads], of[heads])
        last = np.flatnonzero(is_step & (turn == steps[of] - 1))
        self.step_ns[rank[last]], self.step_at[rank[last]] = at_ns[last], ordinal[last]

    def _note_leads(
        self, found: Ints, carried: Ints, what: Ints, at_ns: Ints, ordinal: Ints, part: Ints, heads: Ints,
        began_at: Ints, rank: Ints,
    ) -> None:  # fmt: skip
        """Fill LEAD, BETWEEN and APART of iterations."""
        found[:, LEAD : APART + 1] = carried[:, LEAD : APART + 1]
        begins, ends = what == _Event.BEGIN, what == _Event.END
        number = _before(begins, part, heads) + carried[part, BEGUN]
        first, second = np.flatnonzero(begins & (number == 0)), np.flatnonzero(begins & (number == 1))
        found[part[first], LEAD] = ordinal[first] - began_at[part[first]]
        end_at = self._end_at[rank[heads]]
        first_end = np.flatnonzero(ends & (_before(ends, part, heads) + carried[part, OVER] == 0))
        end_at[part[first_end]] = ordinal[first_end]
        found[part[second], BETWEEN] = ordinal[second] > end_at[part[second]]
        first_ns = self._first_ns[rank[heads]]
        first_ns[part[first], 0], first_ns[part[first_end], 1] = at_ns[first], at_ns[first_end]
        begun_ns, ended_ns = first_ns[part[second]].T
        found[part[second], APART] = at_ns[second] - ended_ns >= LEAST_FORWARD * (ended_ns - begun_ns)
        # Of the last iteration of each rank, which comes last.
        self._end_at[rank[heads]], self._first_ns[rank[heads]] = end_at, first_ns

    def _shift(self, ranks: Ints, steps: Ints, found: Ints, turn: Ints, of: Ints) -> None:
        """Iterations that are over become the last ones; one that has begun without an event is empty."""
        now, last = np.zeros((len(ranks), _COLUMNS), np.int64), self.last[ranks]
        before = np.where((steps == 1)[:, None], last, self.before[ranks])
        for back, column in ((0, now), (1, last), (2, before)):
            at = np.flatnonzero(turn == steps[of] - back)
            column[of[at]] = found[at]
        self.now[ranks], self.last[ranks], self.before[ranks] = now, last, before

    def forget(self, rank: int) -> None:
        """The rank's process was replaced."""
        self._messages.forget(rank)
        if rank < len(self.now):
            self.step_ns[rank] = self.step_at[rank] = self._end_at[rank] = 0
            self.now[rank], self.last[rank], self.before[rank] = 0, 0, 0

    def needs_schedule(self, rank: int) -> bool:
        """Whether ranks of this one's pipeline hold several stages each, or nobody has said that it is one."""
        comm = self.pipeline[rank]
        return bool(self._goes_round[comm] or not self._messages.is_described[comm])

    def _grow(self, ranks: int, comms: int) -> None:
        if comms > len(self._goes_round):
            self._goes_round = np.append(self._goes_round, np.zeros(comms - len(self._goes_round), np.bool_))
        more = ranks - len(self.now)
        if more > 0:
            zeros = np.zeros(max(more, len(self.now)), np.int64)
            rows = np.zeros((len(zeros), _COLUMNS), np.int64)
            self.step_ns, self.step_at = np.append(self.step_ns, zeros), np.append(self.step_at, zeros)
            self._first_ns = np.concatenate((self._first_ns, np.zeros((len(zeros), 2), np.int64)))
            self._end_at, self.pipeline = np.append(self._end_at, zeros), np.append(self.pipeline, zeros - 1)
            self.now, self.last = np.concatenate((self.now, rows)), np.concatenate((self.last, rows))
            self.before = np.concatenate((self.before, rows))


_Events = tuple[Ints, Ints, int, Ints, Ints]
"""Rank, time, what, ordinal and communicator (-1 none) of some events, all of which are the same."""


def _marks(passes: Rows, steps: Rows) -> list[_Events]:
    """Begins and ends of passes, and steps."""
    is_end = passes["row"]["t_end_ns"] > 0
    found = list[_Events]()
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


def _without_time(messages: tuple[Ints, int, Ints, Ints]) -> _Events:
    """Messages as events: their ordinals say in which order they are."""
    rank, what, ordinal, comm = messages
    return rank, np.zeros(len(rank), np.int64), what, ordinal, comm


def _joined(parts: list[_Events]) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Rank, time, what, ordinal and communicator of all events, (n,) each."""
    what = np.concatenate([np.full(len(part[0]), part[2]) for part in parts])
    rank, at_ns, ordinal, comm = (np.concatenate([part[column] for part in parts]) for column in (0, 1, 3, 4))
    return rank, at_ns, what, ordinal, comm


def _before(which: Bools, part: Ints, heads: Ints) -> Ints:
    """How many of these there are before each event in its iteration, among these events, (n,)."""
    count: Ints = np.cumsum(which) - which
    found: Ints = count - count[heads][part]
    return found


def _added_to_signs(what: Ints, part: Ints, heads: Ints, carried: Ints) -> Ints:
    """What events add to the signs of their iterations, (iterations,)."""
    code = _CODE[what]
    is_in_order = code >= 0
    number = _before(is_in_order, part, heads) + carried[:, IN_ORDER].sum(axis=1)[part]
    return np.add.reduceat(np.where(is_in_order, weights(number, code), 0), heads)
