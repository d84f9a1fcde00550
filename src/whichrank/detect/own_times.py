"""Where the time of each iteration goes, rank by rank: blocked in operations, or a rank's own.

An iteration of a rank lasts from one optimizer step to the next, on the clock of its own host. Within it a rank is
*blocked* while a thread waits for an operation, from `t_end - wait` to `t_end`; what is left is its *own* time:
computation, data, whatever else it does (DESIGN 5.3, "name by self-time"). Two threads that are blocked at once count
once. Nothing here compares the clocks of two hosts.

DDP waits for futures of its buckets, and no sensor sees that. It does so once all are issued, so the time from a rank's
latest issue to the end of such an operation counts as blocked. Which is the last of them is learned from all ranks and
iterations: where one issues the next bucket while this one is under way, no rank ever waits for this one before that.

Records come in the order in which operations complete. The last future of an iteration may be seen to be ready after
the step that waited for it, so an iteration is measured when all that was issued in it is known, or at the next step.
All ranks are handled at once: a rank and a time on its clock are one sortable number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.columns.iterations import find_iterations, sum_iterations
from whichrank.detect.given import Given
from whichrank.model.iterations import ITERATION, SPAN_NS, STEP, Ints, Ops, Window, key_of
from whichrank.model.kinds import is_message
from whichrank.model.places import joined, places, put, taken, those
from whichrank.model.signature import mix
from whichrank.model.work import Work

KEPT: Final = 2048
"""Iterations of each rank, at most."""
ALL_KEPT: Final = 1 << 20
"""The same over all ranks; however many there are, each keeps some."""
LEAST_KEPT: Final = 32
"""Iterations of each rank that are kept, however many ranks there are."""
LEAST: Final = 3
"""Iterations that say something."""
WARM_UP: Final = 3
"""First iterations of a rank, left out: memory is allocated, graphs are compiled, connections are made."""
UNDER_WAY: Final = 0.75
"""Of an operation, in which the next one must be issued to show that nobody waits in between."""
SEEN_LATE_NS: Final = 1_000_000
"""And so long before its end, which is seen late."""
MOST_SORTS: Final = 1 << 14
"""Operations of an iteration that are known not to be waited for before the next."""
LEAST_RING: Final = 3
"""Two ranks that exchange messages may as well be two stages."""
MOST_TALKS: Final = 1 << 20
"""Pairs of ranks that exchange messages: what is remembered is bounded."""
MOST_PENDING: Final = 1 << 20
"""Operations that wait for the end of their iteration: more are of ranks that make no steps."""


@dataclass(frozen=True)
class Blocked:
    """When ranks were blocked, as pieces of time that do not overlap, by rank and then time.

    Attributes:
        start: Rank and nanoseconds as one number.
        length: Nanoseconds.
        before: Nanoseconds blocked before each piece, over all ranks.
    """

    start: Ints
    length: Ints
    before: Ints

    @classmethod
    def of(cls, start: Ints, end: Ints) -> Blocked:
        """The union of these intervals.

        Args:
            start: Rank and nanoseconds as one number.
            end: The same.
        """
        if (start < end).all() and (start[1:] >= end[:-1]).all():  # nobody waited for two things at once
            return cls(start, end - start, np.cumsum(end - start) - (end - start))
        if (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable")
            start, end = start[order], end[order]
        reached = np.maximum.accumulate(end)
        free_from = np.concatenate((start[:1], reached[:-1]))
        start = np.maximum(start, free_from)
        length = np.maximum(end - start, 0)
        keep = length > 0
        start, length = start[keep], length[keep]
        return cls(start, length, np.cumsum(length) - length)

    def until(self, at: Ints) -> Ints:
        """Nanoseconds blocked before each of these, over all ranks: differences within one rank mean something."""
        if not len(self.start):
            return np.zeros(len(at), np.int64)
        piece = np.searchsorted(self.start, at, side="right") - 1
        inside = np.clip(at - self.start[piece], 0, self.length[piece])
        return np.where(piece >= 0, self.before[piece] + inside, 0)


class Iterations:
    """The latest iterations of all ranks.

    Attributes:
        rows: Rows of ITERATION, of shape (ranks, kept); iteration `i` stands in column `i % kept`.
        latest: Number of the latest iteration of each rank, -1 if there is none.
    """

    def __init__(self) -> None:
        self.rows = np.zeros((0, KEPT), ITERATION)
        self.latest = np.zeros(0, np.int64)
        self._open = np.zeros(0, STEP)  # the step that opened the iteration in which each rank is
        self._ops: list[Ops] = []
        self._steps: list[np.ndarray[Any, Any]] = []
        self._pending = 0
        self._not_waited_for = np.zeros(0, np.uint64)
        self._given = Given()
        self._talks = np.zeros(0, np.int64)  # who has sent to whom, or received from whom
        self._talked = np.zeros(0, np.uint64)  # with whom each rank did in the latest iteration, as one number

    @property
    def kept(self) -> int:
        """Iterations of each rank that are kept."""
        return int(self.rows.shape[1])

    @property
    def pending(self) -> int:
        """Operations that wait for the end of their iteration."""
        return self._pending

    @property
    def newest(self) -> int:
        """The latest iteration of any rank, -1 if there is none."""
        return int(self.latest.max(initial=-1))

    def feed(self, ops: Ops, steps: np.ndarray[Any, Any], given: np.ndarray[Any, Any] | None = None) -> None:
        """Take what was completed, each rank's in the order of completion.

        Args:
            ops: The operations.
            steps: Rows of STEP.
            given: Rows of GIVEN.
        """
        if given is not None:
            self._given.feed(given)
        if len(ops):
            self._ops.append(ops)
            self._pending += len(ops)
        while self._pending > MOST_PENDING:
            self._pending -= len(self._ops.pop(0))
        if len(steps):
            self._steps.append(steps)

    def forget(self) -> None:
        """A rank's process was replaced: it counts from one again, and what others do now is of no use without it."""
        self._ops, self._steps, self._pending = [], [], 0
        self._open = np.zeros_like(self._open)
        self._not_waited_for, self._talks = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._talked[:] = 0
        self._given.forget()
        if self.newest >= 0:
            self.rows = np.zeros_like(self.rows)
            self.latest[:] = -1

    def measure(self, comm_kinds: NDArray[np.uint64]) -> Ops:
        """Measure the iterations that have ended since the last call.

        Args:
            comm_kinds: For each communicator a number that is equal for those of the same sort.

        Returns:
            The operations of these iterations.
        """
        if not self._steps:
            return Ops.joined([])
        steps = joined(self._steps, STEP)
        self._steps = []
        self._grow(int(steps["rank"].max()) + 1)
        has_new = np.zeros(len(self._open), np.bool_)
        has_new[steps["rank"]] = True
        steps = joined((taken(self._open, has_new & (self._open["counter"] > 0)), steps), STEP)
        steps = taken(steps, np.lexsort((steps["counter"], steps["rank"])))
        ops = Ops.joined(self._ops)
        follows = np.diff(steps["rank"]) == 0
        begin, end = taken(steps[:-1], follows), taken(steps[1:], follows)
        of = _iteration_of(ops, begin, end)
        settled = self._are_settled(of, begin, end)
        if not settled.all():
            self._steps.append(taken(end, ~settled))
            steps = np.delete(steps, np.flatnonzero(follows)[~settled] + 1)
            of, begin, end = _of_those(of, settled), taken(begin, settled), taken(end, settled)
        last = np.append(np.diff(steps["rank"]) != 0, True)
        now_ns, issued = np.zeros(len(self._open), np.int64), np.full(len(self._open), -1, np.int64)
        now_ns[steps["rank"][last]], issued[steps["rank"][last]] = steps["at_ns"][last], steps["ordinal"][last]
        put(self._open, steps["rank"][last], taken(steps, last))
        known = ops["rank"] < len(issued)
        over = known & (ops["ordinal"] <= issued[ops["rank"] if known.all() else np.where(known, ops["rank"], 0)])
        self._ops = [ops.taken(~over)] if not over.all() else []
        self._pending = len(ops) - int(over.sum())
        ops, of = ops.those(over), those(of, over)
        self._infer_blocked(ops, of, now_ns, begin)
        whole = (end["counter"] == begin["counter"] + 1) & (end["at_ns"] > begin["at_ns"])
        if not whole.all():
            of, begin, end = _of_those(of, whole), taken(begin, whole), taken(end, whole)
        if len(begin):
            self._measure(ops, of, begin, end, comm_kinds)
        return ops

    @staticmethod
    def _are_settled(of: Ints, begin: np.ndarray[Any, Any], end: np.ndarray[Any, Any]) -> NDArray[np.bool_]:
        """Which iterations can be measured: all but a rank's latest one of which not all operations are known.

        Args:
            of: The iteration of each operation that is known and not measured yet, -1 none.
            begin: Steps that open iterations, sorted by rank and number.
            end: Steps that end them.
        """
        there = np.bincount(of + 1, minlength=len(begin) + 1)[1:]
        is_latest = np.append(np.diff(begin["rank"]) != 0, True)[-len(begin) :]
        return np.asarray(~(is_latest & (there < end["ordinal"] - begin["ordinal"])))

    def window(self, ranks: Ints, window_s: float, least: int = LEAST, reach: int = 0) -> Window | None:
        """The latest iterations that all of these ranks have ended.

        Args:
            ranks: Ranks that live.
            window_s: Seconds that it should reach back.
            least: Iterations that it has at least, however long they take.
            reach: Iterations that it has if there are so many, however long they take.

        Returns:
            None if there are too few.
        """
        if not len(ranks) or int(ranks.max()) >= len(self.latest):
            return None
        newest = int(self.latest[ranks].min())
        wanted = np.arange(max(WARM_UP, newest - self.kept + 2), newest + 1)
        if len(wanted) < least:
            return None
        # How far back: by the clock of the first rank.
        one = self.rows[ranks[0], wanted % self.kept]
        back_s = (one["end_ns"][-1] - one["end_ns"]) / 1e9
        recent = (back_s < window_s) | (np.arange(len(wanted)) >= len(wanted) - max(least, reach))
        wanted = wanted[recent & (one["iteration"] == wanted)]
        rows = self.rows[ranks[:, None], wanted % self.kept]
        there = (rows["iteration"] == wanted).all(axis=0)
        wanted, rows = wanted[there], rows[:, there]
        if len(wanted) < least:
            return None
        lasted_s = float(rows["total_s"][0].sum())
        together = mix(rows["pattern"], np.arange(len(ranks), dtype=np.uint64)[:, None])
        whole = np.bitwise_xor.reduce(together, axis=0)
        values, count = np.unique(whole, return_counts=True)
        pattern = values[np.argmax(count)]
        usual = whole == pattern
        rows = rows[:, usual]
        if usual.sum() < least:
            return None
        return Window(
            ranks=ranks,
            iteration=wanted[usual],
            end_ns=rows["end_ns"].astype(np.int64),
            total_s=rows["total_s"].astype(np.float64),
            own_s=rows["own_s"].astype(np.float64),
            in_pipeline=rows["messages"][:, 0] > 0,
            roots=rows["roots"][:, 0],
            position=np.unique(rows["pattern"][:, 0], return_inverse=True)[1].reshape(-1),
            lasted_s=lasted_s,
            ring=self._rings(ranks, rows[:, 0]),
            given=_given_in(rows),
            pattern=int(pattern),
        )

    def _rings(self, ranks: Ints, rows: np.ndarray[Any, Any]) -> Ints:
        """A number for each rank, equal for those that send and receive alike all round a ring, -1 for others.

        The middle stages of a pipeline do so too, but these have neighbours that do not.

        Args:
            ranks: (R,).
            rows: An iteration of each, (R,).
        """
        if not 0 < len(self._talks) < MOST_TALKS:
            return np.full(len(ranks), -1)
        alike = np.unique(rows["turned"], return_inverse=True)[1].reshape(-1)
        one, other = places(self._talks >> 32, ranks), places(self._talks & 0xFFFFFFFF, ranks)
        goes_out = (one >= 0) & ((other < 0) | (alike[one] != alike[other]))
        is_ring = np.bincount(alike)[alike] >= LEAST_RING
        is_ring &= (rows["turned"] != rows["pattern"]) & ~np.isin(alike, alike[one[goes_out]])
        return np.where(is_ring, alike, -1)

    def _infer_blocked(self, ops: Ops, of: Ints, now_ns: Ints, begin: np.ndarray[Any, Any]) -> None:
        """Set how long ranks were blocked on operations of which they took the future.

        Args:
            ops: Operations, changed in place.
            of: The iteration of each, -1 none.
            now_ns: By rank, a time on its clock that is no earlier than any here.
            begin: Steps that open iterations.
        """
        unseen = np.flatnonzero((ops["future"] > 0) & (ops["blocked_ns"] == 0))
        if not len(unseen):
            return
        ranks = ops["rank"]
        ago_ns = now_ns[ranks] - SPAN_NS // 2
        issues = np.sort(key_of(ranks, ops["issue_ns"] - ago_ns))
        ends = key_of(ranks[unseen], ops["end_ns"][unseen] - ago_ns[unseen])
        latest = issues[np.searchsorted(issues, ends, side="left") - 1]  # its own issue at the earliest
        is_early = ops["end_ns"][unseen] <= self._last_issues(ops.taken(unseen), of[unseen], begin)
        ops["blocked_ns"][unseen] = np.where(is_early, 0, np.clip(ends - latest, 0, None))

    def _last_issues(self, ops: Ops, of: Ints, begin: np.ndarray[Any, Any]) -> Ints:
        """When the last of the operations was issued before which a rank does not wait for this one.

        Args:
            ops: Operations of which the future was taken.
            of: The iteration of each, -1 none.
            begin: Steps that open iterations.
        """
        order = np.lexsort((ops["counter"], ops["comm"], ops["rank"]))
        at, of = ops.taken(order), of[order]
        follows = np.zeros(len(at), np.bool_)
        same = (np.diff(at["rank"]) == 0) & (np.diff(at["comm"]) == 0) & (np.diff(of) == 0) & (of[1:] >= 0)
        follows[:-1] = same & (np.diff(at["counter"].astype(np.int64)) == 1)
        place = at["ordinal"] - begin["ordinal"][of] if len(begin) else at["ordinal"]
        sort = mix(mix(at["comm"].astype(np.uint64), at["count"]), place.astype(np.uint64))
        until_next_ns = np.append(np.diff(at["issue_ns"]), 0)
        lasted_ns = at["end_ns"] - at["issue_ns"]
        is_under_way = follows & (until_next_ns < UNDER_WAY * lasted_ns) & (lasted_ns - until_next_ns >= SEEN_LATE_NS)
        known = np.union1d(self._not_waited_for, sort[is_under_way])
        self._not_waited_for = known if len(known) <= MOST_SORTS else np.unique(sort[is_under_way])[:MOST_SORTS]
        last = np.flatnonzero(~(follows & np.isin(sort, self._not_waited_for)))
        issued = np.empty(len(at), np.int64)
        issued[order] = at["issue_ns"][last[np.searchsorted(last, np.arange(len(at)))]]
        return issued

    def _measure(
        self, ops: Ops, of: Ints, begin: np.ndarray[Any, Any], end: np.ndarray[Any, Any],
        kinds: NDArray[np.uint64],
    ) -> None:  # fmt: skip
        """Iterations from `begin` to `end`, sorted by rank and number; `of` says in which each operation is."""
        zero_ns = np.zeros(len(self._open), np.int64)
        first = np.append(True, np.diff(begin["rank"]) != 0)
        zero_ns[begin["rank"][first]] = begin["at_ns"][first]
        rows = np.zeros(len(begin), ITERATION)
        rows["iteration"], rows["end_ns"] = begin["counter"], end["at_ns"]
        rows["total_s"] = (end["at_ns"] - begin["at_ns"]) / 1e9
        rows["own_s"] = rows["total_s"] - _blocked_ns(ops, of, begin, end, zero_ns) / 1e9
        given = self._given.of(begin, end)
        rows["elements"], rows["length"] = given.elements, given.lengths
        names = ("rank", "comm", "peer", "stage", "offset", "kind")
        sums = sum_iterations(of, len(begin), kinds, **{name: ops[name] for name in names})
        rows["messages"], rows["pattern"] = sums.messages, sums.pattern
        rows["turned"], rows["roots"] = sums.turned, sums.roots
        if sums.addressed:
            self._learn_talks(ops, of, sums.talks, begin)
        put(self.rows, (begin["rank"], begin["counter"] % self.kept), rows)
        np.maximum.at(self.latest, begin["rank"], begin["counter"])

    def _learn_talks(self, ops: Ops, of: Ints, with_whom: NDArray[np.uint64], begin: np.ndarray[Any, Any]) -> None:
        """Take who has exchanged messages with whom; of a rank that does as before nothing is new.

        Args:
            ops: The operations.
            of: The iteration of each, -1 none.
            with_whom: Of each iteration a number that says with whom its rank did.
            begin: Steps that open iterations, sorted by rank and number.
        """
        is_first = np.append(True, np.diff(begin["rank"]) != 0)
        before = np.where(is_first, self._talked[begin["rank"]], np.append(with_whom[:1], with_whom[:-1]))
        self._talked[begin["rank"]] = with_whom  # of several of a rank the latest one stays
        is_new = with_whom != before
        if not is_new.any():
            return
        at = np.flatnonzero(is_message(ops["kind"]) & (ops["peer"] >= 0) & (of >= 0))
        at = at[is_new[of[at]]]
        if len(at):
            talks = np.unique(ops["rank"][at] << 32 | ops["peer"][at])
            self._talks = np.union1d(self._talks, talks)[:MOST_TALKS]

    def _grow(self, size: int) -> None:
        have = len(self.latest)
        if size <= have:
            return
        kept = int(np.clip(ALL_KEPT // size, LEAST_KEPT, KEPT))
        rows = np.zeros((size, kept), ITERATION)
        if have and kept == self.kept:
            rows[:have] = self.rows
        else:
            self.latest[:] = -1  # the places have changed; it happens while ranks arrive
        self.rows = rows
        self.latest = np.append(self.latest, np.full(size - have, -1, np.int64))
        self._open = np.concatenate((self._open, np.zeros(size - have, STEP)))
        self._talked = np.append(self._talked, np.zeros(size - have, np.uint64))


def _given_in(rows: np.ndarray[Any, Any]) -> Work | None:
    """What was given in these iterations, None if it was never noted."""
    if not rows["elements"].any():
        return None
    return Work(rows["elements"].astype(np.float64), rows["length"].astype(np.float64))


def _blocked_ns(ops: Ops, of: Ints, begin: np.ndarray[Any, Any], end: np.ndarray[Any, Any], zero_ns: Ints) -> Ints:
    """For how long a thread was blocked in operations, in each iteration.

    Args:
        ops: The operations.
        of: The iteration of each, -1 none.
        begin: Steps that open iterations, sorted by rank and number.
        end: Steps that end them.
        zero_ns: By rank, when the first of its iterations began.
    """
    rank, end_ns, blocked_ns = ops["rank"], ops["end_ns"], ops["blocked_ns"]
    counts = (blocked_ns > 0) & (end_ns > zero_ns[rank])
    waited = np.flatnonzero(counts)
    rank, end_ns, blocked_ns, step_of = (those(column, counts) for column in (rank, end_ns, blocked_ns, of))
    from_ns = end_ns - blocked_ns
    # The step that waits for a future comes after it, however late it was seen to be ready.
    late = np.flatnonzero((ops["future"][waited] > 0) & (step_of >= 0))
    until_ns = end_ns.copy()
    until_ns[late] = np.maximum(np.minimum(end["at_ns"][step_of[late]], end_ns[late]), from_ns[late])
    zero = zero_ns[rank]
    blocked = Blocked.of(key_of(rank, from_ns - zero), key_of(rank, until_ns - zero))
    zero = zero_ns[begin["rank"]]
    from_key, to_key = key_of(begin["rank"], begin["at_ns"] - zero), key_of(end["rank"], end["at_ns"] - zero)
    return blocked.until(to_key) - blocked.until(from_key)


def _iteration_of(ops: Ops, begin: np.ndarray[Any, Any], end: np.ndarray[Any, Any]) -> Ints:
    """In which of these iterations each operation was issued, -1 none. Iterations are sorted by rank and number."""
    rank, since, until = map(np.ascontiguousarray, (begin["rank"], begin["ordinal"], end["ordinal"]))
    return find_iterations(ops["rank"], ops["ordinal"], rank, since, until)


def _of_those(of: Ints, which: NDArray[np.bool_]) -> Ints:
    """The iterations that `of` names, counted among these only, -1 where it is none of them."""
    place = np.where(which, np.cumsum(which) - 1, -1)
    return np.where(of >= 0, place[of], -1)
