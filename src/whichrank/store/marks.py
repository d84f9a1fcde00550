"""Where iterations begin, of ranks that make no optimizer steps: with operations in a row that come once in each.

They are those before which a rank most likely computes: the longest time passes before the last of them is issued. All
ranks with the same period, in whatever rotation, take the same ones. Where a period is several iterations, since there
is a log in some of them, they come once in each of these (`detect.inner_periods`, `detect.beginnings`).

The last stage of a 1F1B pipeline repeats itself with each microbatch. That this is no iteration is known by the rank
that it exchanges messages with, which has several of them in each of its own.

Iterations have the same numbers on all ranks. Where one begins with a collective, members have the same number for the
same operation: whoever is behind goes on with the number of the others. Else a rank begins with the number of the
iteration in which another rank was at that time, if possible one whose iterations begin as its own do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.detect.beginnings import Beginning, Learning
from whichrank.detect.inner_periods import LONGEST, may_begin, may_go_on, places_of, root_of
from whichrank.model.iterations import Bools
from whichrank.model.job_now import Beginnings
from whichrank.model.kinds import Kind, is_collective
from whichrank.model.places import starts, taken, those
from whichrank.model.sequence import Shapes, Tokens
from whichrank.model.signature import mix
from whichrank.model.stable_hash import stable_hash
from whichrank.model.telemetry import RECORD_REPORTED
from whichrank.store.completed import Completed
from whichrank.store.rank_columns import RankColumns
from whichrank.store.references import References

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Before = Callable[[Ints, Ints, int], tuple[NDArray[np.uint32], Bools, Bools]]
"""`Sequences.before`."""
MOST_LOOKED_AT: Final = 1 << 16
"""Operations in which it is looked for, at most."""
MOST_AT_ONCE: Final = 64
"""Sorts of periods of which it is found out at one time with what they begin; others come later."""
MOST_SORTS: Final = 4096
"""Sorts of periods that are remembered."""
MOST_LATE: Final = 1 << 16
"""Operations that may begin an iteration, and wait for one before them to be reported."""
MOST_LOOPS: Final = 4096
"""Microbatches of an iteration."""
ROUNDS: Final = 32
"""Latest beginnings on each communicator, by which members have the same numbers."""
_AWAY: Final = -1
"""Instead of the operations in an iteration: the rank does something else in between."""
_MARK: Final = np.dtype(
    [("rank", "i8"), ("number", "i8"), ("ordinal", "i8"), ("at_ns", "i8"), ("comm", "i8"), ("counter", "i8"),
     ("token", "u4")]
)  # fmt: skip
"""The operation with which an iteration may begin: the number of that, the operations begun before it, when it was
issued, its communicator (-1 of a message), its counter, its token."""


@dataclass(frozen=True)
class Period:
    """The period of a rank.

    Attributes:
        tokens: From anywhere on, (p,).
        shapes: What each is on any communicator like its own, and of messages the way round the communicator, (p,).
        groups: The key of the communicator of each, -1 of messages, (p,).
        closes: Whether each closes an iteration, (p,).
        peers: The rank with which each message is exchanged, -1 of other operations, (p,).
    """

    tokens: Tokens
    shapes: Shapes
    groups: Ints
    closes: Bools
    peers: Ints

    def root(self) -> Period:
        """Without repetitions."""
        n = len(root_of(self.tokens))
        return Period(self.tokens[:n], self.shapes[:n], self.groups[:n], self.closes[:n], self.peers[:n])

    def sort(self) -> int:
        """A number that ranks have in common whose operations are so alike, in any order."""
        return stable_hash(np.sort(self.shapes))

    def sort_in_order(self) -> int:
        """The same of operations in the same order, from wherever on."""
        rows = self.shapes.view(np.uint64)
        for back in range(1, LONGEST):
            rows = mix(rows, np.roll(self.shapes, back).view(np.uint64))
        return stable_hash(np.sort(rows.view(np.int64)))


class Marks:
    """Of all ranks two dozen numbers, of all communicators `ROUNDS`, of each pair of ranks with messages two."""

    def __init__(self) -> None:
        self._begins = np.zeros(0, np.int64)  # by rank, the token with which its iterations begin, -1 none
        self._behind = np.zeros((0, LONGEST - 1), np.uint32)  # by rank, the tokens before that one, the nearest first
        self._behinds = np.zeros(0, np.int64)  # how many of these count
        self._each = np.zeros(0)  # by rank, operations in an iteration on the communicator of that token
        self._alike = np.zeros(0)  # by rank, operations in an iteration that have that token
        self._ops = np.zeros(0)  # by rank, operations in an iteration
        self._every, self._phase = np.zeros(0, np.int64), np.zeros(0, np.int64)  # by rank (`Beginning`)
        self._number, self._ordinal = np.zeros(0, np.int64), np.zeros(0, np.int64)  # of the latest mark, -1 none
        self._length = np.zeros(0, np.int64)  # operations between the latest two marks, 0 not known
        self._sort = np.zeros(0, np.int64)  # by rank, of that with which its iterations begin
        self._period = np.zeros(0, np.int64)  # by rank, a number for its period, however rotated
        self._makes_steps = np.zeros(0, np.bool_)
        self._counter_at = np.zeros((0, ROUNDS), np.int64)  # by communicator, of the latest marks, -1 none
        self._number_at = np.zeros((0, ROUNDS), np.int64)  # of these
        self._learning: dict[int, Learning] = {}
        self._first: dict[int, Beginning | None] = {}  # by sort of period, None if it cannot be said
        self._now: dict[int, Beginning] = {}  # by sort of beginning
        self._loops: dict[int, int] = {}  # by sort of period, how often it goes round in an iteration
        self._messages: dict[tuple[int, int], float] = {}  # in an iteration of the first rank, with the second one
        self._waiting: set[int] = set()  # ranks, for one of these
        self._has_decided = False
        self._references = References()
        self._late = np.zeros(0, _MARK)
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
        return not self._makes_steps[rank] and not (
            self._begins[rank] >= 0 and self._period[rank] == _number_of(period)
        )

    def learn(self, rank: int, period: Period) -> None:
        """A rank is settled, and its period is wanted. Until more is known its iterations begin as before, if they can.

        Args:
            rank: Which.
            period: Its period.
        """
        self._grow(rank + 1)
        if self._begins[rank] >= 0 and not (period.tokens == self._begins[rank]).any():
            self._length[rank] = _AWAY  # an evaluation may be over before anything is known of it
        number, period = _number_of(period.tokens), period.root()
        sort = period.sort()
        first = self._first.get(sort)
        if first is not None and not len(places_of(first.ngram, period.shapes)):
            sort = period.sort_in_order()
        if sort in self._first:
            self._period[rank] = number
            self._begin_with(self._first[sort], rank, period, sort)
            return
        if sort not in self._learning and len(self._learning) < MOST_AT_ONCE and len(self._first) < MOST_SORTS:
            columns = period.shapes, period.groups, period.closes
            now = self._now.get(int(self._sort[rank])) if self._begins[rank] >= 0 else None
            if now is not None and now.every == 1 and sort not in self._loops and may_go_on(now.ngram, *columns):
                self._first[sort] = now  # a log came into its period, or another one
                self._period[rank] = number
                self._begin_with(now, rank, period, sort)
                return
            ngrams = may_begin(*columns)
            if any(ngrams):
                shape_of = dict(zip(period.tokens.tolist(), period.shapes.tolist(), strict=True))
                self._learning[sort] = Learning(
                    rank, ngrams, shape_of, bool(period.closes.any()), len(period.tokens), self._loops.get(sort, 1),
                    round(self._ops[rank]) if now is not None and now.every == 1 else 0,
                )  # fmt: skip
            else:
                if now is None or now.every > 1:  # else they go on to begin as they did
                    self._first[sort] = None
                    self._begin_with(None, rank, period, sort)
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
            self._references.begin_anew()
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
        is_known = (number >= 0).all() and (length > 0).all() and (self._sort[ranks] == self._sort[ranks[0]]).all()
        return Beginnings(number, ordinal - 1, length) if is_known else None

    def iteration_s(self) -> float:
        """Seconds from one iteration to the next, by the latest ones of some rank; 0 while that is not known."""
        return self._references.iteration_s()

    def _begin_with(self, first: Beginning | None, rank: int, period: Period, sort: int) -> None:
        """Let the iterations of a rank begin with this, of which the sort of period is also given."""
        if self._makes_steps[rank]:
            return
        before = self._beginning_of(rank)
        if first is None:
            self._begins[rank] = -1
        else:
            at = places_of(first.ngram, period.shapes)
            iterations = len(at) / first.loops
            place, behinds = int(at[0]), len(first.ngram) - 1
            token = int(period.tokens[place])
            self._begins[rank], self._behinds[rank] = token, behinds
            self._behind[rank, :behinds] = period.tokens[(place - 1 - np.arange(behinds)) % len(period.tokens)]
            self._each[rank] = (period.groups == period.groups[place]).sum() / iterations
            self._alike[rank] = (period.tokens == token).sum() / iterations
            self._ops[rank] = len(period.tokens) / iterations
            self._every[rank], self._phase[rank], self._sort[rank] = first.every, first.phase, first.sort
            self._now[first.sort] = first
            self._note_messages(rank, period, sort, iterations, first.loops)
        if before[0] >= 0 and before != self._beginning_of(rank):
            self._begun_anew, self._number[rank] = True, -1

    def _beginning_of(self, rank: int) -> tuple[int, int, int]:
        """What is another one if iterations of a rank begin with something else than before."""
        return int(self._begins[rank]), int(self._sort[rank]), int(self._phase[rank])

    def _note_messages(self, rank: int, period: Period, sort: int, iterations: float, loops: int) -> None:
        """A rank that exchanges several times as many messages in an iteration as another one says that of it.

        Args:
            rank: Whose period this is.
            period: It.
            sort: Of the period.
            iterations: How many are in it.
            loops: How often it goes round in one, as far as that is known.
        """
        peers, count = np.unique(period.peers[period.peers >= 0], return_counts=True)
        times = []
        for peer, mine in zip(peers.tolist(), (count / iterations).tolist(), strict=True):
            self._messages[rank, peer] = mine
            theirs = self._messages.get((peer, rank), 0.0)
            if theirs > 0.0:
                times.append(theirs / mine)
                if mine > theirs:
                    self._waiting.add(peer)
                    self._has_decided, self._period[peer] = True, -1
        is_loop = (period.peers >= 0).all() and len(times) == len(peers) and len(set(times)) == 1
        if is_loop and times[0] > 1.0 and times[0].is_integer() and loops * times[0] <= MOST_LOOPS:
            self._loops[sort] = round(loops * times[0])
            self._first.pop(sort, None)
            self._waiting.add(rank)
            self._has_decided, self._period[rank] = True, -1

    def look(self, done: Completed, tokens: Tokens) -> None:
        """See completed operations, (n,): by those of some ranks it is learnt with what iterations begin."""
        for sort, of in list(self._learning.items()):
            at = np.flatnonzero(done.rank == of.rank)
            at = at[np.argsort(done["ordinal"][at], kind="stable")]
            columns = (done[name][at].astype(np.int64) for name in ("ordinal", "counter", "t_issue_ns"))
            if of.look(tokens[at], *columns):
                if (first := of.beginning()) is not None:
                    self._first[sort] = first
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
        self._late = taken(self._late, self._late["rank"] != rank)

    # ---- feeding -----------------------------------------------------------------------------------------------------

    def feed(
        self, done: Completed, tokens: Tokens, ranks: RankColumns, count_before: Callable[[int, int, int], int],
        before: Before,
    ) -> np.ndarray[Any, Any]:  # fmt: skip
        """Take completed operations. Returns the iterations that begin with some of them, as steps of RECORD_REPORTED.

        Args:
            done: The operations.
            tokens: What each is, (n,).
            ranks: Of the job.
            count_before: How often a rank has issued this token before the operation with this ordinal.
            before: The tokens of operations before these, as `Sequences.before`.
        """
        if not len(done) or not (self._begins >= 0).any():
            return np.zeros(0, RECORD_REPORTED)
        self._grow(int(done.rank.max()) + 1)
        at = np.flatnonzero(tokens == self._begins[done.rank])
        at = at[done["counter"][at] % self._every[done.rank[at]] == self._phase[done.rank[at]]]
        at = self._without_others(at, done, tokens)
        marks = np.zeros(len(at), _MARK)
        marks["rank"], marks["ordinal"] = done.rank[at], done["ordinal"][at].astype(np.int64) - 1
        marks["at_ns"], marks["token"] = done["t_issue_ns"][at].astype(np.int64), tokens[at]
        marks["comm"] = np.where(is_collective(done["kind"][at]), done.comm[at], -1)
        marks["counter"] = done["counter"][at]
        marks = self._begin_iterations(marks, before)
        marks = taken(marks, marks["ordinal"] >= self._ordinal[marks["rank"]])
        marks = taken(marks, np.unique(marks["rank"] << 32 | marks["ordinal"], return_index=True)[1])
        if len(marks):
            self._number_all(marks, ranks.host_s(marks["rank"], marks["at_ns"]), count_before)
        steps = np.zeros(len(marks), RECORD_REPORTED)
        steps["rank"], steps["row"]["kind"] = marks["rank"], Kind.STEP
        steps["row"]["counter"], steps["row"]["ordinal"] = marks["number"], marks["ordinal"]
        steps["row"]["t_issue_ns"] = steps["row"]["t_end_ns"] = marks["at_ns"]
        return those(steps, marks["number"] > 0)  # nobody sees what is before the first

    def _without_others(self, at: Ints, done: Completed, tokens: Tokens) -> Ints:
        """Those operations that may begin an iteration by the one before, where that is next to it in the batch."""
        rank, ordinal = done.rank, done["ordinal"]
        has_more = self._behinds[rank[at]] > 0
        if not has_more.any():
            return at
        follows = has_more & (rank[at - 1] == rank[at]) & (ordinal[at - 1] + np.uint32(1) == ordinal[at])
        may_begin_one = ~follows | (tokens[at - 1] == self._behind[rank[at], 0])
        return taken(at, may_begin_one)

    def _begin_iterations(self, marks: np.ndarray[Any, Any], before: Before) -> np.ndarray[Any, Any]:
        """Those that have the operations before them with which iterations begin.

        Where these were not reported yet they are asked for again when more has come.
        """
        has_more = self._behinds[marks["rank"]] > 0
        if not has_more.any() and not len(self._late):
            return marks
        asked = np.concatenate((self._late, taken(marks, has_more)))
        asked = taken(asked, asked["token"] == self._begins[asked["rank"]])
        behinds = self._behinds[asked["rank"]]
        tokens, is_known, is_late = before(asked["rank"], asked["ordinal"], int(behinds.max(initial=0)))
        differs = tokens != self._behind[asked["rank"], : tokens.shape[1]]
        differs &= np.arange(tokens.shape[1]) < behinds[:, None]
        self._late = taken(asked, is_late)[-MOST_LATE:]
        return np.concatenate((taken(marks, ~has_more), taken(asked, is_known & ~differs.any(axis=1))))

    def _number_all(
        self, marks: np.ndarray[Any, Any], at_s: Floats, count_before: Callable[[int, int, int], int]
    ) -> None:
        """Set the numbers of marks.

        Args:
            marks: Rows of _MARK, by rank and ordinal, (n,).
            at_s: When that was on the analyzer's clock, (n,).
            count_before: As in `feed`.
        """
        more = int(marks["comm"].max()) + 1 - len(self._number_at)
        if more > 0:
            self._counter_at, self._number_at = (
                np.concatenate((table, np.full((more, ROUNDS), -1))) for table in (self._counter_at, self._number_at)
            )
        begins = starts(marks["rank"])
        count = np.diff(np.append(begins, len(marks)))
        ranks = marks["rank"][begins]
        before = self._number[ranks]
        marks["number"] = np.repeat(before, count) + np.arange(len(marks)) - np.repeat(begins, count) + 1
        known = np.flatnonzero(before >= 0)
        at = np.flatnonzero(np.repeat(before >= 0, count))
        behind = np.zeros(len(marks), np.int64)
        behind[at] = np.maximum(self._as_others(taken(marks, at)), 0)
        if behind.any():
            marks["number"] += np.repeat(np.maximum.reduceat(behind, begins), count)
        self._learn_numbers(taken(marks, at))
        for one in known[np.unique(self._sort[ranks[known]], return_index=True)[1]].tolist():
            part = slice(int(begins[one]), int(begins[one] + count[one]))
            self._references.add(int(self._sort[ranks[one]]), at_s[part], marks["number"][part])
        for one in np.flatnonzero(before < 0).tolist():
            part = slice(int(begins[one]), int(begins[one] + count[one]))
            marks["number"][part] += self._first_number(marks[part], float(at_s[part][-1]), count_before)
            self._learn_numbers(marks[part])
            sort = int(self._sort[ranks[one]])
            if not self._references.has_recent(sort, float(at_s[part][-1])):
                self._references.add(sort, at_s[part], marks["number"][part])
        last = begins + count - 1
        apart, ops = marks["number"][last] - before, marks["ordinal"][last] + 1 - self._ordinal[ranks]
        length = np.where((before >= 0) & (apart > 0), ops // np.maximum(apart, 1), self._length[ranks])
        self._length[ranks] = np.where(self._length[ranks] == _AWAY, 0, length)
        self._number[ranks], self._ordinal[ranks] = marks["number"][last], marks["ordinal"][last] + 1

    def _as_others(self, marks: np.ndarray[Any, Any]) -> Ints:
        """By how much these have to be numbered higher to be numbered as by other members, 0 where none has done so."""
        comm, place = np.maximum(marks["comm"], 0), marks["counter"] % ROUNDS
        if not len(self._number_at):
            return np.zeros(len(marks), np.int64)
        is_known = (marks["comm"] >= 0) & (self._counter_at[comm, place] == marks["counter"])
        return np.where(is_known, self._number_at[comm, place] - marks["number"], 0)

    def _learn_numbers(self, marks: np.ndarray[Any, Any]) -> None:
        """The numbers of these count for others on their communicators."""
        marks = taken(marks, marks["comm"] >= 0)
        at = marks["comm"], marks["counter"] % ROUNDS
        self._counter_at[at], self._number_at[at] = marks["counter"], marks["number"]

    def _first_number(
        self, marks: np.ndarray[Any, Any], at_s: float, count_before: Callable[[int, int, int], int]
    ) -> int:
        """The number of the first of some iterations of a rank of which none was numbered before.

        Args:
            marks: How they began, numbered from 0, (n,).
            at_s: When the last of them did.
            count_before: As in `feed`.
        """
        if (higher := self._as_others(marks)).any():
            return max(0, int(higher[np.flatnonzero(higher)[-1]]))
        rank, last, comm = int(marks["rank"][0]), len(marks) - 1, int(marks["comm"][0])
        if comm >= 0 and (self._counter_at[comm] >= 0).any():
            nearest = int(np.abs(self._counter_at[comm] - marks["counter"][0]).argmin())
            apart = (int(marks["counter"][0]) - int(self._counter_at[comm, nearest])) / max(
                float(self._each[rank]), 1.0
            )
            return max(0, int(self._number_at[comm, nearest]) + round(apart))
        number = self._references.number_at(int(self._sort[rank]), at_s)
        if number is not None:
            return max(0, number - last)
        begun = count_before(rank, int(self._begins[rank]), int(marks["ordinal"][0]) + 1)
        return int(begun // self._alike[rank])

    def _grow(self, ranks: int) -> None:
        more = ranks - len(self._begins)
        if more > 0:
            more = max(more, len(self._begins))
            zeros = np.zeros(more, np.int64)
            self._begins = np.append(self._begins, zeros - 1)
            self._behind = np.concatenate((self._behind, np.zeros((more, LONGEST - 1), np.uint32)))
            self._each, self._number = np.append(self._each, zeros * 1.0), np.append(self._number, zeros - 1)
            self._alike, self._behinds = np.append(self._alike, zeros + 1.0), np.append(self._behinds, zeros)
            self._ops = np.append(self._ops, zeros * 1.0)
            self._every, self._phase = np.append(self._every, zeros + 1), np.append(self._phase, zeros)
            self._sort, self._period = np.append(self._sort, zeros), np.append(self._period, zeros)
            self._ordinal, self._length = np.append(self._ordinal, zeros), np.append(self._length, zeros)
            self._makes_steps = np.append(self._makes_steps, zeros > 0)


def _number_of(period: Tokens) -> int:
    """A number that is the same for every rotation of a period."""
    tokens = period.astype(np.uint64)
    return int((mix(tokens, np.roll(tokens, 1)) >> np.uint64(8)).sum() >> np.uint64(1))
