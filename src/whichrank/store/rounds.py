"""Completed rounds: what each member issued in them.

Of the last rounds of each communicator a *slot* has what the first member that reported it had issued; everybody else
is held against that at once. What each member issued is asked for in doubt only: the latest operations of all are
kept as they came, and gone through then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.codes import Status
from whichrank.model.kinds import is_collective
from whichrank.model.picture import OPS, Bools, Picture
from whichrank.store.communicators import Communicators
from whichrank.store.completed import Completed
from whichrank.store.done_lately import DoneLately
from whichrank.store.growing import Growing
from whichrank.store.rank_columns import RankColumns

Ints = NDArray[np.int64]
Counters = NDArray[np.uint32]
CELLS = 1 << 14
"""Rounds times members of a communicator that are compared, at most; how many rounds that are is a power of two."""
MOST_ROUNDS = 2048
"""Kept of a communicator: agents report seconds apart, and a round is compared when all have reported it."""
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
        self._first_place = Growing(np.int32)  # among those that are taken together
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
        good = is_collective(done["kind"]) & (done["counter"] > 0)
        good &= (done.place >= 0) & (self._size.rows[done.comm] > 1)
        good &= done["status"] == Status.DONE  # what fails is reported by what becomes of the job
        done = done.those(good)
        comm, counter, ordinal = done.comm, done["counter"], done["ordinal"]
        sign = (done.signs >> _HALF).astype(np.uint32)
        self._lately.keep(ranks.size, comm, done.place, counter, sign, ordinal)
        last = self._last.rows[comm]
        slot = self._slot_at.rows[comm] + (counter & last)
        issued = counter.astype(np.uint64) << _HALF | sign
        since = counter - _counter_of(self._first.rows[slot])  # a huge number if it is of an earlier round
        is_first = since > 0
        if (since <= last + np.uint32(1)).all() and not self._share_slots(slot, is_first):
            self._compare(comms, done, slot, issued, is_first, ranks, now_s)
            return
        for of_lap in self._laps(comm, counter):
            known = _counter_of(self._first.rows[slot])
            some = of_lap & (counter >= known)
            is_first = (counter > known)[some]
            self._compare(comms, done.those(some), slot[some], issued[some], is_first, ranks, now_s)

    def _share_slots(self, slot: Ints, is_first: Bools) -> bool:
        """Whether a round that is known already and a newer one share a slot; a newer one is the next one there.

        Args:
            slot: Of each operation, (n,).
            is_first: Its round is newer than the one that is known, (n,).
        """
        if is_first.all() or not is_first.any():
            return False
        known, marks = slot[~is_first], self._first_place.rows  # written anew by `_compare`
        marks[known] = 0
        marks[slot[is_first]] = 1
        return bool(marks[known].any())

    def _laps(self, comm: Ints, counter: Counters) -> list[Bools]:
        """Which operations are in each part in which no two rounds of a communicator share a slot; earlier ones first.

        Args:
            comm: Of each, (n,).
            counter: Of each, (n,).

        Returns:
            Of each part, (n,).
        """
        first = np.full(len(self._size.rows), np.iinfo(np.uint32).max, np.uint32)
        np.minimum.at(first, comm, counter)
        lap = (counter - first[comm]) // (self._last.rows[comm] + np.uint32(1))
        return [lap == number for number in np.unique(lap).tolist()]

    def _compare(
        self, comms: Communicators, done: Completed, slot: Ints, issued: NDArray[np.uint64], is_first: Bools,
        ranks: RankColumns, now_s: float,
    ) -> None:  # fmt: skip
        """Hold operations against the first of their rounds.

        Args:
            comms: The communicators of the job.
            done: The operations; no two rounds of them share a slot.
            slot: Of each, (n,).
            issued: Counter and signature of each as one number, (n,).
            is_first: Nobody has reported its round before, (n,).
            ranks: Of the job.
            now_s: The time.
        """
        counter, ordinal = done["counter"], done["ordinal"]
        first = np.flatnonzero(is_first)
        if len(first):
            self._first_place.rows[slot[first[::-1]]] = first[::-1]  # backwards: of several the first one stays
            first = first[self._first_place.rows[slot[first]] == first]
            at = slot[first]
            self._first.rows[at], self._first_ordinal.rows[at] = issued[first], ordinal[first]
            self._first_end_s.rows[at] = ranks.host_s(done.rank[first], done["t_end_ns"][first])
            self._remember(done, first, issued[first].astype(np.uint32))
        differs = np.flatnonzero(self._first.rows[slot] != issued)
        if len(differs):
            for key in zip(done.comm[differs].tolist(), counter[differs].tolist(), strict=True):
                self._suspects.setdefault(key, now_s)
            self._remember(done, differs, issued[differs].astype(np.uint32))
        behind = (ordinal - self._first_ordinal.rows[slot]).view(np.int32)
        member = comms.at[done.comm] + done.place
        moved = np.flatnonzero(behind != self._behind.rows[member])
        if len(moved):
            self._move(done.comm[moved], member[moved], counter[moved], behind[moved])

    def _move(self, comm: Ints, member: Ints, counter: Counters, behind: NDArray[np.int32]) -> None:
        """Members are no longer where they used to be in a round, against the first that reported it.

        Args:
            comm: Communicator of each.
            member: Each of them.
            counter: The number of the round.
            behind: By how much its operation has a higher number among all of its rank.
        """
        steady = counter.astype(np.int64) - self._behind_since.rows[member] >= STEADY_ROUNDS
        self._apart.update(np.unique(comm[steady]).tolist())
        self._behind.rows[member], self._behind_since.rows[member] = behind, counter

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
        most = np.clip(2 * ALL_SLOTS // max(ranks, 1), LEAST_ROUNDS, MOST_ROUNDS)
        depth = np.clip(CELLS // size, LEAST_ROUNDS, most)
        depth = 1 << (np.frexp(depth)[1].astype(np.int64) - 1)
        if len(self._first.rows) + int(depth.sum()) > ALL_SLOTS:
            depth = np.full(len(size), LEAST_ROUNDS)
        self._slot_at.append(len(self._first.rows) + np.cumsum(depth) - depth)
        self._size.append(size)
        self._last.append((depth - 1).astype(np.uint32))
        for column in (self._first, self._first_ordinal, self._first_end_s, self._first_place):
            column.append(int(depth.sum()))
        for column in (self._behind, self._behind_since):
            column.append(int(size.sum()))

    def _remember(self, done: Completed, places: Ints, sign: NDArray[np.uint32]) -> None:
        """One operation of each signature, for words; forgotten when shapes never end.

        Args:
            done: Operations.
            places: In `done`, of some of them, (n,).
            sign: What all members of the round of each must agree on, (n,).
        """
        at = sign & np.uint32(SEEN_SIGNATURES - 1)
        may_be_new = np.flatnonzero(self._seen[at] != sign)
        if not len(may_be_new):
            return
        if len(self._said) > MOST_SIGNATURES:
            self._said.clear()
            self._seen = _none_seen()
        self._seen[at[may_be_new]] = sign[may_be_new]
        values, first = np.unique(sign[may_be_new], return_index=True)
        for value, place in zip(values.tolist(), places[may_be_new[first]].tolist(), strict=True):
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
