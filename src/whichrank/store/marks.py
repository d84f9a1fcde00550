"""Where iterations begin, of ranks that make no optimizer steps: with an operation that comes once in each period.

It is the one before which a rank most likely computes: the longest time passes before it is issued. All ranks with the
same period, in whatever rotation, take the same one. Where a period is several iterations, since there is a log in
some of them, it is one that comes once in each of these (`detect.inner_periods`).

Iterations have the same numbers on all ranks: where one begins with a collective, a member takes its number from those
that were there before, by the operation's own counter; else a rank takes the number of the iteration in which another
rank was at that time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.detect.inner_periods import inner_periods
from whichrank.model.iterations import Bools
from whichrank.model.job_now import Beginnings
from whichrank.model.kinds import Kind, is_collective
from whichrank.model.places import starts, those
from whichrank.model.sequence import Shapes, Tokens
from whichrank.model.stable_hash import stable_hash
from whichrank.model.telemetry import RECORD_REPORTED
from whichrank.store.completed import Completed
from whichrank.store.rank_columns import RankColumns

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
LEARNT_IN: Final = 2
"""Periods in which the longest pause of a rank is looked for, at least."""
LEARNT_IN_S: Final = 3.0
"""And so long: what a job does again and again before it trains is over sooner."""
LONG_PAUSE: Final = 4.0
"""Times the median: a longer time between two operations, of which all are alike, may end an iteration."""
LONGEST: Final = 0.98
"""Share of pauses that are no longer than the longest that count; half as long is no such one."""
LEAST_PAUSES: Final = 4
"""Of these, to be seen before they say something."""
REGULAR: Final = 0.9
"""Share of them that come at the same distance."""
MOST_ALIKE: Final = 256
"""Operations of an iteration in which all are alike."""
ALIKE_S: Final = 0.5
"""Seconds of operations that are all alike, without such pauses, that count as an iteration."""
EVEN: Final = 1.5
"""Times the lower quartile of the lengths of iterations that their upper one is at most; layers forward and backward
differ by a factor of two."""
EVEN_IF_CLOSED: Final = 4.0
"""The same where each has an operation that closes an iteration: what is to be told apart are buckets of one iteration.
"""
MOST_LOOKED_AT: Final = 1 << 16
"""Operations in which it is looked for, at most."""
REFERENCES: Final = 64
"""Latest iterations, of whichever rank, by which others are numbered."""
MOST_AT_ONCE: Final = 64
"""Sorts of periods of which it is found out at one time with what they begin; others come later."""
MOST_SORTS: Final = 4096
"""Sorts of periods that are remembered."""
_MARK: Final = np.dtype([("rank", "i8"), ("number", "i8"), ("ordinal", "i8"), ("at_ns", "i8")])
"""The beginning of an iteration: its number, the operations begun before it, when that was."""


@dataclass
class _Learning:
    """A sort of period of which it is not known yet with which operation it begins.

    Attributes:
        rank: Whose operations are looked at.
        shape: Of each token with which it may begin, in sets: of iterations that are shorter than the period, and last
            of the period itself.
        even: Times the lower quartile of the lengths of iterations that their upper one is at most.
        length: Operations of a period.
        seen: These: token, counter and time of issue of each, in parts.
        count: How many these are.
    """

    rank: int
    shape: list[dict[int, int]]
    even: float
    length: int
    seen: list[tuple[Tokens, Ints, Ints]] = field(default_factory=list)
    count: int = 0

    def look(self, tokens: Tokens, counter: Ints, issue_ns: Ints) -> bool:
        """See what the rank has issued, in this order, (n,) each. Whether that is enough."""
        if len(tokens):
            self.seen.append((tokens, counter, issue_ns))
            self.count += len(tokens)
        lasted_ns = int(self.seen[-1][2][-1]) - int(self.seen[0][2][0]) if self.seen else 0
        return self.count > LEARNT_IN * self.length and lasted_ns >= LEARNT_IN_S * 1e9

    def beginning(self) -> _Beginning | None:
        """With what iterations begin; None where that cannot be said."""
        tokens, counter, issue_ns = (np.concatenate(column) for column in zip(*self.seen, strict=True))
        pause_ns = np.diff(issue_ns)
        for may_begin in self.shape:
            before = {token: pause_ns[tokens[1:] == token] for token in may_begin}
            token = max(before, key=lambda one: float(np.median(before[one])) if len(before[one]) else -1.0, default=-1)
            if may_begin is not self.shape[-1]:
                at_ns = issue_ns[tokens == token]
                if not _are_even(at_ns, round(len(at_ns) * self.length / len(tokens)), self.even):
                    continue
            if len(np.unique(tokens)) > 1:
                return _Beginning(may_begin[token]) if may_begin else None
            every = _every(pause_ns)
            latest_ns = pause_ns[-every:]
            return _Beginning(may_begin[token], every, int(counter[-every:][latest_ns.argmax()]) % every)
        return None


@dataclass(frozen=True)
class _Beginning:
    """With what iterations of a sort begin.

    Attributes:
        shape: Of the operation.
        every: Where all operations are alike: how many are in an iteration.
        phase: And the counter of the first of them, modulo that.
    """

    shape: int
    every: int = 1
    phase: int = 0


def _each_s(references: Iterable[tuple[float, int]]) -> float:
    """Seconds from one of these iterations to the next, by when they began and their numbers; one at least."""
    known_s, number = (np.array(column) for column in zip(*references, strict=True))
    return float(np.ptp(known_s) / max(np.ptp(number), 1))


def _are_even(at_ns: Ints, in_period: int, most: float) -> bool:
    """Whether about the same time passes from each of these moments to the next.

    Each length is the median over periods, as on a busy machine single ones differ by more than layers do.

    Args:
        at_ns: The moments, (n,).
        in_period: How many are in a period.
        most: As EVEN.
    """
    if not 0 < in_period < len(at_ns):
        return False
    lasted_ns = np.diff(at_ns)[-((len(at_ns) - 1) // in_period) * in_period :].reshape(-1, in_period)
    short, long = np.quantile(np.median(lasted_ns, axis=0), (0.25, 0.75))
    return bool(long <= most * short)


def _every(pause_ns: Ints) -> int:
    """How many operations are in an iteration, if all are alike: the distance of pauses that are much longer than most.

    Where there are none, as many as come in a while: half a second of such a job is like the next.

    Args:
        pause_ns: The time before each of them, (n,), n > 0.
    """
    least_ns = max(LONG_PAUSE * float(np.median(pause_ns)), float(np.quantile(pause_ns, LONGEST)) / 2)
    long = np.flatnonzero(pause_ns > least_ns)
    apart = np.diff(long)
    if len(long) >= LEAST_PAUSES:
        usual = int(np.median(apart))
        if usual <= MOST_ALIKE and (apart == usual).mean() >= REGULAR:
            return usual
    return max(1, round(ALIKE_S * 1e9 / float(pause_ns.mean())))


class Marks:
    """Of all ranks six numbers, of all communicators two."""

    def __init__(self) -> None:
        self._begins = np.zeros(0, np.int64)  # by rank, the token with which its iterations begin, -1 none
        self._each = np.zeros(0)  # by rank, operations in an iteration on the communicator of that token
        self._every, self._phase = np.zeros(0, np.int64), np.zeros(0, np.int64)  # by rank (`_Beginning`)
        self._number, self._ordinal = np.zeros(0, np.int64), np.zeros(0, np.int64)  # of the latest mark, -1 none
        self._length = np.zeros(0, np.int64)  # operations from the mark before it to the latest one, 0 not known
        self._shape = np.zeros(0, np.int64)  # by rank, of the operation with which its iterations begin
        self._makes_steps = np.zeros(0, np.bool_)
        self._is_alike = np.zeros(0, np.bool_)  # by rank, whether the period with that token had no other
        self._counter_at = np.zeros(0, np.int64)  # by communicator, of the latest mark
        self._number_at = np.zeros(0, np.int64)
        self._learning: dict[int, _Learning] = {}
        self._first: dict[int, _Beginning | None] = {}  # by sort of period, None if it cannot be said
        self._waiting: set[int] = set()  # ranks, for one of these
        self._has_decided = False
        self._references: deque[tuple[float, int]] = deque(maxlen=REFERENCES)  # when, and which number
        self._references_now = 0  # how many of them are of iterations that begin as they do now
        self._begun_anew = False

    # ---- learning ----------------------------------------------------------------------------------------------------

    def note_steps(self, ranks: NDArray[Any]) -> None:
        """These make optimizer steps, which say it better."""
        if not len(ranks):
            return
        self._grow(int(ranks.max()) + 1)
        if not self._makes_steps[ranks].all():
            self._begun_anew = self._begun_anew or bool((self._number[ranks] >= 0).any())
            self._makes_steps[ranks] = True
            self._begins[ranks], self._number[ranks] = -1, -1

    def wants(self, rank: int, period: Tokens) -> bool:
        """Whether the period of a rank that is settled is of use: not where it makes steps, or goes on as before."""
        if rank >= len(self._begins):
            return True
        return not self._makes_steps[rank] and (period == self._begins[rank]).sum() != 1

    def learn(self, rank: int, period: Tokens, shapes: Shapes, groups: Ints, closes: Bools) -> None:
        """A rank is settled, and its period is wanted. Until more is known its iterations begin as before, if they can.

        Args:
            rank: Which.
            period: Its tokens, from anywhere on, (p,).
            shapes: What each is on any communicator like its own, (p,).
            groups: The key of the communicator of each, -1 of messages, (p,).
            closes: Whether each closes an iteration, (p,).
        """
        self._grow(rank + 1)
        if self._begins[rank] >= 0 and not (period == self._begins[rank]).any():
            self._begins[rank], self._number[rank], self._begun_anew = -1, -1, True
        sort = stable_hash(np.sort(shapes))
        if sort in self._first:
            self._begin_with(self._first[sort], rank, period, shapes, groups)
            return
        if sort not in self._learning and len(self._learning) < MOST_AT_ONCE and len(self._first) < MOST_SORTS:
            values, count = np.unique(shapes, return_counts=True)
            may_begin = [*inner_periods(shapes, groups, closes), set(values[count == 1].tolist())]
            by_token = dict(zip(period.tolist(), shapes.tolist(), strict=True))
            now = by_token.get(int(self._begins[rank]))
            if now is not None and not self._is_alike[rank] and any(now in some for some in may_begin):
                self._first[sort] = _Beginning(now)  # a log came into its period, or another one
                self._begin_with(self._first[sort], rank, period, shapes, groups)
                return
            shape = [{token: one for token, one in by_token.items() if one in some} for some in may_begin]
            if any(shape):
                even = EVEN_IF_CLOSED if closes.any() else EVEN
                self._learning[sort] = _Learning(rank, shape, even, len(period))
            else:
                if now is None or self._is_alike[rank]:  # else they go on to begin as they did
                    self._first[sort] = None
                    self._begin_with(None, rank, period, shapes, groups)
                return
        self._waiting.add(rank)

    def take_waiting(self) -> list[int]:
        """Ranks of which the period is wanted once more, since more is known now of sorts of periods."""
        if not self._has_decided:
            return []
        waiting, self._waiting, self._has_decided = self._waiting, set(), False
        return sorted(waiting)

    def take_begun_anew(self) -> bool:
        """Whether iterations begin with something else than before, since last asked."""
        begun_anew, self._begun_anew = self._begun_anew, False
        if begun_anew:
            self._references_now = 0
        return begun_anew

    def beginnings(self, ranks: NDArray[Any]) -> Beginnings | None:
        """Where iterations of these ranks begin.

        None where that is not known of all of them, or where some begin with another operation: what one has entered
        there another may have not.

        Args:
            ranks: (R,).
        """
        if not len(ranks) or int(ranks.max()) >= len(self._number):
            return None
        number, ordinal, length = self._number[ranks], self._ordinal[ranks], self._length[ranks]
        is_known = (number >= 0).all() and (length > 0).all() and (self._shape[ranks] == self._shape[ranks[0]]).all()
        return Beginnings(number, ordinal - 1, length) if is_known else None

    def iteration_s(self) -> float:
        """Seconds from one iteration to the next, by the latest ones of some rank; 0 while that is not known."""
        latest = list(self._references)[len(self._references) - min(self._references_now, REFERENCES) :]
        return _each_s(latest) if latest else 0.0

    def _begin_with(self, first: _Beginning | None, rank: int, period: Tokens, shapes: Shapes, groups: Ints) -> None:
        if self._makes_steps[rank]:
            return
        before = int(self._begins[rank]), int(self._every[rank]), int(self._phase[rank])
        if first is None:
            self._begins[rank] = -1
        else:
            at = np.flatnonzero(shapes == first.shape)
            on_it = (groups == groups[at[0]]).sum()
            self._begins[rank], self._each[rank] = int(period[at[0]]), on_it * first.every / len(at)
            self._every[rank], self._phase[rank] = first.every, first.phase
            self._is_alike[rank], self._shape[rank] = len(np.unique(shapes)) == 1, first.shape
        if before[0] >= 0 and before != (self._begins[rank], self._every[rank], self._phase[rank]):
            self._begun_anew, self._number[rank] = True, -1

    def look(self, done: Completed, tokens: Tokens) -> None:
        """See completed operations, (n,): by those of some ranks it is learnt with what iterations begin."""
        for sort, of in list(self._learning.items()):
            at = np.flatnonzero(done.rank == of.rank)
            at = at[np.argsort(done["ordinal"][at], kind="stable")]
            counter, issue_ns = (done[name][at].astype(np.int64) for name in ("counter", "t_issue_ns"))
            if of.look(tokens[at], counter, issue_ns):
                self._first[sort] = of.beginning()
            elif of.count < MOST_LOOKED_AT:
                continue
            del self._learning[sort]
            self._has_decided = True

    def lose(self, rank: int) -> None:
        """Operations of this rank were lost: in which iteration it is is asked anew."""
        if rank < len(self._number):
            self._number[rank] = -1

    def forget(self, rank: int) -> None:
        """The rank's process was replaced."""
        if rank < len(self._number):
            self._begins[rank], self._number[rank], self._ordinal[rank], self._makes_steps[rank] = -1, -1, 0, False
        self._learning = {sort: of for sort, of in self._learning.items() if of.rank != rank}

    # ---- feeding -----------------------------------------------------------------------------------------------------

    def feed(
        self, done: Completed, tokens: Tokens, ranks: RankColumns, count_before: Callable[[int, int, int], int]
    ) -> np.ndarray[Any, Any]:
        """Take completed operations. Returns the iterations that begin with some of them, as steps of RECORD_REPORTED.

        Args:
            done: The operations.
            tokens: What each is, (n,).
            ranks: Of the job.
            count_before: How often a rank has issued this token before the operation with this ordinal.
        """
        if not len(done) or not (self._begins >= 0).any():
            return np.zeros(0, RECORD_REPORTED)
        self._grow(int(done.rank.max()) + 1)
        at = np.flatnonzero(tokens == self._begins[done.rank])
        at = at[done["counter"][at] % self._every[done.rank[at]] == self._phase[done.rank[at]]]
        at = at[done["ordinal"][at] > self._ordinal[done.rank[at]]]
        key = done.rank[at] << 32 | done["ordinal"][at]
        at = at[np.unique(key, return_index=True)[1]]
        steps = np.zeros(len(at), RECORD_REPORTED)
        marks = np.zeros(len(at), _MARK)
        marks["rank"], marks["ordinal"] = done.rank[at], done["ordinal"][at].astype(np.int64) - 1
        marks["at_ns"] = done["t_issue_ns"][at].astype(np.int64)
        if len(at):
            is_shared = is_collective(done["kind"][at])
            at_s = ranks.host_s(marks["rank"], marks["at_ns"])
            comm = np.where(is_shared, done.comm[at], -1)
            self._number_all(marks, at_s, comm, done["counter"][at].astype(np.int64), count_before)
        steps["rank"], steps["row"]["kind"] = marks["rank"], Kind.STEP
        steps["row"]["counter"], steps["row"]["ordinal"] = marks["number"], marks["ordinal"]
        steps["row"]["t_issue_ns"] = steps["row"]["t_end_ns"] = marks["at_ns"]
        return those(steps, marks["number"] > 0)  # nobody sees what is before the first

    def _number_all(
        self, marks: np.ndarray[Any, Any], at_s: Floats, comm: Ints, counter: Ints,
        count_before: Callable[[int, int, int], int],
    ) -> None:  # fmt: skip
        """Set the numbers of marks.

        Args:
            marks: Rows of _MARK, by rank and ordinal, (n,).
            at_s: When that was on the analyzer's clock, (n,).
            comm: With a collective of which communicator each begins, -1 with a message, (n,).
            counter: Its number there, (n,).
            count_before: As in `feed`.
        """
        more = int(comm.max()) + 1 - len(self._number_at)
        if more > 0:
            self._counter_at, self._number_at = (
                np.append(column, np.full(more, -1)) for column in (self._counter_at, self._number_at)
            )
        begins = starts(marks["rank"])
        count = np.diff(np.append(begins, len(marks)))
        ranks = marks["rank"][begins]
        before = self._number[ranks]
        marks["number"] = np.repeat(before, count) + np.arange(len(marks)) - np.repeat(begins, count) + 1
        known = np.flatnonzero(before >= 0)
        self._learn_numbers(marks, comm, counter, np.repeat(before >= 0, count))
        if len(known):
            part = slice(int(begins[known[0]]), int(begins[known[0]] + count[known[0]]))
            self._refer_to(at_s[part], marks["number"][part])
        for one in np.flatnonzero(before < 0).tolist():
            part = slice(int(begins[one]), int(begins[one] + count[one]))
            first = part.start
            rank, of_comm = int(marks["rank"][first]), int(comm[first])
            begun = count_before(rank, int(self._begins[rank]), int(marks["ordinal"][first]) + 1) // int(
                self._every[rank]
            )
            number = self._first_number(rank, float(at_s[first]), of_comm, int(counter[first]), begun)
            marks["number"][part] += number
            self._learn_numbers(marks[part], comm[part], counter[part], np.ones(int(count[one]), np.bool_))
            if not self._references:
                self._refer_to(at_s[part], marks["number"][part])
        last = begins + count - 1
        apart, ops = marks["number"][last] - before, marks["ordinal"][last] + 1 - self._ordinal[ranks]
        self._length[ranks] = np.where((before >= 0) & (apart > 0), ops // np.maximum(apart, 1), self._length[ranks])
        self._number[ranks], self._ordinal[ranks] = marks["number"][last], marks["ordinal"][last] + 1

    def _refer_to(self, at_s: Floats, number: Ints) -> None:
        """By these others are numbered: when they began, and their numbers, (n,)."""
        self._references.extend(zip(at_s.tolist(), number.tolist(), strict=True))
        self._references_now += len(number)

    def _learn_numbers(self, marks: np.ndarray[Any, Any], comm: Ints, counter: Ints, which: NDArray[np.bool_]) -> None:
        """The numbers of some marks count for others on their communicators."""
        at = np.flatnonzero(which & (comm >= 0))
        self._counter_at[comm[at]], self._number_at[comm[at]] = counter[at], marks["number"][at]

    def _first_number(self, rank: int, at_s: float, comm: int, counter: int, count: int) -> int:
        """The number of an iteration of a rank of which none was numbered before.

        Args:
            rank: Which.
            at_s: When it began.
            comm: With a collective of which communicator, -1 with a message.
            counter: Its number there.
            count: How many iterations have begun before, by the rank alone.
        """
        if comm >= 0 and self._number_at[comm] >= 0:
            apart = (counter - int(self._counter_at[comm])) / max(float(self._each[rank]), 1.0)
            return max(0, int(self._number_at[comm]) + round(apart))
        if not self._references:
            return count
        nearest_s, number = min(self._references, key=lambda known: abs(known[0] - at_s))
        each_s = _each_s(self._references)
        off = round((at_s - nearest_s) / each_s) if each_s > 0 else 0
        return max(0, number + off)

    def _grow(self, ranks: int) -> None:
        more = ranks - len(self._begins)
        if more > 0:
            more = max(more, len(self._begins))
            zeros = np.zeros(more, np.int64)
            self._begins = np.append(self._begins, zeros - 1)
            self._each, self._number = np.append(self._each, zeros * 1.0), np.append(self._number, zeros - 1)
            self._every, self._phase = np.append(self._every, zeros + 1), np.append(self._phase, zeros)
            self._shape = np.append(self._shape, zeros)
            self._ordinal, self._length = np.append(self._ordinal, zeros), np.append(self._length, zeros)
            self._makes_steps, self._is_alike = (
                np.append(column, zeros > 0) for column in (self._makes_steps, self._is_alike)
            )
