"""The dumps of a job as batches: what an agent beside each rank would have reported at that moment.

Clocks of hosts are not compared: each rank's times are ages before its own latest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.intake.communicators import Communicator
from whichrank.intake.facts import Fact
from whichrank.intake.flight_job import RankDump
from whichrank.intake.reporting import SINCE_NS, ended_batch, rank_row
from whichrank.model.codes import UNNUMBERED, Flag, Status
from whichrank.model.kinds import Kind, is_message
from whichrank.model.signature import UNKNOWN_REDUCE_OP
from whichrank.model.telemetry import (
    COMM_ROW,
    INFLIGHT_REPORTED,
    PAIR_ROW,
    RECORD_REPORTED,
    VERSION,
    Batch,
    CommInfo,
)

BASE: Final = UNNUMBERED + (1 << 20)
"""Number of the last send and receive that are complete at both ends, where only later ones can be counted."""
LONG_AGO_NS: Final = 3600 * 10**9
"""What a rank does is as little known as if it had last been read then."""


def batches_of(
    reported: Sequence[RankDump], world_size: int, facts: Mapping[int, Fact] = MappingProxyType({}), last_s: float = 0.0
) -> tuple[tuple[Batch, ...], float]:
    """What an agent beside each rank would say at that moment, and the moment: seconds of unix time.

    Args:
        reported: What was read.
        world_size: Ranks of the job.
        facts: What logs say of ranks. That a process has ended counts only where there is no dump: those that have one
            lived longer.
        last_s: The latest time of those logs, see `log_time`.
    """
    now_ns = max((one.latest_ns for one in reported), default=0) + SINCE_NS
    now_ns = max(now_ns, 2 * LONG_AGO_NS)  # where nothing has a time
    infos, pairs, uncounted = _infos(reported), _Pairs(reported), _uncounted(reported)
    batches = [_batch(one, infos, pairs, uncounted, world_size, now_ns, facts.get(one.rank)) for one in reported]
    dumped = {one.rank for one in reported}
    ended = [fact for rank, fact in sorted(facts.items()) if rank not in dumped and fact.has_ended]
    return (
        *batches,
        *(ended_batch(fact, world_size, now_ns, _at_ns(fact.at_s, last_s, now_ns)) for fact in ended),
    ), now_ns / 1e9


def _at_ns(at_s: float, last_s: float, now_ns: int) -> int:
    """A time of a log on the clock of a recording, on which the log's last time is the latest."""
    ago_s = last_s - at_s if 0 <= at_s <= last_s else 0.0
    return max(now_ns - int(ago_s * 1e9), SINCE_NS)


def _infos(reported: Sequence[RankDump]) -> dict[Communicator, CommInfo]:
    infos: dict[Communicator, CommInfo] = {}
    for one in reported:
        for group, comm in zip(one.dump.groups, one.comm, strict=True):
            if comm in one.members and comm not in infos:
                members = list(comm.members)
                infos[comm] = CommInfo(comm.comm_id, comm.name, group.desc, one.dump.backend, len(members), 0, members)
    return infos


def _uncounted(reported: Sequence[RankDump]) -> set[Communicator]:
    """Those whose collectives may have no number of their own: version 1 counts messages with them, rank by rank.

    Messages that a ring has lost count too. So in a job that has any it is said only of rings that have lost nothing.
    """
    old = [one for one in reported if one.dump.version.startswith("1")]
    if not any(one.entries["p2p"].any() for one in old):
        return set()
    found = set()
    for one in old:
        groups = range(len(one.comm)) if not one.is_whole else np.unique(one.entries["group"][one.entries["p2p"]])
        found |= {one.comm[group] for group in groups}
    return found


class _Pairs:
    """How many sends and receives each rank has issued toward each other, and the number of each."""

    def __init__(self, reported: Sequence[RankDump]) -> None:
        self._reported = {one.rank: one for one in reported}
        self._open: dict[tuple[Communicator, int, int, int], int] = {}
        for one in reported:
            rows = one.entries[~one.is_done & is_message(one.entries["kind"])]
            for group, kind, peer in rows[["group", "kind", "peer"]].tolist():
                at = one.comm[group], one.rank, kind, peer
                self._open[at] = self._open.get(at, 0) + 1

    def _is_exact(self, one: RankDump, comm: Communicator, peer: int) -> bool:
        """Do the dumps of both ends hold all that there was between them?"""
        other = self._reported.get(comm.members[peer]) if 0 <= peer < len(comm.members) else None
        return one.is_whole and other is not None and other.is_whole

    def of(self, one: RankDump, comm: Communicator, group: int) -> list[tuple[int, int, int, int]]:
        """Kind, peer, issued and complete, of one rank on one communicator."""
        if len(comm.members) == 2:
            member = one.members[comm]
            peer = 1 - comm.places[one.rank]
            return [(int(kind), peer, member.messages, member.messages_done) for kind in (Kind.SEND, Kind.RECV)]
        rows = one.entries[(one.entries["group"] == group) & is_message(one.entries["kind"])]
        kinds, counts = np.unique(rows[["kind", "peer"]], return_counts=True)
        found = []
        for (kind, peer), count in zip(kinds.tolist(), counts.tolist(), strict=True):
            under_way = self._open.get((comm, one.rank, kind, peer), 0)
            base = count - under_way if self._is_exact(one, comm, peer) else BASE
            found.append((kind, peer, base + under_way, base))
        return found

    def numbers(self, one: RankDump) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The counter of each operation: of its communicator, or of its kind and peer; and which messages have none."""
        rows, is_open = one.entries, ~one.is_done
        number = rows["seq"].astype(np.int64)
        pair = rows["p2p"] & is_message(rows["kind"])
        of_two = np.array([len(comm.members) == 2 for comm in one.comm] or [False])[rows["group"]]
        number = np.where(pair & of_two, rows["p2p_seq"], number)
        far = np.flatnonzero(pair & ~of_two)
        is_exact = np.ones(len(rows), np.bool_)
        place = rows["group"][far].astype(np.int64) << 40 | rows["kind"][far].astype(np.int64) << 32
        place |= rows["peer"][far].astype(np.int64) & 0xFFFFFFFF
        for value in np.unique(place).tolist():
            these = far[place == value]
            if self._is_exact(one, one.comm[value >> 40], int(rows["peer"][these[0]])):
                number[these] = 1 + np.arange(len(these))
                continue
            is_exact[these] = False
            is_of = is_open[these]
            first_open = int(np.argmax(is_of)) if is_of.any() else len(these)
            number[these] = BASE + 1 + np.arange(len(these)) - first_open
        return number, _with_several_peers(rows, is_open & pair & ~of_two & ~is_exact)


def _with_several_peers(rows: NDArray[Any], messages: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of these messages are of a batch that exchanges with more than one peer."""
    found = np.zeros(len(rows), np.bool_)
    at = np.flatnonzero(messages)
    batch = rows["group"][at].astype(np.int64) << 33 | (rows["p2p_seq"][at] & 0x1FFFFFFFF)
    peers = np.unique(np.stack((batch, rows["peer"][at])), axis=1)[0] if len(at) else batch
    values, counts = np.unique(peers, return_counts=True)
    found[at] = np.isin(batch, values[counts > 1])
    return found


def _batch(
    one: RankDump, infos: dict[Communicator, CommInfo], pairs: _Pairs, uncounted: set[Communicator], world_size: int,
    now_ns: int, fact: Fact | None,
) -> Batch:  # fmt: skip
    host = fact.host if fact else ""
    latest_ns = one.latest_ns or now_ns - SINCE_NS
    read_ns = latest_ns + SINCE_NS
    is_all_known = not (one.dump.hides_messages and one.is_done.all())
    known_ns = read_ns if is_all_known else read_ns - LONG_AGO_NS
    entries = one.entries
    ids = np.array([comm.comm_id if comm in one.members else 0 for comm in one.comm] or [0], np.uint64)
    known = ids[entries["group"]] > 0 if len(entries) else np.zeros(0, np.bool_)
    number, is_unaddressed = pairs.numbers(one)
    is_uncounted = np.array([comm in uncounted for comm in one.comm] or [False])[entries["group"]] & ~entries["p2p"]
    open_rows, done_rows = known & ~one.is_done, known & one.is_done & ~is_uncounted
    is_unaddressed |= is_uncounted
    return Batch(
        version=VERSION,
        job="",
        agent=f"recording:{one.rank}",
        host=host,
        sequence=1,
        sent_ns=read_ns,
        sent_realtime_ns=read_ns,
        delay_bound_ns=0,
        node_ranks=1,
        ranks=_rank_row(one, world_size, known_ns, fact).tobytes(),
        comms=_comm_rows(one, uncounted, latest_ns).tobytes(),
        pairs=_pair_rows(one, pairs).tobytes(),
        inflight=_flights(one, entries[open_rows], number[open_rows], ids, is_unaddressed[open_rows]).tobytes(),
        records=_records(one, entries[done_rows], number[done_rows], ids).tobytes(),
        comm_info=[infos[comm] for comm in one.members],
        node=host or f"rank {one.rank}",
    )


def _rank_row(one: RankDump, world_size: int, read_ns: int, fact: Fact | None) -> NDArray[Any]:
    row = rank_row(one.rank, world_size, read_ns, int(_ordinals(one, one.entries).max(initial=0)))
    row["pid"] = fact.pid if fact else 0
    return row


def _comm_rows(one: RankDump, uncounted: set[Communicator], latest_ns: int) -> NDArray[Any]:
    rows = np.zeros(len(one.members), COMM_ROW)
    rows["rank"], rows["state"], rows["last_issue_ns"], rows["last_done_ns"] = one.rank, 1, latest_ns, latest_ns
    for row, (comm, member) in zip(rows, one.members.items(), strict=True):
        row["group_rank"], row["comm_id"] = comm.places[one.rank], comm.comm_id
        if comm not in uncounted:
            row["issued"], row["done"], row["completed"] = member.issued, member.done, member.done
    return rows


def _pair_rows(one: RankDump, pairs: _Pairs) -> NDArray[Any]:
    found = [
        (comm.comm_id, *pair)
        for group, comm in enumerate(one.comm)
        if comm in one.members
        for pair in pairs.of(one, comm, group)
    ]
    rows = np.zeros(len(found), PAIR_ROW)
    rows["rank"] = one.rank
    for row, (comm_id, kind, peer, issued, done) in zip(rows, found, strict=True):
        row["comm_id"], row["kind"], row["peer"] = comm_id, kind, peer
        row["issued"], row["done"], row["completed"] = issued, done, done
    return rows


def _ordinals(one: RankDump, entries: NDArray[Any]) -> NDArray[np.int64]:
    """Places in the order of issue, among those that the ring has kept."""
    return np.searchsorted(one.entries["record"], entries["record"]) + 1


def _flags(entries: NDArray[Any]) -> NDArray[np.int64]:
    """What of the sizes may differ between members: a dump does not tell an even all-to-all from others."""
    flags = np.where(entries["kind"] == Kind.ALL_TO_ALL, int(Flag.UNEVEN), 0)
    flags |= np.where(entries["lists"], int(Flag.FREE_SIZES), 0)
    return np.asarray(flags | int(Flag.ASYNC), np.int64)


def _flights(
    one: RankDump, entries: NDArray[Any], number: NDArray[np.int64], ids: NDArray[np.uint64],
    is_unaddressed: NDArray[np.bool_],
) -> NDArray[Any]:  # fmt: skip
    """What is under way; of messages without an address it is reported that the rank waits for somebody."""
    reported = np.zeros(len(entries), INFLIGHT_REPORTED)
    row = reported["row"]
    reported["rank"], reported["comm"] = one.rank, ids[entries["group"]] if len(entries) else 0
    row["counter"], row["count"], row["out_count"] = number, entries["count"], entries["out_count"]
    row["t_issue_ns"], row["t_start_ns"] = entries["created_ns"], entries["started_ns"]
    row["kind"], row["dtype"], row["peer"] = entries["kind"], entries["dtype"], entries["peer"]
    row["reduce_op"] = UNKNOWN_REDUCE_OP
    row["kind"][is_unaddressed], row["peer"][is_unaddressed] = Kind.RECV_ANY, -1
    row["ordinal"], row["flags"], row["state"] = _ordinals(one, entries), _flags(entries), 1
    row["timeout_ms"] = np.clip(entries["timeout_ms"], 0, 0xFFFFFFFF)
    return reported


def _records(one: RankDump, entries: NDArray[Any], number: NDArray[np.int64], ids: NDArray[np.uint64]) -> NDArray[Any]:
    reported = np.zeros(len(entries), RECORD_REPORTED)
    row = reported["row"]
    reported["rank"], reported["comm"] = one.rank, ids[entries["group"]] if len(entries) else 0
    row["seq"] = row["ordinal"] = _ordinals(one, entries)
    row["t_issue_ns"], row["t_start_ns"] = entries["created_ns"], entries["started_ns"]
    row["t_end_ns"] = np.maximum(entries["completed_ns"], entries["created_ns"])
    row["counter"], row["count"] = number, entries["count"]
    row["kind"], row["dtype"], row["peer"] = entries["kind"], entries["dtype"], entries["peer"]
    row["reduce_op"] = UNKNOWN_REDUCE_OP
    row["flags"], row["status"] = _flags(entries) & 0xFF | int(Flag.END_INFERRED), Status.DONE
    return reported
