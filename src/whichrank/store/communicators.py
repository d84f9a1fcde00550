"""The communicators of a job, and what each member of them has issued and completed."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from whichrank.columns.records import Slots, find_comms
from whichrank.model.places import places_in_sorted, those, values_of
from whichrank.model.telemetry import CommInfo
from whichrank.store.growing import Growing
from whichrank.store.rank_columns import MAX_WORLD, RankColumns

MAX_MEMBERSHIPS = 1 << 24
"""Members over all communicators: nobody's numbers make us allocate more."""
_MEMBER_COLUMNS = ("member_rank", "member_issued", "member_done", "member_tid")
_MEMBER_FLAGS = ("member_seen", "member_left")
MOST_SLOTS = 256
"""Places of a ring for communicators."""


class Communicators:
    """Arrays over communicators, and over their members one after the other. At most `MAX_MEMBERSHIPS` members.

    Attributes:
        info: As they were reported; its index is the number of a communicator.
        at: Where the members of each begin, (C,).
        size: How many there are, (C,).
        member_rank: Global rank of each, -1 unknown, (M,).
        member_issued: Operations that it has issued, (M,).
        member_done: And that it has completed, (M,).
        member_tid: The thread that has issued the latest, (M,).
        member_seen: It was read, (M,).
        member_left: The process that was this member was replaced by another one, (M,).
    """

    def __init__(self) -> None:
        self.info: list[CommInfo] = []
        self._index: dict[int, int] = {}
        self._sorted_ids = np.zeros(0, np.uint64)
        self._sorted_index = np.zeros(0, np.int64)
        self._columns = {name: Growing(np.int64) for name in ("at", "size", *_MEMBER_COLUMNS)}
        self._columns |= {name: Growing(np.bool_) for name in _MEMBER_FLAGS}
        self.at = self.size = np.zeros(0, np.int64)
        self.member_rank = self.member_issued = self.member_done = self.member_tid = np.zeros(0, np.int64)
        self.member_seen = self.member_left = np.zeros(0, np.bool_)
        self._place_key = self._place = np.zeros(0, np.int64)  # communicator and rank, ascending; and its group rank
        self._ids = Growing(np.uint64)
        self._comm_of = Growing(np.int64)  # by member
        self._in_slot = np.full((0, 1), -1, np.int32)  # by rank and slot of its ring: the member that it is there

    def add(self, reported: list[CommInfo], ranks: RankColumns) -> None:
        """Learn communicators; what cannot be one is left out, so that nobody's numbers make us allocate."""
        new: dict[int, CommInfo] = {}
        for info in reported:
            if info.comm_id in self._index or (info.comm_id in new and new[info.comm_id].members):
                continue  # thousands of agents report the same
            listed = info.spread(MAX_WORLD)
            if 0 < info.size <= max(ranks.size, len(listed.members)) and 0 < info.comm_id < 1 << 64:
                new[info.comm_id] = _with_possible_members(listed)
        sizes = np.array([info.size for info in new.values()], np.int64)
        total = len(self.member_rank) + int(sizes.sum())
        if not new or total > MAX_MEMBERSHIPS:
            return
        self._ids.append(np.array(list(new), np.uint64))
        self._comm_of.append(np.repeat(np.arange(len(self.info), len(self.info) + len(new)), sizes))
        for comm_id, info in new.items():
            self._index[comm_id] = len(self.info)
            self.info.append(info)
        members = np.concatenate([_members_of(info) for info in new.values()])
        self.at = self._columns["at"].append(len(self.member_rank) + np.cumsum(sizes) - sizes)
        self.size = self._columns["size"].append(sizes)
        self.member_rank = self._columns["member_rank"].append(members)
        for name in (*_MEMBER_COLUMNS[1:], *_MEMBER_FLAGS):
            setattr(self, name, self._columns[name].append(len(members)))
        ids = np.sort(np.array(list(new), np.uint64))
        at = np.searchsorted(self._sorted_ids, ids)
        self._sorted_ids = np.insert(self._sorted_ids, at, ids)
        self._sorted_index = np.insert(self._sorted_index, at, [self._index[i] for i in ids.tolist()])
        ranks.grow(int(members.max()) + 1)

    def take(self, rows: np.ndarray[Any, Any], ranks: RankColumns) -> bool:
        """Take what each member has issued and completed; True if any has completed something since.

        Args:
            rows: Rows of COMM_ROW.
            ranks: Of the job.
        """
        if not self.info:
            return False
        rows = those(rows, (rows["rank"] >= 0) & (rows["rank"] < ranks.size))
        rank, slot = rows["rank"].astype(np.int64), np.ascontiguousarray(rows["slot"])
        comm, place = self.of_ops(rank, slot, np.ascontiguousarray(rows["comm_id"]))
        inside = (comm >= 0) & (rows["group_rank"] < self.size[comm])
        rows, rank, slot, comm, place = (those(column, inside) for column in (rows, rank, slot, comm, place))
        at = self.at[comm] + rows["group_rank"]
        has_completed = bool((rows["done"] > self.member_done[at]).any())
        self.member_rank[at] = rank
        self.member_issued[at] = rows["issued"]
        self.member_done[at] = rows["done"]
        self.member_tid[at] = rows["last_tid"]
        self.member_seen[at] = True
        self.member_left[at] = False
        latest = np.argsort(rows["last_issue_ns"], kind="stable")
        ranks.issuing_tid[rank[latest]] = rows["last_tid"][latest]
        if (new := place != rows["group_rank"]).any():
            self._learn_places(comm[new] << 32 | rank[new], rows["group_rank"][new].astype(np.int64))
        self._learn_slots(rank, slot, at, ranks.size)
        return has_completed

    def _learn_places(self, key: NDArray[np.int64], group_rank: NDArray[np.int64]) -> None:
        """Take the group rank of each communicator and rank."""
        at = places_in_sorted(key, self._place_key)
        known = at >= 0
        self._place[at[known]] = group_rank[known]
        if not known.all():
            new, first = np.unique(key[~known], return_index=True)
            new = new[: MAX_MEMBERSHIPS - len(self._place_key)]
            where = np.searchsorted(self._place_key, new)
            self._place_key = np.insert(self._place_key, where, new)
            self._place = np.insert(self._place, where, group_rank[~known][first[: len(new)]])

    def _learn_slots(self, rank: NDArray[Any], slot: NDArray[Any], member: NDArray[np.int64], ranks: int) -> None:
        """Take in which slot of its ring a rank has which communicator."""
        fits = slot < MOST_SLOTS
        have = self._in_slot.shape
        most = int(slot[fits].max(initial=0)) + 1
        if ranks > have[0] or most > have[1]:
            slots = have[1] if most <= have[1] else min(max(most, 2 * have[1]), MOST_SLOTS)
            table = np.full((max(ranks, have[0]), slots), -1, np.int32)
            table[: have[0], : have[1]] = self._in_slot
            self._in_slot = table
        self._in_slot[rank[fits], slot[fits]] = member[fits]

    def of_ops(
        self, rank: NDArray[np.int64], slot: NDArray[np.uint16], ids: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The communicator of each operation, -1 unknown, and the group rank of its rank there, -1 not said.

        Args:
            rank: Who has issued it, (n,).
            slot: In which slot of its ring the communicator was: where that is known, nothing is searched, (n,).
            ids: The communicator's id, (n,).
        """
        table = Slots.of(
            ranks=len(self._in_slot), slots=self._in_slot.shape[1], members=len(self._comm_of.rows),
            comms=len(self.info), in_slot=self._in_slot, comm_of=self._comm_of.rows, member_at=self.at,
            id=self._ids.rows,
        )  # fmt: skip
        comm, place, missing = find_comms(table, rank, slot, ids)
        if missing:
            others = np.flatnonzero(comm < 0)
            comm[others] = self.index(ids[others])
            place[others] = self.group_ranks(comm[others], rank[others])
        return comm, place

    def index(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Index of each communicator id, -1 unknown."""
        return values_of(ids, self._sorted_ids, self._sorted_index, -1)

    def group_ranks(self, comm: NDArray[np.int64], rank: NDArray[Any]) -> NDArray[np.int64]:
        """The group rank of each rank on a communicator, -1 where no agent has said it."""
        return values_of(comm << 32 | rank, self._place_key, self._place, -1)

    def members(self, comm: NDArray[np.int64], group_rank: NDArray[Any]) -> NDArray[np.int64]:
        """Global ranks of members, -1 where it is none or not known."""
        group_rank = group_rank.astype(np.int64)
        good = (group_rank >= 0) & (group_rank < self.size[comm])
        return np.where(good, self.member_rank[self.at[comm] + np.where(good, group_rank, 0)], -1)

    def members_of(self, comm: int) -> tuple[int, ...]:
        """Global ranks of the members of one communicator by place, -1 where it is not known."""
        at, size = int(self.at[comm]), int(self.size[comm])
        return tuple(self.member_rank[at : at + size].tolist())

    def frontier(self, comm: int, rank: int) -> tuple[int, int]:
        """Operations that a rank has issued and completed on a communicator, as reported last."""
        at, size = int(self.at[comm]), int(self.size[comm])
        member = at + np.flatnonzero(self.member_rank[at : at + size] == rank)[:1]
        return int(self.member_issued[member].sum()), int(self.member_done[member].sum())

    def name(self, comm: int) -> str:
        """The communicator in words: its description, else its name."""
        info = self.info[comm]
        label = info.desc if info.desc not in ("", "undefined") else f"group {info.name}"
        return label.removeprefix("mesh_")

    def leave(self, ranks: Set[int]) -> None:
        """The processes of these ranks were replaced: the communicators that they were in are over."""
        if ranks:
            self.member_left[np.isin(self.member_rank, list(ranks))] = True

    def forget(self, ranks: NDArray[np.int64]) -> None:
        """Forget what was reported of these ranks."""
        kept = ~np.isin(self._place_key & 0xFFFFFFFF, ranks)
        self._place_key, self._place = self._place_key[kept], self._place[kept]
        self._in_slot[ranks[ranks < len(self._in_slot)]] = -1
        theirs = np.isin(self.member_rank, ranks)
        self.member_seen[theirs] = False
        self.member_issued[theirs] = self.member_done[theirs] = self.member_tid[theirs] = 0


def _members_of(info: CommInfo) -> NDArray[np.int64]:
    """Global ranks by group rank, -1 where it is not known or none that can be."""
    members = np.full(info.size, -1, np.int64)
    listed = np.array(info.members[: info.size], np.int64)
    members[: len(listed)] = np.where((listed >= 0) & (listed < MAX_WORLD), listed, -1)
    return members


def _with_possible_members(info: CommInfo) -> CommInfo:
    """The same; members are unknown where one of them is a number that no row can hold."""
    fits = all(-(1 << 63) <= member < 1 << 63 for member in info.members)
    return info if fits else msgspec.structs.replace(info, members=[])
