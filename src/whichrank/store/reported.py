"""What agents report as rows of the picture: communicators by their index, times on the analyzer's clock.

Each takes the rows of one batch and leaves out what is of an unknown communicator or of no rank of the job.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.codes import SPLITS, WaitHow
from whichrank.model.kinds import Kind
from whichrank.model.picture import MEETINGS, OPS, PAIRS, REMOTE, SPLITS_OF, WAITS
from whichrank.model.places import taken, those
from whichrank.store.communicators import Communicators
from whichrank.store.completed import Completed, Records
from whichrank.store.rank_columns import RankColumns

Rows = np.ndarray[Any, Any]


class Reported:
    """Turns rows of one job.

    Args:
        ranks: Its ranks.
        comms: Its communicators.
    """

    def __init__(self, ranks: RankColumns, comms: Communicators) -> None:
        self._ranks = ranks
        self._comms = comms

    def known(self, reported: Rows) -> tuple[Rows, NDArray[np.int64]]:
        """The rows of known communicators and ranks, and the index of the communicator of each."""
        comm = self._comms.index(reported["comm"])
        good = (comm >= 0) & self._is_of_job(reported["rank"])
        return those(reported, good), those(comm, good)

    def completed(self, reported: Rows) -> tuple[Completed, Rows, Rows, Rows]:
        """Completed operations, optimizer steps, what ranks were given, backward passes: rows of RECORD_REPORTED."""
        records = Records(reported, self._ranks.size)
        rank, slot, ids, at = records.rank, records["comm_slot"], records.comm_id, None
        steps = given = passes = reported[:0]
        if records.others:
            good, kind = self._is_of_job(rank), records["kind"]
            steps = taken(reported, np.flatnonzero(good & (kind == Kind.STEP)))
            given = taken(reported, np.flatnonzero(good & (kind == Kind.WORK)))
            passes = taken(reported, np.flatnonzero(good & (kind == Kind.PASS)))
            at = np.flatnonzero(good & (kind < Kind.STEP))
            rank, slot, ids = rank[at], slot[at], ids[at]
        comm, place = self._comms.of_ops(rank, slot, ids)
        if (unknown := comm < 0).any():
            at = np.flatnonzero(~unknown) if at is None else at[~unknown]
            rank, comm, place = rank[~unknown], comm[~unknown], place[~unknown]
        return Completed(records, at, rank, comm, place), steps, given, passes

    def waits(self, reported: Rows) -> Rows:
        """Threads that wait for an operation, rows of WAITS."""
        reported, comm = self.known(reported)
        waits, row = np.zeros(len(reported), WAITS), reported["row"]
        for name in ("tid", "counter", "kind", "peer", "tag", "how", "dtype", "reduce_op", "count"):
            waits[name] = row[name]
        waits["rank"], waits["comm"] = reported["rank"], comm
        waits["since_s"] = self._ranks.host_s(reported["rank"], row["since_ns"])
        waits["issue_s"] = self._ranks.host_s(reported["rank"], row["t_issue_ns"])
        waits["explicit"] = (reported["inferred"] == 0) & (row["how"] != WaitHow.POLL)
        waits["timeout_s"] = row["timeout_ms"] / 1e3
        return waits

    def remote_calls(self, reported: Rows) -> Rows:
        """Threads that wait for a remote call, rows of REMOTE."""
        reported = reported[(reported["row"]["kind"] == Kind.REMOTE_CALL) & self._is_of_job(reported["rank"])]
        calls, row = np.zeros(len(reported), REMOTE), reported["row"]
        calls["rank"], calls["tid"], calls["peer"] = reported["rank"], row["tid"], row["peer"]
        calls["peer"][~self._is_of_job(calls["peer"])] = -1
        calls["since_s"] = self._ranks.host_s(reported["rank"], row["since_ns"])
        return calls

    def meetings(self, reported: Rows) -> Rows:
        """Threads that wait until others have come, rows of MEETINGS; of size 0 where it is not known which."""
        size = self._ranks.size
        reported = reported[(reported["row"]["kind"] == Kind.MEETING) & self._is_of_job(reported["rank"])]
        meetings, row = np.zeros(len(reported), MEETINGS), reported["row"]
        meetings["rank"] = reported["rank"]
        meetings["first"], meetings["stride"], meetings["size"] = row["peer"], row["tag"], row["count"]
        meetings["size"][(meetings["size"] < 0) | (meetings["size"] > size)] = 0
        last = meetings["first"] + meetings["stride"] * (meetings["size"] - 1)
        meetings["size"][(meetings["first"] < 0) | (meetings["stride"] < 1) | (last >= size)] = 0
        meetings["since_s"] = self._ranks.host_s(reported["rank"], row["since_ns"])
        return meetings

    def ops(self, reported: Rows, *, failed: bool = False) -> Rows:
        """Operations in flight, or completed ones that failed, rows of OPS."""
        reported, comm = self.known(reported)
        ops, row = np.zeros(len(reported), OPS), reported["row"]
        for name in ("counter", "kind", "peer", "dtype", "reduce_op", "count", "flags", "ordinal"):
            ops[name] = row[name]
        if not failed:
            ops["tag"], ops["signature"], ops["tid"] = row["tag"], row["signature"], row["issue_tid"]
        ops["rank"], ops["comm"], ops["failed"] = reported["rank"], comm, failed
        ops["issue_s"] = self._ranks.host_s(reported["rank"], row["t_issue_ns"])
        return ops

    def pairs(self, rows: Rows) -> Rows:
        """Counters of send and receive, rows of PAIRS."""
        comm = self._comms.index(rows["comm_id"])
        good = (comm >= 0) & self._is_of_job(rows["rank"])
        pairs = np.zeros(int(good.sum()), PAIRS)
        for name in ("rank", "kind", "peer", "tag", "issued", "completed"):
            pairs[name] = rows[name][good]
        pairs["comm"] = comm[good]
        return pairs

    def splits(self, reported: Rows) -> Rows:
        """What the latest all-to-alls of some ranks send and expect, rows of SPLITS_OF."""
        comm = self._comms.index(reported["row"]["comm_id"])
        good = (comm >= 0) & self._is_of_job(reported["rank"]) & (reported["row"]["splits"] <= SPLITS)
        rows = np.zeros(int(good.sum()), SPLITS_OF)
        for name in ("counter", "splits", "count", "out_count", "split_in", "split_out"):
            rows[name] = reported["row"][name][good]
        rows["rank"], rows["comm"] = reported["rank"][good], comm[good]
        return rows

    def _is_of_job(self, rank: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((rank >= 0) & (rank < self._ranks.size))
