"""Completed rounds: what each member issued in them.

Of the last rounds of each communicator a *slot* has what the first member that reported it had issued; everybody else
is held against that at once. What each member issued is asked for in doubt only: the latest operations of all are
kept as they came, and gone through then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.columns.rounds import Rounds as Table
from whichrank.columns.rounds import hold_rounds
from whichrank.model.picture import OPS, Bools, Picture
from whichrank.store.communicators import Communicators
from whichrank.store.completed import Completed
from whichrank.store.done_lately import DoneLately
from whichrank.store.growing import Growing
from whichrank.store.rank_columns import RankColumns

Ints = NDArray[np.int64]
Counters = NDArray[np.uint32]
MOST_ROUNDS = 8192
"""Kept of a communicator, a power of two: agents report up to five seconds apart, and a round is compared when all have
reported it."""
LEAST_ROUNDS = 8
"""The same of each, however many communicators there are."""
ALL_SLOTS = 1 << 22
"""Rounds over all communicators, at most; beyond it each keeps the least."""
SEEN_SIGNATURES = 1 << 16
"""Places in which it is looked up whether a signature is new."""
MOST_SIGNATURES = 1 << 16
"""Of which an operation is remembered for words."""
SETTLE_S = 0.7
"""After which other members have reported the round too."""
STEADY_ROUNDS = 8
"""Rounds in which a member was as far from the others as before, for a change to be worth a closer snapshot."""
_HALF = np.uint64(32)


class Rounds:
    """The latest completed rounds of every communicator: at most `ALL_SLOTS`, beyond the least of each."""

    def __init__(self) -> None:
        self._size = Growing(np.int64)  # members, by communicator
        self._last = Growing(np.uint32)  # rounds kept less one, by communicator: `counter & last` is where one is
        self._slot_at = Growing(np.int64)  # of each communicator
        self._first = Growing(np.uint64)  # by slot, what the first member issued: counter and signature as one number
        self._first_ordinal, self._first_end_s = Growing(np.uint32), Growing(np.float64)
        self._lowest = Growing(np.uint32)  # by communicator, of what is taken together
        self._behind, self._behind_since = Growing(np.int32), Growing(np.uint32)  # by member
        self._lately = DoneLately()
        self._apart: set[int] = set()
        self._said: dict[int, np.void] = {}
        self._seen = _none_seen()
        self._suspects: dict[tuple[int, int], float] = {}
        self._reported: set[int] = set()

    def feed(self, comms: Communicators, done: Completed, ranks: RankColumns, now_s: float) -> None:
        """Take completed operations.

        Args:
            comms: The communicators of the job.
            done: The operations.
            ranks: Of the job.
            now_s: The time.
        """
        self._learn(comms, ranks.size)
        table = Table.of(
            comms=len(self._size.rows), slots=len(self._first.rows), members=len(self._behind.rows), ranks=ranks.size,
            seen_size=SEEN_SIGNATURES, size=self._size.rows, last=self._last.rows, slot_at=self._slot_at.rows,
            member_at=comms.at, lowest=self._lowest.rows, offset_s=ranks.offset_s, first=self._first.rows,
            first_ordinal=self._first_ordinal.rows, first_end_s=self._first_end_s.rows, behind=self._behind.rows,
            behind_since=self._behind_since.rows, seen=self._seen, steady=STEADY_ROUNDS,
        )  # fmt: skip
        columns = {name: done[name] for name in ("counter", "ordinal", "kind", "status")}
        lately = self._lately.room_for(len(done), ranks.size)
        news = hold_rounds(
            table, lately, rank=done.rank, comm=done.comm, place=done.place, sign=done.signs, end_ns=done["t_end_ns"],
            **columns,
        )  # fmt: skip
        self._lately.written(lately, news.taken)
        if len(news.unseen):
            self._remember(done, news.unseen)
        for key in zip(done.comm[news.differing].tolist(), done["counter"][news.differing].tolist(), strict=True):
            self._suspects.setdefault(key, now_s)
        self._apart.update(news.apart.tolist())

    def forget(self) -> None:
        """A rank's process was replaced: it counts from one again, and so may the others of its communicators."""
        for column in (self._first, self._behind, self._behind_since):
            column.rows[:] = 0
        self._lately.forget()
        self._suspects.clear()
        self._apart.clear()
        self._reported.clear()

    def take_apart(self) -> set[int]:
        """Communicators of which members have ceased to be at the same operation in each round, since last asked."""
        apart, self._apart = self._apart, set()
        return apart

    def _learn(self, comms: Communicators, ranks: int) -> None:
        """Make room for communicators that are new."""
        size = comms.size[len(self._size.rows) :]
        if not len(size):
            return
        # Those of one rank are few, and most have several members.
        most = min(max(2 * ALL_SLOTS // max(ranks, 1), LEAST_ROUNDS), MOST_ROUNDS)
        depth = np.where(size > 1, 1 << (most.bit_length() - 1), 1)  # a rank alone is compared with nobody
        if len(self._first.rows) + int(depth.sum()) > ALL_SLOTS:
            depth = np.minimum(depth, LEAST_ROUNDS)
        self._slot_at.append(len(self._first.rows) + np.cumsum(depth) - depth)
        self._size.append(size)
        self._last.append((depth - 1).astype(np.uint32))
        self._lowest.append(len(size))
        for column in (self._first, self._first_ordinal, self._first_end_s):
            column.append(int(depth.sum()))
        for column in (self._behind, self._behind_since):
            column.append(int(size.sum()))

    def _remember(self, done: Completed, places: Ints) -> None:
        """One operation of each signature, for words; forgotten when shapes never end.

        Args:
            done: Operations.
            places: In `done`, of those whose signature may be new, (n,).
        """
        if len(self._said) > MOST_SIGNATURES:
            self._said.clear()
            self._seen = _none_seen()
        values, first = np.unique((done.signs[places] >> _HALF).astype(np.uint32), return_index=True)
        for value, place in zip(values.tolist(), places[first].tolist(), strict=True):
            if value not in self._said:
                self._said[value] = done.rows(np.array([place]))["row"][0]

    @property
    def are_in_doubt(self) -> bool:
        """Whether members differ in a round that not all may have reported yet."""
        return bool(self._suspects)

    def take_different(self, now_s: float, *, at_end: bool) -> list[tuple[int, int]]:
        """Rounds in which members differ, since last asked: communicator and counter, the first of each communicator.

        Args:
            now_s: The time.
            at_end: Nothing more will come. Else a round is given only when others have had time to report it.
        """
        found = []
        for key, since_s in sorted(self._suspects.items(), key=lambda item: item[0]):
            if now_s - since_s < SETTLE_S and not at_end:
                continue
            del self._suspects[key]
            if key[0] not in self._reported:
                self._reported.add(key[0])
                found.append(key)
        return found

    def differ(self, comm: Ints, counter: Ints, sign: NDArray[np.uint64]) -> Bools:
        """Which of these operations are not what the first member that completed the same round had issued."""
        differs = np.zeros(len(comm), np.bool_)
        known = np.flatnonzero(comm < len(self._size.rows))
        of, number = comm[known], counter[known].astype(np.uint32)
        first = self._first.rows[self._slot_at.rows[of] + (number & self._last.rows[of])]
        is_other = first.astype(np.uint32) != (sign[known] >> _HALF).astype(np.uint32)
        differs[known] = (_counter_of(first) == number) & is_other
        return differs

    def completed_s(self, comm: int, counter: int) -> float:
        """When the first member that has reported a round had completed it; 0 if that is not known any more."""
        if comm >= len(self._size.rows):
            return 0.0
        slot = self._slot(comm, counter)
        is_known = int(self._first.rows[slot]) >> 32 == counter
        return float(self._first_end_s.rows[slot]) if is_known else 0.0

    def _slot(self, comm: int, counter: int) -> int:
        """Where a round is, if it is known."""
        return int(self._slot_at.rows[comm]) + (counter & int(self._last.rows[comm]))

    def _may_be_completed(self, comm: int, counter: int) -> bool:
        """Whether anybody has completed this round, or one that has taken its slot."""
        return comm < len(self._size.rows) and int(self._first.rows[self._slot(comm, counter)]) >> 32 >= counter

    def ops_of(self, picture: Picture, comm: int, counter: int) -> np.ndarray[Any, Any]:
        """Rows of OPS: what each member issued that has completed this round. When is not known: `issue_s` is 0."""
        if not self._may_be_completed(comm, counter):
            return np.zeros(0, OPS)
        member, signs, ordinals = self._lately.of(comm, counter)
        ranks = picture.member_rank[picture.comm_at[comm] + member]
        known = np.flatnonzero((ranks >= 0) & np.isin(signs, list(self._said)))
        ops = np.zeros(len(known), OPS)
        ops["rank"], ops["comm"], ops["counter"] = ranks[known], comm, counter
        ops["ordinal"] = ordinals[known]
        for value in np.unique(signs[known]).tolist():
            for name in ("kind", "peer", "dtype", "reduce_op", "count", "flags"):
                ops[name][signs[known] == value] = self._said[value][name]
        return ops


def _counter_of(issued: NDArray[np.uint64]) -> Counters:
    """The counter, of a counter and a signature as one number."""
    return (issued >> _HALF).astype(np.uint32)


def _none_seen() -> NDArray[np.uint32]:
    """Of each place where a signature is looked up one that has another place."""
    return np.arange(SEEN_SIGNATURES, dtype=np.uint32) ^ np.uint32(1)
