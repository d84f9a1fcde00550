"""Completed rounds: what each member issued in them.

Per communicator the last rounds are kept, per member a signature and an ordinal, written as records come in. All
records of a batch are taken at once: a *cell* belongs to a (communicator, round, member), a *slot* to a
(communicator, round); the newest round that falls on either keeps it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.codes import Status
from whichrank.model.kinds import is_collective
from whichrank.model.picture import OPS, Bools, Picture
from whichrank.model.places import those
from whichrank.store.communicators import Communicators
from whichrank.store.completed import Completed
from whichrank.store.growing import Growing
from whichrank.store.rank_columns import RankColumns

Ints = NDArray[np.int64]
CELLS = 1 << 14
"""Rounds times members kept per communicator, at most; how many rounds that are is a power of two."""
ALL_CELLS = 1 << 24
"""The same over all communicators; beyond it each keeps eight rounds."""
MOST_ROUNDS = 2048
"""Kept of a communicator: agents report seconds apart, and a round is compared when all have reported it."""
FEW_ROUNDS = 256
"""The same once a quarter of all cells is taken, in a large job."""
MOST_SIGNATURES = 1 << 16
"""Of which an operation is remembered for words."""
SETTLE_S = 0.7
"""After which other members have reported the round too."""
STEADY_ROUNDS = 8
"""Rounds in which a member was as far from the others as before, for a change to be worth a closer snapshot."""


class Rounds:
    """The latest completed rounds of every communicator. Grows with the communicators, by at most `ALL_CELLS` cells."""

    def __init__(self) -> None:
        self._size = Growing(np.int64)  # members, by communicator
        self._last = Growing(np.int64)  # rounds kept less one, by communicator: `counter & last` is where one is
        self._slot_at, self._cell_at = Growing(np.int64), Growing(np.int64)
        self._slot_counter, self._slot_sign = Growing(np.uint32), Growing(np.uint32)
        self._slot_reported = Growing(np.uint32)  # counter that the signature is of
        self._cell_counter, self._cell_sign, self._cell_ordinal = (
            Growing(np.uint32),
            Growing(np.uint32),
            Growing(np.uint32),
        )
        self._slot_ordinal, self._slot_end_s = Growing(np.int64), Growing(np.float64)
        self._member_at, self._behind, self._behind_since = Growing(np.int64), Growing(np.int64), Growing(np.int64)
        self._apart: set[int] = set()
        self._said: dict[int, np.void] = {}
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
        self._learn(comms)
        good = is_collective(done["kind"]) & (done["counter"] > 0)
        good &= (done.place >= 0) & (self._size.rows[done.comm] > 1)
        good &= done["status"] == Status.DONE  # what fails is reported by what becomes of the job
        done = done.those(good)
        sign = (done.signs >> np.uint64(32)).astype(np.uint32)
        for some in self._laps(done.comm, done["counter"]):
            self._take(done, some, sign[some], ranks, now_s)

    def _laps(self, comm: Ints, counter: NDArray[np.uint32]) -> list[slice | Ints]:
        """Places of operations, in parts in which no two rounds of a communicator share a slot; earlier ones first."""
        first = np.full(len(self._size.rows), np.iinfo(np.uint32).max, np.uint32)
        np.minimum.at(first, comm, counter)
        since, last = counter - first[comm], self._last.rows[comm]
        if (since <= last).all():
            return [slice(None)]
        lap = since // (last + 1)
        return [np.flatnonzero(lap == number) for number in range(int(lap.max()) + 1)]

    def _take(
        self, done: Completed, some: slice | Ints, sign: NDArray[np.uint32], ranks: RankColumns, now_s: float
    ) -> None:
        """Operations of which no two of one member fall on one slot."""
        comm, member, counter, ordinal = done.comm[some], done.place[some], done["counter"][some], done["ordinal"][some]
        place = counter & self._last.rows[comm]
        cell = self._cell_at.rows[comm] + place * self._size.rows[comm] + member
        mine = _newest(self._cell_counter.rows, cell, counter)
        cell = those(cell, mine)
        self._cell_sign.rows[cell], self._cell_ordinal.rows[cell] = those(sign, mine), those(ordinal, mine)
        slot = self._slot_at.rows[comm] + place
        newest = _newest(self._slot_counter.rows, slot, counter)
        # Backwards, so that of several in one place the first one stays.
        first = np.flatnonzero(newest & (self._slot_reported.rows[slot] != counter))[::-1]
        at = slot[first]
        self._slot_reported.rows[at], self._slot_sign.rows[at] = counter[first], sign[first]
        self._slot_ordinal.rows[at] = ordinal[first]
        self._slot_end_s.rows[at] = ranks.host_s(done.rank[some][first], done["t_end_ns"][some][first])
        differs = np.flatnonzero(newest & (self._slot_sign.rows[slot] != sign))
        for key in zip(comm[differs].tolist(), counter[differs].tolist(), strict=True):
            self._suspects.setdefault(key, now_s)
        new = np.concatenate((first, differs))  # the others are as the first in their rounds
        self._remember(sign[new], done, new if isinstance(some, slice) else some[new])
        columns = comm, self._member_at.rows[comm] + member, slot, counter, ordinal
        self._compare_places(*(columns if newest.all() else (column[newest] for column in columns)))

    def forget(self) -> None:
        """A rank's process was replaced: it counts from one again, and so may the others of its communicators."""
        for column in (
            self._slot_counter, self._slot_reported, self._cell_counter, self._behind, self._behind_since,
        ):  # fmt: skip
            column.rows[:] = 0
        self._suspects.clear()
        self._apart.clear()
        self._reported.clear()

    def _compare_places(self, comm: Ints, at: Ints, slot: Ints, counter: NDArray[Any], ordinal: NDArray[Any]) -> None:
        """Which members are no longer where they used to be in a round, against the first that reported it.

        Args:
            comm: Communicator of each record.
            at: Its member.
            slot: Its round.
            counter: The number of the round.
            ordinal: The number of the operation among all of its rank.
        """
        behind = ordinal.astype(np.int64) - self._slot_ordinal.rows[slot]
        moved = np.flatnonzero(behind != self._behind.rows[at])
        if not len(moved):
            return
        at, counter = at[moved], counter[moved]
        steady = counter - self._behind_since.rows[at] >= STEADY_ROUNDS
        self._apart.update(np.unique(comm[moved][steady]).tolist())
        self._behind.rows[at], self._behind_since.rows[at] = behind[moved], counter

    def take_apart(self) -> set[int]:
        """Communicators of which members have ceased to be at the same operation in each round, since last asked."""
        apart, self._apart = self._apart, set()
        return apart

    def _learn(self, comms: Communicators) -> None:
        """Make room for communicators that are new."""
        size = comms.size[len(self._size.rows) :]
        if not len(size):
            return
        is_small = len(self._cell_sign.rows) < ALL_CELLS // 4
        depth = np.clip(CELLS // size, 8, MOST_ROUNDS if is_small else FEW_ROUNDS)
        depth = 1 << (np.frexp(depth)[1].astype(np.int64) - 1)
        if len(self._cell_sign.rows) + int((depth * size).sum()) > ALL_CELLS:
            depth = np.full(len(size), 8)
        self._slot_at.append(len(self._slot_sign.rows) + np.cumsum(depth) - depth)
        self._cell_at.append(len(self._cell_sign.rows) + np.cumsum(depth * size) - depth * size)
        self._member_at.append(int(self._size.rows.sum()) + np.cumsum(size) - size)
        for column in (self._behind, self._behind_since):
            column.append(int(size.sum()))
        self._size.append(size)
        self._last.append(depth - 1)
        for column in (self._slot_ordinal, self._slot_end_s):
            column.append(int(depth.sum()))
        for column in (self._slot_counter, self._slot_reported, self._slot_sign):
            column.append(int(depth.sum()))
        for column in (self._cell_counter, self._cell_sign, self._cell_ordinal):
            column.append(int((depth * size).sum()))

    def _remember(self, sign: NDArray[np.uint32], done: Completed, places: Ints) -> None:
        """One operation of each signature, for words; forgotten when shapes never end.

        Args:
            sign: (n,).
            done: Operations.
            places: In `done`, of those with these signatures, (n,).
        """
        if len(self._said) > MOST_SIGNATURES:
            self._said.clear()
        starts = np.flatnonzero(np.append(True, sign[1:] != sign[:-1])[: len(sign)])  # of equal ones in a row
        for value in np.unique(sign[starts]).tolist():
            if value not in self._said:
                self._said[value] = done.rows(places[np.flatnonzero(sign == value)[:1]])["row"][0]

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
        of = comm[known]
        slot = self._slot_at.rows[of] + (counter[known] & self._last.rows[of])
        is_other = self._slot_sign.rows[slot] != (sign[known] >> np.uint64(32)).astype(np.uint32)
        differs[known] = (self._slot_reported.rows[slot] == counter[known]) & is_other
        return differs

    def completed_s(self, comm: int, counter: int) -> float:
        """When the first member that has reported a round had completed it; 0 if that is not known any more."""
        if comm >= len(self._size.rows):
            return 0.0
        slot = int(self._slot_at.rows[comm]) + (counter & int(self._last.rows[comm]))
        return float(self._slot_end_s.rows[slot]) if self._slot_reported.rows[slot] == counter else 0.0

    def ops_of(self, picture: Picture, comm: int, counter: int) -> np.ndarray[Any, Any]:
        """Rows of OPS: what each member issued that has completed this round. When is not known: `issue_s` is 0."""
        if comm >= len(self._size.rows):
            return np.zeros(0, OPS)
        size, place = int(self._size.rows[comm]), counter & int(self._last.rows[comm])
        cells = int(self._cell_at.rows[comm]) + place * size + np.arange(size)
        ranks = picture.member_rank[picture.comm_at[comm] : picture.comm_at[comm] + size]
        signs = self._cell_sign.rows[cells]
        described = np.isin(signs, list(self._said))
        known = np.flatnonzero((self._cell_counter.rows[cells] == counter) & (ranks >= 0) & described)
        ops = np.zeros(len(known), OPS)
        ops["rank"], ops["comm"], ops["counter"] = ranks[known], comm, counter
        ops["ordinal"] = self._cell_ordinal.rows[cells[known]]
        for value in np.unique(signs[known]).tolist():
            for name in ("kind", "peer", "dtype", "reduce_op", "count", "flags"):
                ops[name][signs[known] == value] = self._said[value][name]
        return ops


def _newest(kept: NDArray[np.uint32], at: Ints, counter: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Keep the highest counter in each place, where those of one place are all equal; which of these are it."""
    newest = counter >= kept[at]
    kept[those(at, newest)] = those(counter, newest)
    return newest
