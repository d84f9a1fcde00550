"""Computes when ranks do what they do: one item of one pipeline rank at a time, for all its ranks together.

A collective ends for all of its group when the last has entered it and the transfer is done, a receive once its message
was sent and has come; a send keeps nobody. Own times vary by chance (log-normal), and pauses come now and then to any
rank, as a garbage collector's do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.codes import Status
from whichrank.model.kinds import Kind
from whichrank.model.rows import RECORD
from whichrank.stage.layout import Layout
from whichrank.stage.schedules import Schedule
from whichrank.testbed.sim.program import Do, Item, program_of

Floats = NDArray[np.float64]
Rows = np.ndarray[Any, Any]
TP, DP, PP, WORLD = range(4)
"""Slots of communicators in a ring."""
BEGIN_S: Final = 1000.0
"""On the clocks of all nodes, but for their offsets."""
FLOAT32: Final = 6
Slower = Callable[[int, Item, int, Floats], Floats]
"""Changes own times of the ranks of a pipeline rank: iteration, item, pipeline rank, seconds (n,)."""
LongerLink = Callable[[int, Item, int, Floats], Floats]
"""The same of what a message to them takes."""


@dataclass(frozen=True)
class Times:
    """What things take, seconds.

    Attributes:
        forward_s: Of one layer; backward takes twice as long.
        optimizer_s: Behind the reduction of gradients.
        share_s: The transfer of an all-reduce within a tensor-parallel group.
        message_s: Of a message to a neighbour.
        reduce_s: Of the reduction of gradients.
        spread: Of own times: the standard deviation of their logarithm.
        pause_s: What a pause takes.
        pauses: Per rank and iteration.
    """

    forward_s: float = 0.010
    optimizer_s: float = 0.005
    share_s: float = 0.0005
    message_s: float = 0.001
    reduce_s: float = 0.010
    spread: float = 0.02
    pause_s: float = 0.02
    pauses: float = 0.01


@dataclass(frozen=True)
class Iteration:
    """What the ranks of each pipeline rank have done in one.

    Attributes:
        number: From 1.
        ops: Records of operations, (items, n) for each pipeline rank.
        slots: The slot of each of these operations, (items,) for each.
        passes: Begin and end of backward passes, (passes, n, 2) seconds for each.
        steps_s: When it was over, (n,) for each.
        ordinal: Operations of each of these ranks before it.
    """

    number: int
    ops: list[Rows]
    slots: list[NDArray[np.int64]]
    passes: list[Floats]
    steps_s: list[Floats]
    ordinal: list[int]


class Run:
    """Of one job.

    Args:
        layout: Of its ranks.
        schedule: Of its pipelines.
        layers: Of each stage.
        times: What things take.
        seed: Of chance.
        slower: Makes a rank compute longer.
        longer: Makes messages take longer.
    """

    def __init__(
        self, layout: Layout, schedule: Schedule, layers: int = 2, times: Times = Times(), seed: int = 0,
        slower: Slower | None = None, longer: LongerLink | None = None,
    ) -> None:  # fmt: skip
        self.layout, self.times = layout, times
        self._rng = np.random.default_rng(seed)
        self._slower, self._longer = slower, longer
        self.programs = [
            program_of(schedule, rank, layers, shares=layout.tp > 1, reduces=layout.dp * layout.cp > 1)
            for rank in range(layout.pp)
        ]
        self._now = np.full((layout.pp, layout.per_stage), BEGIN_S)
        self._counters: list[dict[tuple[int, int, int], int]] = [{} for _ in range(layout.pp)]
        self._ordinal = [0] * layout.pp
        self.done = 0

    @property
    def ordinals(self) -> NDArray[np.int64]:
        """Operations so far of each rank of a pipeline rank, (pp,)."""
        return np.array(self._ordinal, np.int64)

    def iterate(self) -> Iteration:
        """The next iteration of all ranks."""
        size, n = self.layout.pp, self.layout.per_stage
        at, sent = [0] * size, dict[tuple[int, tuple[int, int, int]], Floats]()
        ops: list[list[Rows]] = [[] for _ in range(size)]
        slots: list[list[int]] = [[] for _ in range(size)]
        passes: list[list[Floats]] = [[] for _ in range(size)]
        before = list(self._ordinal)
        self._pause()
        moved = True
        while moved:
            moved = False
            for rank, program in enumerate(self.programs):
                while at[rank] < len(program):
                    item = program[at[rank]]
                    if item.do is Do.RECEIVE and (rank, item.key) not in sent:
                        break
                    self._do(rank, item, sent, ops[rank], slots[rank], passes[rank])
                    at[rank] += 1
                    moved = True
        assert at == [len(program) for program in self.programs], "the schedule waits for itself"
        self.done += 1
        steps_s = [now.copy() for now in self._now]
        made = [np.stack(rows) if rows else np.zeros((0, n), RECORD) for rows in ops]
        spans = [np.stack(one).reshape(-1, 2, n).transpose(0, 2, 1) if one else np.zeros((0, n, 2)) for one in passes]
        return Iteration(self.done, made, [np.array(one, np.int64) for one in slots], spans, steps_s, before)

    def _pause(self) -> None:
        pauses = self._rng.random(self._now.shape) < self.times.pauses
        self._now += np.where(pauses, self.times.pause_s, 0.0)

    def _do(
        self, rank: int, item: Item, sent: dict[tuple[int, tuple[int, int, int]], Floats], ops: list[Rows],
        slots: list[int], passes: list[Floats],
    ) -> None:  # fmt: skip
        now, times = self._now[rank], self.times
        if item.do is Do.OWN:
            usual_s = times.optimizer_s if item.phase == 2 else times.forward_s * (2 if item.phase else 1)
            own_s = usual_s * np.exp(self._rng.normal(0.0, times.spread, len(now)))
            self._now[rank] = now + (self._slower(self.done, item, rank, own_s) if self._slower else own_s)
        elif item.do is Do.SHARE:
            self._collective(rank, TP, "tp", 1 << 16, times.share_s, ops, slots)
        elif item.do is Do.REDUCE:
            self._collective(rank, DP, "dp", 1 << 20, times.reduce_s, ops, slots)
        elif item.do is Do.SEND:
            took_s = np.full(len(now), times.message_s)
            took_s = self._longer(self.done, item, rank, took_s) if self._longer else took_s
            sent[item.peer, item.key] = now + took_s
            self._note(rank, PP, Kind.SEND, item.peer, 1 << 12, now, now + took_s, now, ops, slots)
        elif item.do is Do.RECEIVE:
            end_s = np.maximum(now, sent.pop((rank, item.key)))
            self._note(rank, PP, Kind.RECV, item.peer, 1 << 12, now, end_s, end_s, ops, slots)
            self._now[rank] = end_s
        elif item.do in (Do.BEGIN, Do.END):
            passes.append(now.copy())

    def _collective(
        self, rank: int, slot: int, role: str, elements: int, transfer_s: float, ops: list[Rows], slots: list[int]
    ) -> None:
        layout, now = self.layout, self._now[rank]
        shape = (layout.dp * layout.cp, layout.tp)
        entered = now.reshape(shape).max(axis=1 if role == "tp" else 0, keepdims=True)
        end_s = (np.broadcast_to(entered, shape) + transfer_s).reshape(-1).copy()
        self._note(rank, slot, Kind.ALL_REDUCE, -1, elements, now, end_s, end_s, ops, slots)
        self._now[rank] = end_s

    def _note(
        self, rank: int, slot: int, kind: Kind, peer: int, elements: int, issue_s: Floats, end_s: Floats,
        until_s: Floats, ops: list[Rows], slots: list[int],
    ) -> None:  # fmt: skip
        """A record of each of these ranks, of an operation in which they were blocked until then."""
        key = (slot, int(kind) if kind >= Kind.SEND else 0, peer)
        counter = self._counters[rank][key] = self._counters[rank].get(key, 0) + 1
        self._ordinal[rank] += 1
        rows = np.zeros(len(issue_s), RECORD)
        rows["t_issue_ns"] = rows["t_start_ns"] = np.round(issue_s * 1e9)
        rows["t_end_ns"] = np.round(end_s * 1e9)
        rows["wait_us"] = (until_s - issue_s) * 1e6
        rows["count"], rows["counter"], rows["ordinal"] = elements, counter, self._ordinal[rank]
        rows["seq"], rows["peer"], rows["comm_slot"] = self._ordinal[rank], peer, slot
        rows["kind"], rows["dtype"], rows["status"] = kind, FLOAT32, Status.DONE
        ops.append(rows)
        slots.append(slot)
