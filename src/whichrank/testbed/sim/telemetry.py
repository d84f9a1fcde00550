"""What the agents of a simulated job report: the batches that real agents would send, node by node.

A batch is of one moment. Operations that are over by then are records; those that are not are in flight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.codes import Status
from whichrank.model.kinds import Kind
from whichrank.model.telemetry import RECORD_REPORTED, VERSION, Batch, CommInfo, Event, Probe
from whichrank.testbed.sim.clocks import BEGIN_S, NS, Clocks
from whichrank.testbed.sim.communicators import Communicators
from whichrank.testbed.sim.connections import Connections, address
from whichrank.testbed.sim.run import Iteration, Run
from whichrank.testbed.sim.states import PID, Process, States

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = np.ndarray[Any, Any]
NOT_OVER: Final = 0
"""Status of what no agent has a record of yet."""
NO_COMMUNICATOR: Final = 0xFFFF
"""The slot of what is no operation."""
PROBES: Final = 16
"""Connections that an agent tries to an address."""
ANSWER_NS: Final = 200_000
"""Until the first one is answered."""
_TIMES: Final = ("t_issue_ns", "t_start_ns", "t_end_ns")


class Agents:
    """Of one job.

    Args:
        run: The job.
        per_node: Consecutive ranks that share a node, with one agent.
        apart_s: By how much clocks of nodes differ, at most.
        drift: By how much their speeds do, at most: 5e-5 is 50 ppm.
        seed: Of these.
        backend: Where operations run: on the host with `gloo`, where waits are seen; on devices with `nccl`.
    """

    def __init__(
        self, run: Run, per_node: int = 8, apart_s: float = 1000.0, drift: float = 2e-5, seed: int = 0,
        backend: str = "gloo",
    ) -> None:  # fmt: skip
        self._layout, self._per_node, self._sequence = run.layout, per_node, 0
        ranks = np.arange(run.layout.ranks)
        self._nodes = -(-run.layout.ranks // per_node)
        self._comms = Communicators(run.layout, backend)
        self._clocks = Clocks(ranks // per_node, apart_s, drift, seed)
        self._states = States(self._comms, self._clocks, per_node)
        self._connections = Connections(run.layout.ranks, per_node)
        self._lost_s: dict[int, float] = {}
        self._silent: set[int] = set()
        self._events: dict[int, list[Event]] = {}
        self._infos: dict[int, list[CommInfo]] = {}
        for info in self._comms.infos():
            short = info.shortened()
            for node in {member // per_node for member in info.members}:
                self._infos.setdefault(node, []).append(short)

    def change(self, rank: int, process: Process) -> None:
        """From now on the process of this rank is like this."""
        self._states.processes[rank] = process
        if process.ended_s:
            at_ns = int(self._clocks.here(np.array([int(process.ended_s * NS)]), np.array([rank]))[0])
            event = Event("exit", rank, rank + PID, at_ns, "", process.status)
            self._events.setdefault(rank // self._per_node, []).append(event)

    def count_messages(self, ranks: Ints, sent: Ints, received: Ints) -> None:
        """What the frames of these ranks count in the operation in which they are, (n,) each."""
        self._states.count_messages(ranks, sent, received)

    def silence(self, node: int) -> None:
        """From now on the agent of this node reports nothing."""
        self._silent.add(node)

    def lose(self, node: int, at_s: float) -> None:
        """From then on nobody hears of this node, and its kernel answers nobody."""
        self._lost_s[node] = at_s
        self.silence(node)

    def probe(self, node: int, addresses: Sequence[str], at_s: float) -> None:
        """The agent of this node probes addresses, and says in its next batch what came of it."""
        lost = {address(other) for other in self._lost_s}
        at_ns = int(self._clocks.here(np.array([int(at_s * NS)]), np.array([node * self._per_node]))[0])
        for target in addresses:
            probe = Probe(target, PROBES, 0, -1) if target in lost else Probe(target, PROBES, PROBES, ANSWER_NS)
            self._events.setdefault(node, []).append(Event("probe", -1, 0, at_ns, probe=probe))

    def report(self, iterations: Sequence[Iteration], at_s: float | None = None) -> Iterator[Batch]:
        """What all agents send, one batch each, but for those that are silent.

        Args:
            iterations: All that is over, or hangs, since they reported last.
            at_s: When, by the true clock; by default when the latest of these was over.
        """
        self._sequence += 1
        if at_s is None:
            at_s = max(float(one[np.isfinite(one)].max(initial=BEGIN_S)) for one in iterations[-1].steps_s) + 0.01
        at_ns = int(at_s * NS)
        records = [self._records(stage, iterations) for stage in range(self._layout.pp)]
        states, bounds = self._states, np.arange(self._nodes + 1) * self._per_node
        by_rank = [states.rank_rows(at_ns), states.comm_rows().reshape(-1), states.pair_rows(), *states.waits()]
        connections = self._connections.rows(at_ns, self._lost_s)
        self._clocks.set_here(connections, connections["rank"], ("read_ns",))
        by_rank += [connections, states.rate_rows()]
        cuts = [np.searchsorted(rows["rank"], bounds).tolist() for rows in by_rank]
        here_ns = self._clocks.here(np.full(self._nodes, at_ns), bounds[:-1]).tolist()
        for node in range(self._nodes):
            if node in self._silent:
                continue
            ranks, comms, pairs, waits, inflight, ends, rates = (
                rows[cut[node] : cut[node + 1]].tobytes() for rows, cut in zip(by_rank, cuts, strict=True)
            )
            yield Batch(
                version=VERSION, job="simulated", agent=f"node{node}:1", host=f"node{node}",
                sequence=self._sequence, sent_ns=here_ns[node], sent_realtime_ns=at_ns, delay_bound_ns=1_000_000,
                node_ranks=cuts[0][node + 1] - cuts[0][node], ranks=ranks, comms=comms, pairs=pairs, waits=waits,
                inflight=inflight, records=self._records_of(node, records), connections=ends,
                rates=rates,
                comm_info=self._infos.pop(node, []), events=self._events.pop(node, []),
            )  # fmt: skip

    def _records(self, stage: int, iterations: Sequence[Iteration]) -> list[Rows]:
        """Of a pipeline rank: RECORD_REPORTED (n, k) for each iteration, operations, passes, step."""
        n = self._layout.per_stage
        ranks, found = stage * n + np.arange(n), list[Rows]()
        for iteration in iterations:
            ops, spans = iteration.ops[stage], iteration.passes[stage]
            rows = np.zeros((n, ops.shape[1] + 2 * spans.shape[1] + 1), RECORD_REPORTED)
            row, of_ops = rows["row"], rows[:, : ops.shape[1]]
            rows["rank"], of_ops["row"] = ranks[:, None], ops
            of_ops["comm"] = self._comms.ids[ranks][:, ops["comm_slot"][0]]
            self._states.count(ranks, ops)
            _mark(row[:, ops.shape[1] :], iteration, stage)
            if not iteration.is_whole:
                is_begin = np.zeros(rows.shape[1], np.bool_)
                is_begin[ops.shape[1] : -1 : 2] = True
                has_come = np.where(is_begin, row["t_issue_ns"] > 0, row["t_end_ns"] > 0)
                is_open = (row["t_issue_ns"] > 0) & ~has_come & (row["kind"] < Kind.STEP)
                self._states.stand_in(rows[is_open])
                row["status"][~has_come] = NOT_OVER
            self._clocks.set_here(row, ranks, _TIMES)
            found.append(rows)
        return found

    def _records_of(self, node: int, records: list[list[Rows]]) -> bytes:
        first, last = node * self._per_node, min(self._layout.ranks, (node + 1) * self._per_node)
        n, parts = self._layout.per_stage, list[bytes]()
        for stage in range(first // n, (last - 1) // n + 1):
            for rows in records[stage]:
                mine = rows[max(first - stage * n, 0) : last - stage * n].reshape(-1)
                is_over = mine["row"]["status"] != NOT_OVER
                parts.append((mine if is_over.all() else mine[is_over]).tobytes())
        return b"".join(parts)


def _mark(marks: Rows, iteration: Iteration, stage: int) -> None:
    """Fill records of the backward passes and the step of an iteration, (n, 2 * passes + 1) of RECORD."""
    spans, ops = iteration.passes[stage], iteration.ops[stage]
    marks["comm_slot"], marks["peer"], marks["status"], marks["kind"] = NO_COMMUNICATOR, -1, Status.DONE, Kind.PASS
    marks["t_issue_ns"][:, 0:-1:2] = marks["t_issue_ns"][:, 1::2] = _ns(spans[..., 0])
    marks["t_end_ns"][:, 1::2] = _ns(spans[..., 1])
    before = int(ops["ordinal"][0, 0]) - 1 if ops.shape[1] else 0
    places = iteration.passes_at[stage].reshape(-1)
    marks["ordinal"][:, :-1] = before + places
    step = marks[:, -1]
    step["kind"], step["counter"], step["ordinal"] = Kind.STEP, iteration.number, before + ops.shape[1]
    step["t_issue_ns"] = step["t_end_ns"] = _ns(iteration.steps_s[stage])


def _ns(seconds: Floats) -> Ints:
    """Nanoseconds; 0 of what never comes."""
    return np.round(np.where(np.isfinite(seconds), seconds, 0.0) * NS).astype(np.int64)
