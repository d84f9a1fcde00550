"""All Flight Recorder dumps of a job: how far each rank is on each communicator.

Counters come from the operations that are in the dumps, since each carries both of its group's counts; where a rank has
none of a group, from the group's status. A status is kept under a number of the process's own and counts whatever came
last, so it is read beside what the other members have. What still is not known of a rank that is in no operation is
taken from that alone: it is in none.

Sends and receives of a group of two are counted by the group. Those of a larger one are counted one by one where both
dumps hold all that their ranks have issued; else from the last that is complete at both ends. That may be one too few:
a part of a batch has no end before the batch has, and may long be answered. So of a batch with several peers it is not
said for whom it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.intake.communicators import Communicator, Communicators
from whichrank.intake.flight_dump import COMPLETED, OF_ALL, Dump

OLDER: Final = "its dump was made before those of its peers, while the job still went on"
YOUNG: Final = 1000
"""Operations of a rank, below which a job has just begun."""
LEAST_RING: Final = 16
"""Entries: no ring is shorter."""
UNKNOWN: Final = -1


@dataclass
class Member:
    """How far a rank is on a communicator; -1 where that is not known.

    Attributes:
        issued: Collectives.
        done: The same, up to the first that is not complete.
        is_least: That one is the first that the ring has kept; so some before it may not be complete either.
        messages: Sends, receives and batches of them.
        messages_done: The same, complete.
        status: Last enqueued and completed of whatever came last, by the group's status; None without one.
    """

    issued: int = UNKNOWN
    done: int = UNKNOWN
    is_least: bool = False
    messages: int = UNKNOWN
    messages_done: int = UNKNOWN
    status: tuple[int, int] | None = None


@dataclass(frozen=True)
class RankDump:
    """One rank's dump with what was worked out of it.

    Attributes:
        rank: Global rank.
        dump: As it was read.
        entries: Its operations, batches resolved; rows of `flight_dump.ENTRY`.
        is_done: Which of them are complete.
        comm: By group of the dump, the communicator.
        members: How far it is, by communicator.
    """

    rank: int
    dump: Dump
    entries: NDArray[Any]
    is_done: NDArray[np.bool_]
    comm: tuple[Communicator, ...]
    members: dict[Communicator, Member] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Does the dump hold all that the rank has issued?"""
        record = self.dump.entries["record"]
        return bool(len(record) == 0 or (record[0] == 0 and record[-1] == len(record) - 1))

    @property
    def issued(self) -> int:
        """Operations in all, as far as the dump says it."""
        return int(self.dump.entries["record"].max(initial=-1)) + 1

    @property
    def latest_ns(self) -> int:
        """Its latest time, on its own clock; 0 if it has none."""
        times = (self.entries[name].max(initial=0) for name in ("created_ns", "started_ns", "completed_ns"))
        return int(max(times))


def job_of(dumps: dict[int, Dump]) -> tuple[list[RankDump], dict[int, str]]:
    """What each rank's dump says, and the ranks whose dump is not to be believed, and why.

    Args:
        dumps: By rank.
    """
    known, communicators = _known_members(dumps), Communicators()
    ring = _ring(dumps)
    reported = [_reported(rank, dump, known, communicators, ring) for rank, dump in sorted(dumps.items())]
    missing = dict.fromkeys(_lacking(reported), "its dump has none of the operations that it counts as under way")
    _fill(reported)
    return reported, missing | dict.fromkeys(_older(reported), OLDER)


def is_young(reported: Iterable[RankDump]) -> bool:
    """Had the job just begun?"""
    return all(one.issued < YOUNG for one in reported)


def world_size(dump: Dump) -> int:
    """Ranks of the group that all are in, 0 if the dump does not say."""
    return max((len(group.members) for group in dump.groups if group.desc in OF_ALL), default=0)


# ---- what a dump says -----------------------------------------------------------------------------------------------


def _known_members(dumps: dict[int, Dump]) -> dict[str, tuple[int, ...]]:
    """Members of the groups that no dump lists: the ranks that have had an operation on it."""
    seen: dict[str, set[int]] = {}
    for rank, dump in dumps.items():
        for at in np.unique(dump.entries["group"]).tolist():
            if not dump.groups[at].members:
                seen.setdefault(dump.groups[at].name, set()).add(rank)
    return {name: tuple(sorted(ranks)) for name, ranks in seen.items()}


def _reported(
    rank: int, dump: Dump, known: dict[str, tuple[int, ...]], communicators: Communicators, ring: int
) -> RankDump:
    status = {at: dump.status[pg] for at, pg in _numbers(dump).items() if pg in dump.status}
    entries, is_done = _resolved(dump, status)
    comm = tuple(communicators.of(group.name, group.members or known.get(group.name, ())) for group in dump.groups)
    reported = RankDump(rank, dump, entries, is_done, comm)
    for at, one in enumerate(comm):
        if rank not in one.places:
            continue
        mine = entries["group"] == at
        reported.members[one] = _member(entries[mine], is_done[mine], status.get(at))
        _count_what_was_left_out(reported.members[one], dump.entries[dump.entries["group"] == at])
        if ring and len(dump.entries) >= ring and not reported.is_whole and (ring == 1 or at not in status):
            rounds = is_done[mine & ~entries["p2p"]]
            reported.members[one].is_least = bool(len(rounds)) and not rounds[0]
    return reported


def _resolved(dump: Dump, status: dict[int, tuple[int, int]]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Operations and which are complete. Those of a batch are complete with the batch, and collectives of one are one.

    Of an operation in a batch the recorder never notes an end; it notes that of the batch, as an entry of its own.
    Where only what is active was dumped, that is gone once it is complete, but the group's status has its number.
    """
    rows = dump.entries.copy()
    is_done = (rows["state"] == COMPLETED) | (rows["completed_ns"] > 0)
    if dump.backend == "gloo":  # of which nothing but this is noted
        is_done = rows["retired"].copy()
    number = np.where(rows["p2p"], rows["p2p_seq"], rows["seq"])
    place = rows["group"].astype(np.int64) << 34 | rows["p2p"].astype(np.int64) << 33 | (number & 0x1FFFFFFFF)
    whole = rows["whole"]
    if whole.any():
        batch = {at: (done, ns) for at, done, ns in zip(
            place[whole].tolist(), is_done[whole].tolist(), rows["completed_ns"][whole].tolist(), strict=True
        )}  # fmt: skip
        parts = np.flatnonzero(np.isin(place, list(batch)) & ~whole)
        for i in parts.tolist():
            is_done[i], rows["completed_ns"][i] = batch[int(place[i])]
        alone = ~np.isin(place, place[parts]) & ~rows["p2p"]
        keep = ~whole | alone
        if dump.entries["record"][0] > 0:  # the first one may have lost some of its parts
            keep &= place != place[0]
        rows, is_done, place = rows[keep], is_done[keep], place[keep]
    for at, (_, completed) in status.items():
        is_done |= _with_its_batch(rows, np.flatnonzero(rows["group"] == at), bool(whole.any()), completed)
    collective = np.flatnonzero(~rows["p2p"])
    values, first, of = np.unique(place[collective], return_index=True, return_inverse=True)
    of = of.reshape(-1)
    if len(values) < len(collective):
        leading = collective[first]
        for name in ("count", "out_count"):
            sizes = rows[name][collective].astype(np.float64)
            rows[name][leading] = np.bincount(of, sizes).astype(np.int64)
        is_done[leading] = np.bincount(of, ~is_done[collective]) == 0
        keep = np.ones(len(rows), np.bool_)
        keep[np.setdiff1d(collective, leading)] = False
        rows, is_done = rows[keep], is_done[keep]
    return rows, is_done


def _with_its_batch(rows: NDArray[Any], mine: NDArray[np.int64], has_wholes: bool, completed: int) -> NDArray[np.bool_]:
    """Parts of batches of messages that are complete by the group's status, since the entry of the batch is gone.

    A status counts whatever came last. Messages that are in no batch say themselves when they are complete, and need
    not be so in order.

    Args:
        rows: Operations.
        mine: Those of the group.
        has_wholes: There are entries of batches.
        completed: What the status says.
    """
    found = np.zeros(len(rows), np.bool_)
    if not len(mine) or not rows["p2p"][mine[-1]] or completed <= rows["seq"][mine[-1]]:
        return found
    messages = mine[rows["p2p"][mine]]
    numbers = rows["p2p_seq"][messages]
    if has_wholes or len(np.unique(numbers)) < len(numbers):
        found[messages[numbers <= completed]] = True
    return found


def _numbers(dump: Dump) -> dict[int, int]:
    """By group of the dump, the number under which the process keeps its status.

    Operations say it. For the others: groups are numbered as they are made, and so are the names of most.
    """
    entries = dump.entries
    known = dict(zip(entries["group"].tolist(), entries["pg"].tolist(), strict=True))
    names = [group.name for group in dump.groups]
    if len(names) == len(dump.status) and all(name.isdecimal() and len(name) < 10 for name in names):
        order = sorted(range(len(names)), key=lambda at: int(names[at]))
        by_age = dict(zip(order, sorted(dump.status), strict=True))
        if all(by_age[at] == pg for at, pg in known.items()):
            return by_age
    return known


def _member(rows: NDArray[Any], is_done: NDArray[np.bool_], status: tuple[int, int] | None) -> Member:
    if not len(rows):
        return Member(status=status)
    issued, messages = int(rows["seq"].max()), int(rows["p2p_seq"].max())
    open_rounds = rows["seq"][~is_done & ~rows["p2p"]]
    open_messages = rows["p2p_seq"][~is_done & rows["p2p"]]
    return Member(
        issued=issued,
        done=max(int(open_rounds.min()) - 1, 0) if len(open_rounds) else issued,
        messages=messages,
        messages_done=max(int(open_messages.min()) - 1, 0) if len(open_messages) else messages,
        status=status,
    )


def _ring(dumps: Mapping[int, Dump]) -> int:
    """Entries from which a ring may have lost some; 0 if only what was under way was dumped, which loses nothing.

    Where nothing is complete in any dump, that is so, unless several have equally many: then that may be the ring.
    """
    if any((dump.entries["state"] == COMPLETED).any() for dump in dumps.values()):
        return 1
    counts = sorted(len(dump.entries) for dump in dumps.values())
    return counts[-1] if len(counts) > 1 and counts[-1] == counts[-2] >= LEAST_RING else 0


def _count_what_was_left_out(member: Member, rows: NDArray[Any]) -> None:
    """The first operation of a ring may be a part of a batch, so it is not reported; that it was issued counts."""
    if not len(rows):
        return
    if member.issued == UNKNOWN:
        member.done, member.messages_done = int(rows["seq"].max()), int(rows["p2p_seq"].max())
    elif member.done == member.issued:
        member.done = max(member.done, int(rows["seq"].max()))
    member.issued = max(member.issued, int(rows["seq"].max()))
    member.messages = max(member.messages, int(rows["p2p_seq"].max()))


# ---- what the others say of it --------------------------------------------------------------------------------------


def _fill(reported: Sequence[RankDump]) -> None:
    """Where ranks are that had no operation of a communicator in their dump."""
    by_comm: dict[Communicator, list[Member]] = {}
    for one in reported:
        for comm, member in one.members.items():
            by_comm.setdefault(comm, []).append(member)
    for members in by_comm.values():
        seen = [m for m in members if m.issued != UNKNOWN]
        surely_done = min((m.done for m in seen if not m.is_least), default=min((m.done for m in seen), default=0))
        counts_rounds = not any(m.messages for m in seen)
        for member in seen:
            if member.is_least:
                member.done = min(member.done, surely_done)
            if member.done < member.issued and member.status and counts_rounds:
                member.done = min(member.done, max(member.status[1], 0))  # a ring may be full of what is under way
        for member in members:
            if member.issued == UNKNOWN:
                _fill_one(member, seen)


def _fill_one(member: Member, seen: list[Member]) -> None:
    """It is in no operation of this communicator; how many it has done its status says, if that counts the same.

    Where there are collectives and messages, nothing says what it counts.
    """
    rounds = max((m.issued for m in seen), default=0)
    messages = max((m.messages for m in seen), default=0)
    enqueued = member.status[0] if member.status else UNKNOWN
    counts_rounds = enqueued >= 0 and not messages
    counts_messages = enqueued >= 0 and bool(messages) and not rounds
    open_round = min((m.done + 1 for m in seen if m.done < m.issued), default=0)
    open_message = min((m.messages_done + 1 for m in seen if m.messages_done < m.messages), default=0)
    by_others = open_round - 1 if open_round else rounds
    by_others_messages = open_message - 1 if open_message else messages
    member.issued = member.done = enqueued if counts_rounds else by_others
    member.messages = member.messages_done = enqueued if counts_messages else by_others_messages


def _lacking(reported: Sequence[RankDump]) -> set[int]:
    """Ranks that have no operation of a group, and some under way by its status, which counts collectives alone."""
    has_messages = {comm for one in reported for comm, member in one.members.items() if member.messages > 0}
    return {
        one.rank
        for one in reported
        for comm, member in one.members.items()
        if member.issued == UNKNOWN and member.status and member.status[0] > member.status[1] >= 0
        if comm not in has_messages
    }


def _older(reported: Sequence[RankDump]) -> set[int]:
    """Ranks that had not issued what a peer had completed: their dump was made before, while the job went on."""
    most: dict[Communicator, int] = {}
    for one in reported:
        for comm, member in one.members.items():
            most[comm] = max(most.get(comm, 0), member.done)
    return {one.rank for one in reported for comm, member in one.members.items() if member.issued < most[comm]}


# ---- as an agent says it -------------------------------------------------------------------------------------------
