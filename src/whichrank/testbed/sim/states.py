"""What the ranks of a simulated job are doing at a moment, as the columns that agents report: rows of all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.codes import SensorState, WaitHow
from whichrank.model.kinds import Kind
from whichrank.model.rows import INFLIGHT_ROW, WAIT
from whichrank.model.sensors import C10D, SOCKET
from whichrank.model.telemetry import (
    COMM_ROW,
    INFLIGHT_REPORTED,
    PAIR_ROW,
    RANK_ROW,
    RECORD_REPORTED,
    WAIT_REPORTED,
    ProcessState,
    WaitChannel,
)
from whichrank.testbed.sim.clocks import BEGIN_S, NS, Clocks
from whichrank.testbed.sim.communicators import Communicators
from whichrank.testbed.sim.program import PP
from whichrank.testbed.sim.run import EPOCH
from whichrank.testbed.sim.usage import Usage

Ints = NDArray[np.int64]
Rows = np.ndarray[Any, Any]
READ_BEFORE_NS: Final = 1_000_000
"""Rings are read so long before a batch is sent."""
PID: Final = 1000
"""Of rank 0."""
TIMEOUT_MS: Final = 600_000
"""Of each operation, as torch sets it for NCCL."""
IN_FLIGHT: Final = 2
"""State of a row of the in-flight table: issued, and not over."""
_ROW_VERSION: Final = 2
"""Of a row that is written once: it grows by 2."""


@dataclass(frozen=True)
class Process:
    """What is seen of the process of a rank that is not as the others.

    Attributes:
        state: Of it.
        ended_s: When it ended, 0 not.
        status: As from wait(2), -1 alive.
    """

    state: ProcessState = ProcessState.SLEEPING
    ended_s: float = 0.0
    status: int = -1


class States:
    """Of all ranks.

    Args:
        comms: All communicators.
        clocks: Of the nodes.
        per_node: Consecutive ranks that share a node.
    """

    def __init__(self, comms: Communicators, clocks: Clocks, per_node: int) -> None:
        layout = comms.layout
        self._comms, self._clocks, self._per_node = comms, clocks, per_node
        self._per_stage, self._ranks = layout.per_stage, np.arange(layout.ranks)
        shape = layout.ranks, len(comms.slots)
        self._issued, self._done = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._last_issue_ns, self._last_done_ns = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._last_kind = np.zeros(shape, np.int64)
        self._begun = np.zeros(layout.ranks, np.int64)  # operations
        self._usage = Usage(layout.ranks, per_node)
        # Issued and done, by pipeline rank, kind and peer, (n, 2).
        self._pairs: dict[tuple[int, int, int], Ints] = {}
        self._open: list[Rows] = []  # RECORD_REPORTED of what is in flight, by the true clock
        self.processes: dict[int, Process] = {}

    def count(self, ranks: Ints, ops: Rows) -> None:
        """Take what the ranks of a pipeline rank have done in an iteration.

        Args:
            ranks: These, (n,).
            ops: Records of operations, (n, items): 0 is never.
        """
        issued, done = ops["t_issue_ns"] > 0, ops["t_end_ns"] > 0
        self._begun[ranks] += issued.sum(axis=1)
        first, is_message = ops[0], ops["kind"] >= Kind.SEND
        for column, slot in enumerate(self._comms.slots):
            of_slot = first["comm_slot"] == slot
            if not of_slot.any():
                continue
            self._note_latest(ranks, column, ops[:, of_slot])
            if slot != PP:
                self._issued[ranks, column] += (issued & ~is_message)[:, of_slot].sum(axis=1)
                self._done[ranks, column] += done[:, of_slot].sum(axis=1)
        in_pipeline = first[first["comm_slot"] == PP]
        for kind, peer in set(zip(in_pipeline["kind"].tolist(), in_pipeline["peer"].tolist(), strict=True)):
            line = int(ranks[0]) // self._per_stage, kind, peer
            which = (first["comm_slot"] == PP) & (first["kind"] == kind) & (first["peer"] == peer)
            both = np.stack((issued[:, which].sum(axis=1), done[:, which].sum(axis=1)), axis=1)
            self._pairs[line] = self._pairs.get(line, np.zeros((len(ranks), 2), np.int64)) + both

    def _note_latest(self, ranks: Ints, column: int, ops: Rows) -> None:
        """When operations of a communicator were issued and over last, by the true clock."""
        for latest, name in ((self._last_issue_ns, "t_issue_ns"), (self._last_done_ns, "t_end_ns")):
            latest[ranks, column] = np.maximum(latest[ranks, column], ops[name].max(axis=1).astype(np.int64))
        issued = (ops["t_issue_ns"] > 0).sum(axis=1)
        kinds = ops["kind"][np.arange(len(ops)), np.maximum(issued, 1) - 1]
        self._last_kind[ranks, column] = np.where(issued > 0, kinds, self._last_kind[ranks, column])

    def stand_in(self, rows: Rows) -> None:
        """These operations, rows of RECORD_REPORTED, are begun and not over."""
        self._open.append(rows)

    def count_messages(self, ranks: Ints, sent: Ints, received: Ints) -> None:
        """So many messages have gone out and come in, in the operation in which these ranks are, (n,) each."""
        self._usage.in_op[ranks] = np.stack((sent, received), axis=1)

    def rank_rows(self, at_ns: int) -> Rows:
        """RANK_ROW of all ranks, (R,)."""
        ranks = self._ranks
        rows = np.zeros(len(ranks), RANK_ROW)
        rows["rank"], rows["local_rank"], rows["world_size"] = ranks, ranks % self._per_node, len(ranks)
        rows["pid"], rows["state"], rows["exit_status"] = ranks + PID, ProcessState.SLEEPING, -1
        rows["read_ns"] = rows["heartbeat_ns"] = at_ns - READ_BEFORE_NS
        rows["created_ns"] = rows["init_ns"] = int((BEGIN_S - 1) * NS)
        rows["ordinal"] = rows["head"] = self._begun
        rows["sensor"][:, C10D.place] = rows["sensor"][:, SOCKET.place] = SensorState.ON
        rows["main_wait_channel"] = WaitChannel.NONE
        for opened in self._open:
            rows["main_wait_channel"][opened["rank"]] = WaitChannel.LOCK
        for rank, process in self.processes.items():
            rows["state"][rank], rows["exit_status"][rank] = process.state, process.status
            rows["ended_ns"][rank] = int(process.ended_s * NS)
        self._usage.fill(rows, at_ns - READ_BEFORE_NS)
        self._clocks.set_here(rows, ranks, ("read_ns", "heartbeat_ns", "created_ns", "init_ns", "ended_ns", "usage_ns"))
        return rows

    def rate_rows(self) -> Rows:
        """RATE_ROW of all ranks, (R,), of the latest `rank_rows`."""
        rows = self._usage.rates()
        self._clocks.set_here(rows, self._ranks, ("start_ns", "end_ns"))
        return rows

    def comm_rows(self) -> Rows:
        """COMM_ROW of all ranks, (R, slots)."""
        slots = np.array(self._comms.slots)
        rows = np.zeros((len(self._ranks), len(slots)), COMM_ROW)
        rows["rank"], rows["comm_id"] = self._ranks[:, None], self._comms.ids[:, slots]
        rows["group_rank"], rows["slot"] = self._comms.group_rank, slots
        rows["state"], rows["last_tid"] = 1, self._ranks[:, None] + PID
        rows["issued"], rows["done"], rows["completed"] = self._issued, self._done, self._done
        rows["last_issue_ns"], rows["last_done_ns"] = self._last_issue_ns, self._last_done_ns
        rows["last_kind"], rows["timeout_ms"], rows["epoch"] = self._last_kind, TIMEOUT_MS, EPOCH
        self._clocks.set_here(rows, self._ranks, ("last_issue_ns", "last_done_ns"))
        return rows

    def pair_rows(self) -> Rows:
        """PAIR_ROW of all ranks, sorted by rank."""
        parts = [np.zeros(0, PAIR_ROW)]
        for (stage, kind, peer), both in self._pairs.items():
            ranks = stage * self._per_stage + np.arange(self._per_stage)
            rows = np.zeros(len(ranks), PAIR_ROW)
            rows["rank"], rows["peer"], rows["kind"], rows["issued"] = ranks, peer, kind, both[:, 0]
            rows["done"] = rows["completed"] = both[:, 1]
            rows["comm_id"], rows["last_tid"] = self._comms.ids[ranks, PP], ranks + PID
            parts.append(rows)
        for opened in self._open:
            beside = opened[(opened["row"]["kind"] >= Kind.SEND) & (opened["row"]["comm_slot"] != PP)]
            rows = np.zeros(len(beside), PAIR_ROW)
            rows["rank"], rows["comm_id"], rows["last_tid"] = beside["rank"], beside["comm"], beside["rank"] + PID
            for name, of in (("peer", "peer"), ("kind", "kind"), ("issued", "counter")):
                rows[name] = beside["row"][of]
            parts.append(rows)
        found = np.concatenate(parts)
        return found[np.argsort(found["rank"], kind="stable")]

    def waits(self) -> tuple[Rows, Rows]:
        """WAIT_REPORTED and INFLIGHT_REPORTED, sorted by rank, of what is not over.

        Who has sent a message is not blocked.
        """
        every = np.concatenate([np.zeros(0, RECORD_REPORTED), *self._open])
        every = every[np.argsort(every["rank"], kind="stable")]
        ranks, row = every["rank"].astype(np.int64), every["row"]
        since_ns, is_wait = self._clocks.here(row["t_issue_ns"].astype(np.int64), ranks), row["kind"] != Kind.SEND
        wait, flight = np.zeros(len(every), WAIT), np.zeros(len(every), INFLIGHT_ROW)
        for rows in (wait, flight):
            rows["comm_id"], rows["t_issue_ns"] = every["comm"], since_ns
            for name in ("counter", "kind", "peer", "comm_slot", "dtype", "count", "reduce_op", "epoch"):
                rows[name] = row[name]
            rows["version"], rows["timeout_ms"] = _ROW_VERSION, TIMEOUT_MS
        wait["tid"], wait["since_ns"], wait["how"] = ranks + PID, since_ns, WaitHow.CALL
        flight["issue_tid"], flight["ordinal"], flight["state"] = ranks + PID, row["ordinal"], IN_FLIGHT
        flight["wait_since_ns"], flight["wait_tid"] = np.where(is_wait, since_ns, 0), np.where(is_wait, ranks + PID, 0)
        flight["t_return_ns"] = since_ns
        waits, inflight = np.zeros(len(every), WAIT_REPORTED), np.zeros(len(every), INFLIGHT_REPORTED)
        for reported, rows in ((waits, wait), (inflight, flight)):
            reported["rank"], reported["comm"], reported["row"] = every["rank"], every["comm"], rows
        return waits[is_wait], inflight
