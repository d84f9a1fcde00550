"""What the agents of a simulated job report: the batches that real agents would send, node by node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.codes import SensorState, Status
from whichrank.model.kinds import Kind
from whichrank.model.sensors import C10D
from whichrank.model.telemetry import (
    COMM_ROW,
    PAIR_ROW,
    RANK_ROW,
    RECORD_REPORTED,
    VERSION,
    Batch,
    CommInfo,
    ProcessState,
)
from whichrank.stage.layout import Layout
from whichrank.testbed.sim.run import BEGIN_S, DP, PP, TP, WORLD, Iteration, Run

Ints = NDArray[np.int64]
Rows = np.ndarray[Any, Any]
ROLES: Final = {TP: "tp", DP: "dp", PP: "pp"}
DESCRIPTIONS: Final = ("mesh_tp", "mesh_dp", "mesh_pp", "default_pg")
NS: Final = 1_000_000_000


class Agents:
    """Of one job. Data-parallel groups take in the context-parallel ranks, as gradients are reduced over both.

    Args:
        run: The job.
        ranks_per_node: Consecutive ranks that share an agent.
        clock_s: By how much clocks of nodes differ, at most.
        seed: Of these.
    """

    def __init__(self, run: Run, ranks_per_node: int = 8, clock_s: float = 1000.0, seed: int = 0) -> None:
        self._run, self._layout, self._per_node = run, run.layout, ranks_per_node
        ranks = self._layout.ranks
        self._nodes = -(-ranks // ranks_per_node)
        rng = np.random.default_rng(seed)
        self._offset_ns = (rng.uniform(0, clock_s, self._nodes) * NS).astype(np.int64)
        self._sequence = 0
        groups = [_groups(self._layout, slot) for slot in range(4)]
        self._group = np.stack([group for group, _ in groups], axis=1)
        self._place = np.stack([place for _, place in groups], axis=1)
        self._comm_id = (np.arange(1, 5) << 32 | self._group).astype(np.uint64)
        self._done = np.zeros((ranks, 4), np.int64)  # collectives by rank and communicator
        self._sent: dict[tuple[int, int, int], int] = {}  # by pipeline rank, kind and peer

    def infos(self) -> list[CommInfo]:
        """All communicators."""
        found = []
        for slot, desc in enumerate(DESCRIPTIONS):
            if slot in ROLES and self._size(slot) == 1:
                continue
            order = np.lexsort((self._place[:, slot], self._group[:, slot]))
            firsts, counts = np.unique(self._group[:, slot], return_counts=True)
            for first, members in zip(firsts.tolist(), np.split(order, np.cumsum(counts)[:-1]), strict=True):
                comm_id = (slot + 1) << 32 | first
                found.append(CommInfo(comm_id, f"{slot}-{first}", desc, "gloo", len(members), 0, members.tolist()))
        return found

    def report(self, iterations: list[Iteration]) -> Iterator[Batch]:
        """What all agents send when these iterations are over, one batch each."""
        self._sequence += 1
        infos: dict[int, list[CommInfo]] = {}
        if self._sequence == 1:
            for info in self.infos():
                for node in {member // self._per_node for member in info.members}:
                    infos.setdefault(node, []).append(info)
        records = np.concatenate([rows for one in iterations for rows in self._records(one)])
        node_of = records["rank"] // self._per_node
        order = np.argsort(node_of, kind="stable")
        bounds = np.searchsorted(node_of[order], np.arange(self._nodes + 1))
        now_ns = int(max(float(s.max()) for s in iterations[-1].steps_s) * NS) + NS // 100
        for node in range(self._nodes):
            mine = records[order[bounds[node] : bounds[node + 1]]]
            offset = int(self._offset_ns[node])
            for name in ("t_issue_ns", "t_start_ns", "t_end_ns"):
                mine["row"][name] += np.where(mine["row"][name] > 0, offset, 0).astype(np.uint64)
            ranks = np.arange(node * self._per_node, min(self._layout.ranks, (node + 1) * self._per_node))
            yield Batch(
                version=VERSION, job="simulated", agent=f"node{node}:1", host=f"node{node}",
                sequence=self._sequence, sent_ns=now_ns + offset, sent_realtime_ns=now_ns, delay_bound_ns=1_000_000,
                node_ranks=len(ranks), ranks=self._rank_rows(ranks, now_ns + offset, offset).tobytes(),
                comms=self._comm_rows(ranks).tobytes(), pairs=self._pair_rows(ranks).tobytes(),
                records=mine.tobytes(), comm_info=infos.get(node, []),
            )  # fmt: skip

    def _size(self, slot: int) -> int:
        layout = self._layout
        return {TP: layout.tp, DP: layout.dp * layout.cp, PP: layout.pp, WORLD: layout.ranks}[slot]

    def _records(self, iteration: Iteration) -> Iterator[Rows]:
        """Rows of RECORD_REPORTED of all ranks: operations in order, backward passes, the step."""
        n = self._layout.per_stage
        for stage, ops in enumerate(iteration.ops):
            ranks = stage * n + np.arange(n)
            rows = np.zeros(ops.shape, RECORD_REPORTED)
            rows["rank"], rows["row"] = ranks, ops
            slots = iteration.slots[stage]
            rows["comm"] = self._comm_id[ranks][:, slots].T
            self._count(stage, ops, slots, ranks)
            spans = iteration.passes[stage]
            marks = np.zeros((2 * len(spans) + 1, n), RECORD_REPORTED)
            marks["rank"], row = ranks, marks["row"]
            row["comm_slot"], row["peer"], row["status"], row["kind"] = 0xFFFF, -1, Status.DONE, Kind.PASS
            row["t_issue_ns"][0:-1:2] = row["t_issue_ns"][1::2] = np.round(spans[..., 0] * NS)
            row["t_end_ns"][1::2] = np.round(spans[..., 1] * NS)
            step = row[-1]
            step["kind"], step["counter"] = Kind.STEP, iteration.number
            step["ordinal"] = iteration.ordinal[stage] + len(ops)
            step["t_issue_ns"] = step["t_end_ns"] = np.round(iteration.steps_s[stage] * NS)
            yield rows.reshape(-1)
            yield marks.reshape(-1)

    def _count(self, stage: int, ops: Rows, slots: Ints, ranks: Ints) -> None:
        for slot in np.unique(slots).tolist():
            if slot != PP:
                self._done[ranks, slot] = int(ops["counter"][slots == slot].max())
        for kind in (Kind.SEND, Kind.RECV):
            of_kind = ops[(ops["kind"][:, 0] == kind)]
            for peer in np.unique(of_kind["peer"]).tolist():
                counters = of_kind["counter"][of_kind["peer"][:, 0] == peer]
                self._sent[stage, int(kind), peer] = int(counters.max())

    def _rank_rows(self, ranks: Ints, now_ns: int, offset_ns: int) -> Rows:
        rows = np.zeros(len(ranks), RANK_ROW)
        rows["rank"], rows["local_rank"], rows["world_size"] = ranks, ranks % self._per_node, self._layout.ranks
        rows["pid"], rows["state"], rows["exit_status"] = ranks + 1000, ProcessState.SLEEPING, -1
        rows["read_ns"] = rows["heartbeat_ns"] = now_ns - 1_000_000
        rows["created_ns"] = rows["init_ns"] = int((BEGIN_S - 1) * NS) + offset_ns
        rows["ordinal"] = rows["head"] = self._run.ordinals[ranks // self._layout.per_stage]
        rows["sensor"][:, C10D.place] = SensorState.ON
        return rows

    def _comm_rows(self, ranks: Ints) -> Rows:
        slots = np.array([slot for slot in range(4) if slot not in ROLES or self._size(slot) > 1])
        rows = np.zeros((len(ranks), len(slots)), COMM_ROW)
        rows["rank"], rows["comm_id"] = ranks[:, None], self._comm_id[ranks][:, slots]
        rows["group_rank"], rows["slot"] = self._place[ranks][:, slots], slots
        rows["state"], rows["last_tid"] = 1, ranks[:, None] + 1000
        rows["issued"] = rows["done"] = rows["completed"] = self._done[ranks][:, slots]
        return rows.reshape(-1)

    def _pair_rows(self, ranks: Ints) -> Rows:
        stage_of = ranks // self._layout.per_stage
        parts = [np.zeros(0, PAIR_ROW)]
        for (stage, kind, peer), issued in self._sent.items():
            mine = ranks[stage_of == stage]
            rows = np.zeros(len(mine), PAIR_ROW)
            rows["rank"], rows["peer"], rows["kind"], rows["issued"] = mine, peer, kind, issued
            rows["comm_id"], rows["last_tid"] = self._comm_id[mine, PP], mine + 1000
            parts.append(rows)
        return np.concatenate(parts)


def _groups(layout: Layout, slot: int) -> tuple[Ints, Ints]:
    """The group of each rank and its place there, (R,) each."""
    ranks = np.arange(layout.ranks)
    if slot == WORLD:
        return np.zeros(layout.ranks, np.int64), ranks
    if slot == DP:  # over data and context
        place = ranks // layout.tp % (layout.cp * layout.dp)
        return ranks - place * layout.tp, place
    return layout.group(ROLES[slot]), layout.place(ROLES[slot])
