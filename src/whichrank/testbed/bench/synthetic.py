"""Telemetry of a 3D-parallel job of any size, made up: for scale, never as a proof of accuracy.

All ranks go through the same iteration in lockstep, ten thousand times faster than they could. In one iteration each
rank does its share of a pipelined forward pass (receive, tensor-parallel all-reduces, send, per microbatch), two
data-parallel all-reduces and one of the whole world. From some iteration on one rank may be missing in a
tensor-parallel operation; then everybody stands where a real job would: its tp peers inside that operation, the rest of
its pipeline in receives, everybody else in the data-parallel all-reduce that this pipeline never enters.

Everything is arrays over ranks; only agents and communicators are objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.codes import SensorState, Status, WaitHow
from whichrank.model.kinds import Kind
from whichrank.model.rows import INFLIGHT_ROW, RECORD, WAIT
from whichrank.model.sensors import C10D
from whichrank.model.telemetry import (
    COMM_ROW,
    INFLIGHT_REPORTED,
    PAIR_ROW,
    RANK_ROW,
    RECORD_REPORTED,
    VERSION,
    WAIT_REPORTED,
    Batch,
    CommInfo,
    ProcessState,
)

Ints = NDArray[np.int64]
TP, DP, PP, WORLD = range(4)
DESCRIPTIONS: Final = ("mesh_tp", "mesh_dp", "mesh_pp", "default_pg")
OP_NS: Final = 100_000
CYCLE: Final = 64
"""Ranks that wait for each other in a ring."""
EARLY: Final = 0.6
"""Share of an iteration after which ranks begin to wait for a slow one."""
FLOAT32: Final = 6
START_NS: Final = 1_000_000_000_000


@dataclass(frozen=True)
class Shape:
    """How a job is arranged; the tensor-parallel index runs fastest, then data, then pipeline.

    Attributes:
        tp: Ranks that share a layer.
        pp: Pipeline stages.
        dp: Replicas.
    """

    tp: int
    pp: int
    dp: int

    @property
    def ranks(self) -> int:
        """World size."""
        return self.tp * self.pp * self.dp

    @classmethod
    def of(cls, ranks: int) -> Shape:
        """A usual arrangement: nodes of eight share layers, up to sixteen pipeline stages.

        Args:
            ranks: A power of two, at least 8.
        """
        pp = max(1, min(16, ranks // 64))
        return cls(8, pp, ranks // (8 * pp))


@dataclass(frozen=True)
class Hang:
    """One rank that does not enter an operation.

    Attributes:
        rank: Which one.
        since_ns: When the first of its peers began to wait.
        where: `tp`: in the first tensor-parallel operation of an iteration. `world`: in the world's all-reduce at its
            end, in which then all others are. `cycle`: none is missing, but the first `CYCLE` ranks receive from each
            other in a ring, and all others are in the world's all-reduce.
    """

    rank: int
    since_ns: int
    where: str = "tp"


class SyntheticJob:
    """Makes batches of one job.

    Args:
        shape: Its arrangement.
        layers: Tensor-parallel operations per microbatch.
        microbatches: Per iteration.
        ranks_per_agent: Ranks of a node.
        slow: The rank that computes before the last operation of an iteration, in which all wait for it; -1: nobody
            waits, and optimizer steps are not reported.
        op_ns: From one operation of a rank to the next.
    """

    def __init__(
        self,
        shape: Shape,
        layers: int = 4,
        microbatches: int = 4,
        ranks_per_agent: int = 8,
        slow: int = -1,
        op_ns: int = OP_NS,
    ) -> None:
        self.shape = shape
        self.layers = layers
        self.microbatches = microbatches
        self.ranks_per_agent = ranks_per_agent
        self.slow = slow
        self.op_ns = op_ns
        rank = np.arange(shape.ranks)
        self.tp, self.dp, self.stage = rank % shape.tp, rank // shape.tp % shape.dp, rank // (shape.tp * shape.dp)
        group = np.stack(
            (rank // shape.tp, self.stage * shape.tp + self.tp, rank % (shape.tp * shape.dp), np.zeros_like(rank)),
            axis=1,
        )
        self.group_rank = np.stack((self.tp, self.dp, self.stage, rank), axis=1)
        self.comm_id = (np.arange(1, 5) << 32 | group).astype(np.uint64)
        self.program = [self._ops_of(position) for position in self._positions]
        self._sequence = 0

    # ---- the job ---------------------------------------------------------------------------------------------------

    @property
    def _positions(self) -> list[tuple[bool, bool]]:
        """(first, last) pipeline stage: what a rank does depends on nothing else."""
        return [(True, self.shape.pp == 1), (False, False), (False, True)]

    @property
    def _backend(self) -> str:
        """Where operations run on a device, waits of the host say nothing of slowness."""
        return "nccl" if self.slow < 0 else "gloo"

    @property
    def position(self) -> Ints:
        """For each rank its index in `program`."""
        last = (self.stage == self.shape.pp - 1) & (self.stage > 0)
        return np.where(self.stage == 0, 0, np.where(last, 2, 1))

    def _ops_of(self, position: tuple[bool, bool]) -> list[tuple[int, Kind, int]]:
        """Communicator, kind and elements of the operations of one iteration."""
        first, last = position
        ops: list[tuple[int, Kind, int]] = []
        for _ in range(self.microbatches):
            ops += [] if first else [(PP, Kind.RECV, 4096)]
            ops += [(TP, Kind.ALL_REDUCE, 65536)] * self.layers
            ops += [] if last else [(PP, Kind.SEND, 4096)]
        return [*ops, (DP, Kind.ALL_REDUCE, 1 << 20), (DP, Kind.ALL_REDUCE, 1 << 18), (WORLD, Kind.ALL_REDUCE, 1)]

    def per_iteration(self) -> Ints:
        """Collectives of one iteration by communicator."""
        return np.array([self.microbatches * self.layers, 2, 0, 1])

    def comm_infos(self) -> list[CommInfo]:
        """All communicators."""
        infos = []
        for slot, desc in enumerate(DESCRIPTIONS):
            ids, first, size = np.unique(self.comm_id[:, slot], return_index=True, return_counts=True)
            order = np.lexsort((self.group_rank[:, slot], self.comm_id[:, slot]))
            bounds = np.concatenate(([0], np.cumsum(size)))
            for at, comm_id in enumerate(ids.tolist()):
                members = order[bounds[at] : bounds[at + 1]].tolist()
                infos.append(CommInfo(comm_id, f"{slot}-{first[at]}", desc, self._backend, len(members), 0, members))
        return infos

    # ---- batches ---------------------------------------------------------------------------------------------------

    def batches(
        self, first: int, iterations: int, hang: Hang | None = None, with_comms: bool = False
    ) -> Iterator[Batch]:
        """What all agents say when `first + iterations` iterations are done, with the records of the last of them.

        Args:
            first: Iterations that were reported before.
            iterations: Iterations reported now.
            hang: Someone is missing in the iteration that follows.
            with_comms: Tell the communicators too.
        """
        self._sequence += 1
        infos = self.comm_infos() if with_comms else []
        of_agent: dict[int, list[CommInfo]] = {}
        for info in infos:
            for agent in {m // self.ranks_per_agent for m in info.members}:
                of_agent.setdefault(agent, []).append(info)
        done = first + iterations
        standing = Standing(self, done, hang) if hang else None
        now_ns = START_NS + done * len(self.program[0]) * self.op_ns
        if hang:
            now_ns = max(now_ns, hang.since_ns) + 5_000_000_000
        for agent in range(-(-self.shape.ranks // self.ranks_per_agent)):
            ranks = np.arange(agent * self.ranks_per_agent, min(self.shape.ranks, (agent + 1) * self.ranks_per_agent))
            waits, inflight = standing.rows(ranks) if standing else (b"", b"")
            yield Batch(
                version=VERSION,
                job="synthetic",
                agent=f"node{agent}:1",
                host=f"node{agent}",
                sequence=self._sequence,
                sent_ns=now_ns,
                sent_realtime_ns=now_ns,
                delay_bound_ns=1_000_000,
                node_ranks=len(ranks),
                ranks=self._rank_rows(ranks, done, now_ns).tobytes(),
                comms=self._comm_rows(ranks, done, standing).tobytes(),
                pairs=self._pair_rows(ranks, done, standing).tobytes(),
                inflight=inflight,
                waits=waits,
                records=self._records(ranks, first, iterations).tobytes(),
                comm_info=of_agent.get(agent, []),
            )

    def _rank_rows(self, ranks: Ints, done: int, now_ns: int) -> np.ndarray[Any, Any]:
        rows = np.zeros(len(ranks), RANK_ROW)
        rows["rank"], rows["local_rank"], rows["world_size"] = ranks, ranks % self.ranks_per_agent, self.shape.ranks
        rows["pid"] = ranks + 1000
        rows["state"] = ProcessState.SLEEPING
        rows["exit_status"] = -1
        rows["read_ns"] = rows["heartbeat_ns"] = now_ns - 1_000_000
        rows["created_ns"] = rows["init_ns"] = START_NS
        rows["ordinal"] = rows["head"] = done * np.array([len(ops) for ops in self.program])[self.position[ranks]]
        rows["sensor"][:, C10D.place] = SensorState.ON
        return rows

    def _comm_rows(self, ranks: Ints, done: int, standing: Standing | None) -> np.ndarray[Any, Any]:
        rows = np.zeros((len(ranks), 4), COMM_ROW)
        rows["rank"], rows["comm_id"], rows["group_rank"] = ranks[:, None], self.comm_id[ranks], self.group_rank[ranks]
        rows["slot"], rows["state"], rows["last_tid"] = np.arange(4), 1, ranks[:, None] + 1000
        rows["done"] = rows["completed"] = standing.done[ranks] if standing else done * self.per_iteration()
        rows["issued"] = standing.issued[ranks] if standing else rows["done"]
        return rows.reshape(-1)

    def _pair_rows(self, ranks: Ints, done: int, standing: Standing | None) -> np.ndarray[Any, Any]:
        """Each rank's sends to the next stage and receives from the one before."""
        stage = self.stage[ranks]
        rows = []
        for kind, step, has in ((Kind.SEND, 1, stage < self.shape.pp - 1), (Kind.RECV, -1, stage > 0)):
            reported = np.zeros(int(has.sum()), PAIR_ROW)
            reported["rank"], reported["peer"], reported["kind"] = ranks[has], stage[has] + step, kind
            reported["comm_id"], reported["last_tid"] = self.comm_id[ranks[has], PP], ranks[has] + 1000
            reported["issued"] = done * self.microbatches
            if standing:
                reported["issued"] = (standing.sent if kind == Kind.SEND else standing.received)[ranks[has]]
            rows.append(reported)
        return np.concatenate(rows)

    def _records(self, ranks: Ints, first: int, iterations: int) -> np.ndarray[Any, Any]:
        parts = []
        for position, ops in enumerate(self.program):
            mine = ranks[self.position[ranks] == position]
            if len(mine) and iterations:
                parts.append(self._records_of(mine, ops, first, iterations))
                parts.append(self._steps_of(mine, len(ops), first, iterations))
        return np.concatenate(parts) if parts else np.zeros(0, RECORD_REPORTED)

    def _records_of(
        self, ranks: Ints, ops: list[tuple[int, Kind, int]], first: int, iterations: int
    ) -> np.ndarray[Any, Any]:
        """Records of ranks with the same program: an array over ranks, iterations and operations."""
        slot, kind, count = (np.array(column) for column in zip(*ops, strict=True))
        place = np.zeros(len(ops), np.int64)  # which of its kind on its communicator, from 1
        per_iteration = np.zeros(len(ops), np.int64)
        for same in {(s, k) for s, k, _ in ops}:
            at = np.flatnonzero((slot == same[0]) & (kind == same[1]))
            place[at], per_iteration[at] = np.arange(1, len(at) + 1), len(at)
        iteration = np.arange(first, first + iterations)[:, None]
        rows = np.zeros((len(ranks), iterations, len(ops)), RECORD)
        rows["counter"] = iteration * per_iteration + place
        rows["ordinal"] = iteration * len(ops) + np.arange(1, len(ops) + 1)
        rows["seq"] = rows["ordinal"]
        rows["t_issue_ns"] = rows["t_start_ns"] = START_NS + rows["ordinal"].astype(np.int64) * self.op_ns
        rows["t_end_ns"] = rows["t_issue_ns"] + self.op_ns // 2
        if self.slow >= 0:
            self._wait(ranks, rows, iteration)
        rows["kind"], rows["count"], rows["dtype"] = kind, count, FLOAT32
        rows["comm_slot"], rows["status"], rows["peer"] = slot, Status.DONE, -1
        step = np.where(kind == Kind.SEND, 1, np.where(kind == Kind.RECV, -1, 0))
        rows["peer"] = np.where(step != 0, self.stage[ranks][:, None, None] + step, -1)
        reported = np.zeros(rows.shape, RECORD_REPORTED)
        reported["rank"] = ranks[:, None, None]
        reported["comm"] = self.comm_id[ranks][:, slot][:, None, :]
        reported["row"] = rows
        return reported.reshape(-1)

    def _wait(self, ranks: Ints, rows: np.ndarray[Any, Any], iteration: Ints) -> None:
        """Operations are short, but for the last one: it begins early for all but the slow rank."""
        each = len(self.program[0]) * self.op_ns
        count = rows.shape[2]
        place = np.arange(1, count + 1)
        begun_ns = START_NS + iteration * each + place * int(EARLY * each) // count
        ends_ns = begun_ns + each // (20 * count)
        ends_ns[:, -1] = START_NS + iteration[:, 0] * each + int(0.99 * each)
        rows["t_issue_ns"], rows["t_end_ns"] = begun_ns, ends_ns
        rows["t_issue_ns"][ranks == self.slow, :, -1] = ends_ns[:, -1] - each // 50
        rows["t_start_ns"] = rows["t_issue_ns"]
        rows["wait_us"] = (rows["t_end_ns"] - rows["t_issue_ns"]) // 1000

    def _steps_of(self, ranks: Ints, ops: int, first: int, iterations: int) -> np.ndarray[Any, Any]:
        """Optimizer steps at the ends of iterations."""
        if self.slow < 0:
            return np.zeros(0, RECORD_REPORTED)
        iteration = np.arange(first + 1, first + iterations + 1)
        reported = np.zeros((len(ranks), iterations), RECORD_REPORTED)
        reported["rank"] = ranks[:, None]
        row = reported["row"]
        row["kind"], row["status"], row["peer"] = Kind.STEP, Status.DONE, -1
        row["counter"], row["ordinal"] = iteration, iteration * ops
        row["t_issue_ns"] = row["t_end_ns"] = START_NS + iteration * len(self.program[0]) * self.op_ns
        return reported.reshape(-1)


class Standing:
    """Where every rank stands once one of them is missing.

    Attributes:
        issued: By rank and communicator.
        done: By rank and communicator.
        waits_in: Kind of the operation that each rank is blocked in, 0 none.
        sent: Messages to the next stage that each rank has issued.
        received: Receives from the stage before.
    """

    def __init__(self, job: SyntheticJob, iteration: int, hang: Hang) -> None:
        self._job, self._since_ns = job, hang.since_ns
        missing, ranks = hang.rank, job.shape.ranks
        every = np.arange(ranks)
        self.done = np.tile(iteration * job.per_iteration(), (ranks, 1))
        messages = iteration * job.microbatches
        slot = np.full(ranks, DP if hang.where == "tp" else WORLD)
        kind = np.full(ranks, int(Kind.ALL_REDUCE))
        self._peer = np.full(ranks, -1)
        self.sent = np.full(ranks, messages + job.microbatches)
        self.received = self.sent.copy()
        if hang.where == "cycle":
            missing = -1
            kind[:CYCLE], self._peer[:CYCLE] = Kind.RECV, (every[:CYCLE] + 1) % min(CYCLE, ranks)
        if hang.where != "tp":
            self.done[:, :3] += job.per_iteration()[:3]
        else:
            pipeline = job.dp == job.dp[missing]
            behind = job.stage - job.stage[missing]
            self.done[~pipeline, TP] += job.per_iteration()[TP]
            slot[pipeline] = np.where(behind[pipeline] == 0, TP, PP)
            kind[pipeline & (behind > 0)] = Kind.RECV
            kind[pipeline & (behind < 0)] = Kind.SEND
            # A stage in front is in the send that the next one, which is a microbatch behind it, does not receive yet.
            in_front = np.maximum(-behind[pipeline], 0)
            self.received[pipeline] = messages + 1 + in_front
            self.sent[pipeline] = messages + np.where(in_front > 0, 1 + in_front, 0)
        self._slot = slot
        self.issued = self.done.copy()
        self.issued[every, slot] += (slot != PP) & (every != missing) & (kind == Kind.ALL_REDUCE)
        in_pipeline = slot == PP
        self._peer[in_pipeline] = (job.stage + np.where(kind == Kind.SEND, 1, -1))[in_pipeline]
        self.waits_in = np.where(every == missing, 0, kind)
        collective = self.issued[every, slot]
        self._counter = np.where(kind == Kind.SEND, self.sent, np.where(kind == Kind.RECV, self.received, collective))
        self._counter[~in_pipeline & (kind == Kind.RECV)] = 1

    def rows(self, ranks: Ints) -> tuple[bytes, bytes]:
        """Waits and operations in flight of these ranks, as a batch carries them."""
        job = self._job
        ranks = ranks[self.waits_in[ranks] > 0]
        slot, kind = self._slot[ranks], self.waits_in[ranks]
        comm = job.comm_id[ranks, slot]
        since_ns = self._since_ns + np.where(slot == TP, 0, 1_000_000)  # its own peers come first
        peer = self._peer[ranks]
        common = {
            "comm_id": comm, "counter": self._counter[ranks], "kind": kind, "peer": peer, "comm_slot": slot,
            "dtype": FLOAT32, "count": np.where(slot == PP, 4096, 65536), "t_issue_ns": since_ns,
        }  # fmt: skip
        wait = np.zeros(len(ranks), WAIT)
        flight = np.zeros(len(ranks), INFLIGHT_ROW)
        for name, value in common.items():
            wait[name] = value
            flight[name] = value
        wait["tid"], wait["since_ns"], wait["how"] = ranks + 1000, since_ns, WaitHow.CALL
        flight["issue_tid"] = ranks + 1000
        waits, inflight = np.zeros(len(ranks), WAIT_REPORTED), np.zeros(len(ranks), INFLIGHT_REPORTED)
        for reported, row in ((waits, wait), (inflight, flight)):
            reported["rank"], reported["comm"], reported["row"] = ranks, comm, row
        return waits.tobytes(), inflight.tobytes()
