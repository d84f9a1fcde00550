"""Batches out of plain data: what an agent says of its ranks."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.model.codes import Status, WaitHow
from whichrank.model.incident import Incident
from whichrank.model.kinds import Kind
from whichrank.model.telemetry import (
    COMM_ROW,
    INFLIGHT_REPORTED,
    RANK_ROW,
    RECORD_REPORTED,
    VERSION,
    WAIT_REPORTED,
    Batch,
    CommInfo,
    Event,
    ProcessState,
    Stack,
)

S = 1_000_000_000
T0 = 5_000 * S
CONFIG = AnalyzerConfig(hang_timeout_s=20.0, notice_min_s=5.0)


def comm_info(comm_id: int, members: list[int], desc: str = "mesh_tp", name: str = "", **more: Any) -> CommInfo:
    return CommInfo(comm_id, name or f"g{comm_id}", desc, "gloo", more.pop("size", len(members)), 0, members, **more)


WORLD = comm_info(7, [0, 1, 2, 3], "default_pg")


class Node:
    """What one agent says of its node. Times are seconds since T0 on the node's clock."""

    def __init__(self, agent: str, ranks: list[int], world: int, delay_s: float = 0.0, clock_s: float = 0.0) -> None:
        self.agent, self.ranks, self.world, self.delay_s, self.clock_s = agent, ranks, world, delay_s, clock_s
        self.sequence = 0
        self.comms: dict[int, CommInfo] = {}
        self.row: dict[int, dict[str, Any]] = {r: {} for r in ranks}
        self.issued: dict[tuple[int, int], tuple[int, int]] = {}
        self.waiting: dict[int, dict[str, Any]] = {}
        self.stacks: dict[int, list[str]] = {}
        self.computing: set[int] = set()
        self._reported: set[int] = set()

    def ns(self, at_s: float) -> int:
        return T0 + int((at_s + self.clock_s) * S)

    def comm(self, *infos: CommInfo) -> Node:
        for info in infos:
            self.comms[info.comm_id] = info
            for rank in set(info.members) & set(self.ranks):
                self.issued.setdefault((rank, info.comm_id), (0, 0))
        return self

    def did(self, rank: int, comm_id: int, issued: int, done: int | None = None) -> Node:
        self.issued[rank, comm_id] = issued, issued if done is None else done
        return self

    def waits(
        self, rank: int, comm_id: int, counter: int, since_s: float, kind: Kind = Kind.ALL_REDUCE, **more: Any
    ) -> Node:
        self.did(rank, comm_id, counter, counter - 1)
        self.waiting[rank] = {"comm": comm_id, "counter": counter, "kind": kind, "since_s": since_s, **more}
        return self

    def moves_on(self, rank: int) -> Node:
        self.waiting.pop(rank, None)
        return self

    def is_(self, rank: int, state: ProcessState, **row: Any) -> Node:
        self.row[rank].update(state=state, **row)
        return self

    def batch(
        self, at_s: float, records: np.ndarray[Any, Any] | None = None, events: list[Event] | None = None, **more: Any
    ) -> Batch:
        """The next batch, made at this time."""
        self.sequence += 1
        new = [info for info in self.comms.values() if info.comm_id not in self._reported]
        self._reported |= self.comms.keys()
        polled = [
            Event("stacks", rank, 100 + rank, self.ns(at_s), stacks=[Stack("MainThread", True, False, frames)])
            for rank, frames in self.stacks.items()
        ]
        batch = Batch(
            version=VERSION, job="job", agent=self.agent, host=self.agent.split(":")[0], sequence=self.sequence,
            sent_ns=self.ns(at_s), sent_realtime_ns=self.ns(at_s), delay_bound_ns=int(self.delay_s * S),
            node_ranks=len(self.ranks),
            ranks=self._rank_rows(at_s).tobytes(), comms=self._comm_rows().tobytes(), waits=self._wait_rows().tobytes(),
            inflight=self._flights().tobytes(), records=b"" if records is None else records.tobytes(),
            comm_info=new, events=(events or []) + polled,
        )  # fmt: skip
        return msgspec.structs.replace(batch, **more)

    def _rank_rows(self, at_s: float) -> np.ndarray[Any, Any]:
        rows = np.zeros(len(self.ranks), RANK_ROW)
        for row, rank in zip(rows, self.ranks, strict=True):
            row["rank"], row["pid"], row["world_size"] = rank, 100 + rank, self.world
            row["state"], row["exit_status"], row["read_ns"] = ProcessState.SLEEPING, -1, self.ns(at_s)
            row["init_ns"], row["cpu_ns"] = T0, self.ns(at_s) if rank in self.computing else 0
            for name, value in self.row[rank].items():
                row[name] = value
        return rows

    def _comm_rows(self) -> np.ndarray[Any, Any]:
        rows = np.zeros(len(self.issued), COMM_ROW)
        for row, ((rank, comm_id), (issued, done)) in zip(rows, self.issued.items(), strict=True):
            row["rank"], row["comm_id"], row["issued"], row["done"] = rank, comm_id, issued, done
            row["group_rank"], row["state"], row["last_tid"] = self.comms[comm_id].members.index(rank), 1, 100 + rank
        return rows

    def _wait_rows(self) -> np.ndarray[Any, Any]:
        rows = np.zeros(len(self.waiting), WAIT_REPORTED)
        for reported, (rank, wait) in zip(rows, self.waiting.items(), strict=True):
            reported["rank"], reported["comm"] = rank, wait["comm"]
            row = reported["row"]
            row["tid"], row["comm_id"], row["how"], row["peer"] = (
                100 + rank,
                wait["comm"],
                WaitHow.CALL,
                wait.get("peer", -1),
            )
            row["counter"], row["kind"], row["count"], row["dtype"] = wait["counter"], wait["kind"], 1024, 6
            row["since_ns"] = row["t_issue_ns"] = self.ns(wait["since_s"])
            row["timeout_ms"] = wait.get("timeout_ms", 0)
        return rows

    def _flights(self) -> np.ndarray[Any, Any]:
        rows = np.zeros(len(self.waiting), INFLIGHT_REPORTED)
        for reported, (rank, wait) in zip(rows, self.waiting.items(), strict=True):
            reported["rank"], reported["comm"] = rank, wait["comm"]
            row = reported["row"]
            row["counter"], row["kind"], row["dtype"], row["peer"] = (
                wait["counter"],
                wait["kind"],
                6,
                wait.get("peer", -1),
            )
            row["count"], row["reduce_op"] = wait.get("count", 1024), wait.get("reduce_op", 0)
            row["t_issue_ns"], row["issue_tid"] = self.ns(wait["since_s"]), 100 + rank
            row["ordinal"], row["flags"] = wait.get("ordinal", 0), wait.get("flags", 0)
        return rows


def hung(*missing: int, since_s: float = 1.0) -> Node:
    """All but these wait in a round."""
    n = Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    for rank in range(4):
        n.did(rank, 7, 8) if rank in missing else n.waits(rank, 7, 9, since_s=since_s)
    return n


def last_of(said: list[Incident]) -> dict[str, tuple[str, str, tuple[int, ...]]]:
    """The last word on each incident: severity, status, names."""
    return {i.id: (i.severity, i.status, tuple(c.rank for c in i.culprits)) for i in said}


def records(rank: int, comm_id: int, first: int, count: int, **more: Any) -> np.ndarray[Any, Any]:
    """Completed all-reduces of one rank, by counter; `ordinal` (the first) equals the counter unless given."""
    rows = np.zeros(count, RECORD_REPORTED)
    rows["rank"], rows["comm"] = rank, comm_id
    row = rows["row"]
    row["counter"] = np.arange(first, first + count)
    row["ordinal"] = row["counter"] if "ordinal" not in more else np.arange(more["ordinal"], more["ordinal"] + count)
    row["kind"], row["count"], row["dtype"], row["peer"], row["status"] = Kind.ALL_REDUCE, 1024, 6, -1, Status.DONE
    row["t_issue_ns"] = row["t_start_ns"] = row["t_end_ns"] = T0 + S
    for name, value in more.items():
        if name != "ordinal":
            row[name] = value
    return rows


def watch(analyzer: Analyzer, *nodes: Node, first_s: float, last_s: float, every_s: float = 0.5) -> list[Incident]:
    """Let the nodes report and the analyzer examine, from one time to another, on a clock without an offset."""
    said: list[Incident] = []
    at_s = first_s
    while at_s <= last_s:
        for node in nodes:
            analyzer.feed(node.batch(at_s), T0 / S + at_s)
        for tick in (0.05, 0.3):
            said += analyzer.tick(T0 / S + at_s + tick)
        at_s += every_s
    return said


def analyzer() -> Analyzer:
    return Analyzer(CONFIG, "job", 0.0)
