"""How far each rank is in its iteration: backward passes that it has begun and done with, messages in its pipeline.

So it can be said in which part of an iteration a rank stands, and of which microbatch: in a backward pass, before one,
or behind the last one. How many passes an iteration has, and how many operations come before the first of them, is
taken from the two before. The order of events is that of operations, which are numbered; that of marks between two
operations is by the rank's own clock. Nothing is said of ranks that make no optimizer step: where their iterations
begin, by their operations, may be in the middle of a pass.

Where ranks of a pipeline hold several stages each, or nobody has said that it is a pipeline, it is said what follows
from the schedules that fit one of the two iterations before, of the rank and of others (`locate.interleaving`).

Example: a rank in the middle of a pipeline has sent three messages to the next stage since its step, and has begun one
backward pass of the usual four: forward, microbatch 3.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.locate.interleaving import Event, Interleaving, Part, agreed, interleavings, to_compare, weights
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


_COUNTED: Final = 6
"""Columns of counts: of messages by sort, and of passes that are over and begun."""
AHEAD, ARRIVED, BACK, RETURNED, OVER, BEGUN, LEAD, BETWEEN, SIGN = range(9)
"""Columns of what is known of an iteration. LEAD: operations between the step and the first pass. BETWEEN: 1 if there
are some between the first pass and the second. SIGN: of the order of messages sent and passes begun."""
_COLUMNS: Final = SIGN + 1
_COUNTED_EVENTS: Final = (Message.AHEAD, Message.ARRIVED, Message.BACK, Message.RETURNED, _Event.END, _Event.BEGIN)
_IN_ORDER: Final = (AHEAD, BACK, BEGUN)
"""Columns that count the events of `locate.interleaving`."""
_CODE: Final = np.full(_Event.STEP + 1, -1, np.int64)
"""By event here, the event there; -1 none."""
_CODE[[Message.AHEAD, Message.BACK, _Event.BEGIN]] = Event.AHEAD, Event.BACK, Event.BEGIN

START: Final = "iteration start"
"""Between the optimizer's step and the first operation of the next iteration."""


class Passes:
    """Of each rank three times nine numbers.

    Args:
        comms: All communicators.
    """

    def __init__(self, comms: Communicators) -> None:
        self._comms, self._messages = comms, PipelineMessages(comms)
        self._step_ns, self._step_at = np.zeros(0, np.int64), np.zeros(0, np.int64)  # time and ordinal of the latest
        self._end_at = np.zeros(0, np.int64)  # ordinal of the end of the first pass since
        self._now, self._last, self._before = (np.zeros((0, _COLUMNS), np.int64) for _ in range(3))  # iterations
        self._pipeline = np.zeros(0, np.int64)  # the communicator of each rank that carries such messages, -1 none
        self._goes_round = np.zeros(0, np.bool_)  # by communicator: ranks hold several stages

    def feed(self, passes: Rows, steps: Rows, done: Completed, flight: Rows) -> None:
        """Take what is new.

        Args:
            passes: Backward passes, rows of RECORD_REPORTED: one when it begins, without an end, and one when it ends.
            steps: Optimizer steps, the same.
            done: Completed operations.
            flight: Operations in flight, rows of OPS.
        """
        messages = self._messages.new(done, flight, self._step_at)
        rank, at_ns, what, ordinal, comm = _joined([*_marks(passes, steps), *map(_without_time, messages)])
        if not len(rank):
            return
        self._grow(1 + int(rank.max()), len(self._comms.info))
        self._note_pipelines(rank, comm)
        is_op = what < _Event.END
        new = np.where(is_op, ordinal > self._step_at[rank], at_ns > self._step_ns[rank])
        new &= (comm < 0) | self._is_described(comm) | (comm == self._pipeline[rank])
        order = np.lexsort((what, at_ns, ~is_op, ordinal, rank))  # a mark has the ordinal of the operation before it
        order = order[new[order]]
        rank, at_ns, what, ordinal, comm = (column[order] for column in (rank, at_ns, what, ordinal, comm))
        if len(rank):
            self._take(rank, at_ns, what, ordinal, comm)

    def _note_pipelines(self, rank: Ints, comm: Ints) -> None:
        """Messages say on which communicator the pipeline of a rank is, those on a described one before all others."""
        for is_described in (False, True):
            which = (comm >= 0) & (self._is_described(comm) == is_described)
            which &= is_described | ~self._is_described(self._pipeline[rank])
            self._pipeline[rank[which]] = comm[which]

    def _is_described(self, comm: Ints) -> Bools:
        """Which communicators say that they are pipelines; -1 is none."""
        return np.asarray(np.append(self._messages.is_described, False)[comm])

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
        carried = np.where(has_carry[:, None], self._now[rank[heads]], 0)
        found[:, :_COUNTED] += carried[:, :_COUNTED]
        found[:, SIGN] = carried[:, SIGN] + _added_to_signs(what, part, heads, carried)
        # Where the iteration began, by operations: at the step before it.
        began_at = self._step_at[rank[heads]]
        began_at[~has_carry] = ordinal[heads[~has_carry] - 1]
        self._note_leads(found, carried, what, ordinal, part, heads, began_at, rank)
        begun = _before(what == _Event.BEGIN, part, heads) + carried[part, BEGUN]
        is_known = turn + (self._step_ns[rank] > 0) > 0
        self._goes_round[comm[(what == Message.SENT_BY_LAST) & (begun == 0) & is_known]] = True
        self._shift(ranks, steps, found, turn[heads], of[heads])
        last = np.flatnonzero(is_step & (turn == steps[of] - 1))
        self._step_ns[rank[last]], self._step_at[rank[last]] = at_ns[last], ordinal[last]

    def _note_leads(
        self, found: Ints, carried: Ints, what: Ints, ordinal: Ints, part: Ints, heads: Ints, began_at: Ints, rank: Ints
    ) -> None:
        """Fill LEAD and BETWEEN of iterations."""
        found[:, LEAD], found[:, BETWEEN] = carried[:, LEAD], carried[:, BETWEEN]
        begins, ends = what == _Event.BEGIN, what == _Event.END
        number = _before(begins, part, heads) + carried[part, BEGUN]
        first, second = np.flatnonzero(begins & (number == 0)), np.flatnonzero(begins & (number == 1))
        found[part[first], LEAD] = ordinal[first] - began_at[part[first]]
        end_at = self._end_at[rank[heads]]
        first_end = np.flatnonzero(ends & (_before(ends, part, heads) + carried[part, OVER] == 0))
        end_at[part[first_end]] = ordinal[first_end]
        found[part[second], BETWEEN] = ordinal[second] > end_at[part[second]]
        self._end_at[rank[heads]] = end_at  # of the last iteration of each rank, which comes last

    def _shift(self, ranks: Ints, steps: Ints, found: Ints, turn: Ints, of: Ints) -> None:
        """Iterations that are over become the last ones; one that has begun without an event is empty."""
        now, last = np.zeros((len(ranks), _COLUMNS), np.int64), self._last[ranks]
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
        and each message stands for a pass, or where the schedule is known.

        Args:
            rank: Which one.
            ordinal: Of the operation that it has begun last.
        """
        if rank >= len(self._now) or not self._step_ns[rank]:
            return None
        now, last, before = self._now[rank], self._last[rank], self._before[rank]
        usual, has_numbers = self._usual(rank)
        done = [int(count) for count in now[list(_IN_ORDER)]]
        if now[BEGUN] > now[OVER]:
            in_pass = self._agreed(rank, lambda one, place: one.stands_in(place, *done, in_pass=True))
            simple = int(now[BEGUN]) - 1 if has_numbers and now[BEGUN] <= usual else None
            return "backward", in_pass.microbatch if in_pass else simple
        if usual and now[BEGUN] == usual:
            return "optimizer", None
        begun_ops = ordinal - int(self._step_at[rank])
        if usual and not now[:_COUNTED].any() and begun_ops == 0:
            return START, None
        between = self._agreed(rank, lambda one, place: one.stands_in(place, *done, in_pass=False))
        if between is not None and begun_ops > 0:
            return ("forward", between.microbatch) if between.is_forward else None
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

    def part_of_message(self, rank: int, *, with_next: bool, is_sent: bool = False) -> tuple[str, int | None] | None:
        """Phase and microbatch of the message of its pipeline in which a rank waits; None where it is not known.

        From the next stage gradients come, from the one before what its forward pass has made. Where ranks hold several
        stages, the schedule says which it is. Of a message that the rank itself sends only the phase is known.

        Args:
            rank: Which one.
            with_next: The other end is the next rank.
            is_sent: The rank sends it.
        """
        if rank >= len(self._now) or not self._step_ns[rank] or self._pipeline[rank] < 0:
            return None
        now = self._now[rank]
        if self._needs_schedule(rank):
            number, step = int(now[RETURNED if with_next else ARRIVED]), 1 if with_next else -1
            part = self._agreed(rank, lambda one, place: one.message((place + step) % one.ranks, place, number))
            return ("forward" if part.is_forward else "backward", part.microbatch) if part and not is_sent else None
        if is_sent:
            return "forward" if with_next else "backward", None
        usual, has_numbers = self._usual(rank)
        number = int(now[BEGUN if with_next else ARRIVED])
        return "backward" if with_next else "forward", number if has_numbers and number < usual else None

    def _usual(self, rank: int) -> tuple[int, bool]:
        """Backward passes of an iteration, 0 where the two before differ, and whether its microbatches have numbers."""
        last, before = self._last[rank], self._before[rank]
        usual = int(last[BEGUN]) if last[BEGUN] == before[BEGUN] else 0
        stands_for_pass = last[AHEAD if last[AHEAD] else ARRIVED] == usual
        is_simple = self._pipeline[rank] < 0 or bool(stands_for_pass and not self._needs_schedule(rank))
        return usual, usual > 1 and is_simple

    def _agreed(self, rank: int, say: Callable[[Interleaving, int], list[Part]]) -> Part | None:
        """What follows from all schedules that the pipeline of a rank may follow; None where nothing does.

        Args:
            rank: Of a pipeline, or not.
            say: What one schedule says of the rank at this place.
        """
        comm = int(self._pipeline[rank])
        if comm < 0 or not self._needs_schedule(rank):
            return None
        members = self._comms.members_of(comm)
        place = members.index(rank) if rank in members else -1
        places = to_compare(place, len(members)) if place >= 0 else []
        ranks = [members[at] for at in places]
        if any(not 0 <= other < len(self._last) for other in ranks):
            return None
        signs = {
            at: {int(one[other, SIGN]) for one in (self._last, self._before)}
            for at, other in zip(places, ranks, strict=True)
        }
        possible = interleavings(len(members), int(self._last[rank, BEGUN]), signs)
        return agreed(part for one in possible for part in say(one, place))

    def forget(self, rank: int) -> None:
        """The rank's process was replaced."""
        self._messages.forget(rank)
        if rank < len(self._now):
            self._step_ns[rank] = self._step_at[rank] = self._end_at[rank] = 0
            self._now[rank], self._last[rank], self._before[rank] = 0, 0, 0

    def _needs_schedule(self, rank: int) -> bool:
        """Whether ranks of this one's pipeline hold several stages each, or nobody has said that it is one."""
        comm = self._pipeline[rank]
        return bool(self._goes_round[comm] or not self._is_described(comm))

    def _grow(self, ranks: int, comms: int) -> None:
        self._goes_round = np.append(self._goes_round, np.zeros(comms - len(self._goes_round), np.bool_))
        more = ranks - len(self._now)
        if more > 0:
            zeros = np.zeros(max(more, len(self._now)), np.int64)
            rows = np.zeros((len(zeros), _COLUMNS), np.int64)
            self._step_ns, self._step_at = np.append(self._step_ns, zeros), np.append(self._step_at, zeros)
            self._end_at, self._pipeline = np.append(self._end_at, zeros), np.append(self._pipeline, zeros - 1)
            self._now, self._last = np.concatenate((self._now, rows)), np.concatenate((self._last, rows))
            self._before = np.concatenate((self._before, rows))


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
    number = _before(is_in_order, part, heads) + carried[:, _IN_ORDER].sum(axis=1)[part]
    return np.add.reduceat(np.where(is_in_order, weights(number, code), 0), heads)
