"""Computes when ranks do what they do: one item of one pipeline rank at a time, for all its ranks together.

A collective ends for all of its group when the last has entered it and the transfer is done, a receive once its message
was sent and has come; a send keeps nobody. Own times vary by chance as in the lab: their logarithm is mostly close to
the usual and now and then far away (`noise`); pauses come to any rank, as a garbage collector's do. A rank that hangs
takes for ever: its clock is infinite from then on, and so is that of everyone who waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.codes import Status
from whichrank.model.rows import RECORD
from whichrank.stage.layout import Layout
from whichrank.stage.schedules import Schedule
from whichrank.testbed.sim.clocks import BEGIN_S
from whichrank.testbed.sim.noise import SPREAD, vary
from whichrank.testbed.sim.program import (
    BACKWARD,
    CP,
    DP,
    EP,
    HAS_RECORD,
    OPTIMIZER,
    PP,
    TP,
    WORLD,
    Do,
    Item,
    program_of,
)

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = np.ndarray[Any, Any]
FLOAT32: Final = 6
EPOCH: Final = 1
"""How often the slot of a communicator was used."""
ELEMENTS: Final = {TP: 1 << 16, DP: 1 << 20, PP: 1 << 12, WORLD: 1, CP: 1 << 14, EP: 1 << 14}
"""Of an operation, by slot."""
Change = Callable[[int, Item, int, Floats], Floats]
"""Seconds that something takes the ranks of a pipeline rank, made longer or not.

The arguments are the number of the iteration, the item, the pipeline rank, and seconds by rank, (n,).
"""
Message = tuple[int, tuple[int, int, int]]
"""Who receives it, and its key."""


@dataclass(frozen=True)
class Times:
    """What things take, seconds.

    Attributes:
        forward_s: Of one layer; backward takes twice as long.
        optimizer_s: Behind the reduction of gradients.
        share_s: The transfer of an operation within a tensor-, context- or expert-parallel group.
        message_s: Of a message to a neighbour.
        reduce_s: Of the reduction of gradients.
        spread: Of own times, see `noise.vary`.
        pause_s: What a pause takes.
        pauses: Per rank and iteration.
    """

    forward_s: float = 0.010
    optimizer_s: float = 0.005
    share_s: float = 0.0005
    message_s: float = 0.001
    reduce_s: float = 0.010
    spread: float = SPREAD
    pause_s: float = 0.02
    pauses: float = 0.01

    def transfer_s(self, slot: int) -> float:
        """Of an operation on the communicator in this slot."""
        return {PP: self.message_s, DP: self.reduce_s}.get(slot, self.share_s)

    def own_s(self, item: Item) -> float:
        """Of computing."""
        if item.phase == OPTIMIZER:
            return self.optimizer_s
        return self.forward_s * (2 if item.phase == BACKWARD else 1)


@dataclass(frozen=True)
class Iteration:
    """What the ranks of each pipeline rank have done in one.

    Attributes:
        number: From 1.
        ops: Records of operations in order, (n, items) for each pipeline rank. One that was not begun has no issue, one
            that is not over has no end.
        passes: Begin and end of backward passes, (n, passes, 2) seconds for each.
        passes_at: How many operations of the iteration were begun before, (passes, 2) for each.
        steps_s: When it was over, (n,) for each.
    """

    number: int
    ops: list[Rows]
    passes: list[Floats]
    passes_at: list[Ints]
    steps_s: list[Floats]

    @property
    def has_moved(self) -> bool:
        """Some rank has begun an operation, or is through."""
        some = any(bool((ops["t_issue_ns"] > 0).any()) for ops in self.ops)
        return some or any(bool(np.isfinite(steps_s).any()) for steps_s in self.steps_s)

    @property
    def is_whole(self) -> bool:
        """All ranks are through."""
        return all(bool(np.isfinite(steps_s).all()) for steps_s in self.steps_s)


class Run:
    """Of one job.

    Args:
        layout: Of its ranks, in the usual order.
        schedule: Of its pipelines.
        layers: Of each stage.
        times: What things take.
        seed: Of chance.
        slower: Changes own times; where it makes one infinite, the rank hangs there.

    Attributes:
        slower: The same.
        longer: Changes what transfers take: of a message by its sender; of a collective the longest one counts.
        enters: Changes when ranks enter a collective, by the true clock; where it makes that infinite, they do not.
        leaver: The rank that goes on without a collective that it does not enter, -1 none: others hang there.
        programs: Items of each pipeline rank.
        done: Iterations.
    """

    def __init__(
        self, layout: Layout, schedule: Schedule, layers: int = 2, times: Times = Times(), seed: int = 0,
        slower: Change | None = None,
    ) -> None:  # fmt: skip
        self.layout, self.times = layout, times
        self._rng = np.random.default_rng(seed)
        self.slower = slower
        self.longer: Change | None = None
        self.enters: Change | None = None
        self.leaver = -1
        self.programs = [program_of(schedule, rank, layers, layout) for rank in range(layout.pp)]
        self._places = [_places(program) for program in self.programs]
        self._now = np.full((layout.pp, layout.per_stage), BEGIN_S)
        self.done = 0

    def iterate(self) -> Iteration:
        """The next iteration of all ranks."""
        self.done += 1
        sent: dict[Message, Floats] = {}
        ops = [self._template(rank) for rank in range(self.layout.pp)]
        passes: list[list[Floats]] = [[] for _ in ops]
        pauses = self._rng.random(self._now.shape) < self.times.pauses
        self._now += np.where(pauses, self.times.pause_s, 0.0)
        at = [0] * self.layout.pp
        moved = True
        while moved:
            moved = False
            for rank, program in enumerate(self.programs):
                while at[rank] < len(program) and self._can(rank, program[at[rank]], sent):
                    self._do(rank, at[rank], sent, ops[rank], passes[rank])
                    at[rank] += 1
                    moved = True
            if self._are_all_at(at, WORLD):
                self._share_all(at, ops)
                moved = True
        assert at == [len(program) for program in self.programs], "the schedule waits for itself"
        n = self.layout.per_stage
        spans = [np.stack(one, axis=1).reshape(n, -1, 2) if one else np.zeros((n, 0, 2)) for one in passes]
        at_ops = [places.of_passes for places in self._places]
        return Iteration(self.done, ops, spans, at_ops, [now.copy() for now in self._now])

    def _template(self, rank: int) -> Rows:
        """Records of an iteration without their times."""
        rows = np.zeros((self.layout.per_stage, len(self._places[rank].row)), RECORD)
        rows[:] = self._places[rank].row
        rows["counter"] += ((self.done - 1) * self._places[rank].each).astype(np.uint32)
        rows["ordinal"] += np.uint32((self.done - 1) * rows.shape[1])
        rows["seq"] = rows["ordinal"]
        return rows

    def _can(self, rank: int, item: Item, sent: dict[Message, Floats]) -> bool:
        if item.do is Do.SHARE:
            return item.slot != WORLD  # for this all pipeline ranks must have come
        return item.do is not Do.RECEIVE or (rank, item.key) in sent

    def _do(self, rank: int, at: int, sent: dict[Message, Floats], ops: Rows, passes: list[Floats]) -> None:
        now, item = self._now[rank], self.programs[rank][at]
        place = self._places[rank].of_item[at]
        if item.do is Do.OWN:
            own_s = self.times.own_s(item) * vary(self._rng, self.times.spread, len(now))
            self._now[rank] = now + (self.slower(self.done, item, rank, own_s) if self.slower else own_s)
        elif item.do is Do.SHARE:
            entered_s = self._entered(item, rank)
            end_s = self._end_of_group(item.slot, entered_s)
            end_s = end_s + self._end_of_group(item.slot, self._transfer(item, rank))
            self._leave(ops, place, rank, entered_s, end_s)
        elif item.do is Do.SEND:
            sent[item.peer, item.key] = end_s = now + self._transfer(item, rank)
            _note(ops, place, now, end_s, now)
        elif item.do is Do.RECEIVE:
            end_s = np.maximum(now, sent.pop((rank, item.key)))
            _note(ops, place, now, end_s, end_s)
            self._now[rank] = end_s
        elif item.do in (Do.BEGIN, Do.END):
            passes.append(now.copy())

    def _entered(self, item: Item, rank: int) -> Floats:
        """When the ranks of a pipeline rank enter a collective."""
        now = self._now[rank]
        return self.enters(self.done, item, rank, now.copy()) if self.enters else now

    def _leave(self, ops: Rows, place: int, rank: int, entered_s: Floats, end_s: Floats) -> None:
        """A collective is over for the ranks of a pipeline rank; who has not entered it goes on, or never does."""
        _note(ops, place, entered_s, end_s, end_s)
        at = self.leaver - rank * self.layout.per_stage
        goes_on = 0 <= at < len(end_s) and not np.isfinite(entered_s[at])
        now_s = float(self._now[rank, at]) if goes_on else np.inf
        self._now[rank] = end_s
        if goes_on:
            ops[at, place]["t_end_ns"] = 0
            self._now[rank, at] = now_s

    def _transfer(self, item: Item, rank: int) -> Floats:
        took_s = np.full(self.layout.per_stage, self.times.transfer_s(item.slot))
        return self.longer(self.done, item, rank, took_s) if self.longer else took_s

    def _end_of_group(self, slot: int, seconds: Floats) -> Floats:
        """The largest of each group, for each of its members, (n,)."""
        layout = self.layout
        if slot == EP:
            parts = seconds.reshape(-1, layout.ep, layout.tp)
            axes: tuple[int, ...] = (1,)
        else:
            parts = seconds.reshape(layout.dp, layout.cp, layout.tp)
            axes = {TP: (2,), CP: (1,), DP: (0, 1)}[slot]
        return np.broadcast_to(parts.max(axis=axes, keepdims=True), parts.shape).reshape(-1)

    def _are_all_at(self, at: list[int], slot: int) -> bool:
        return all(
            place < len(program) and program[place].do is Do.SHARE and program[place].slot == slot
            for place, program in zip(at, self.programs, strict=True)
        )

    def _share_all(self, at: list[int], ops: list[Rows]) -> None:
        """An operation of the world, at which all pipeline ranks are."""
        items = [program[place] for program, place in zip(self.programs, at, strict=True)]
        took_s = max(float(self._transfer(item, rank).max()) for rank, item in enumerate(items))
        entered_s = [self._entered(item, rank) for rank, item in enumerate(items)]
        end_s = np.full(self.layout.per_stage, max(float(one.max()) for one in entered_s) + took_s)
        for rank, one in enumerate(entered_s):
            self._leave(ops[rank], self._places[rank].of_item[at[rank]], rank, one, end_s)
            at[rank] += 1


@dataclass(frozen=True)
class _Places:
    """Of the operations of a program.

    Attributes:
        of_item: The place of each item among the operations, -1 of one that is none.
        of_passes: How many operations come before begin and end of each backward pass, (passes, 2).
        row: Records of them in the first iteration, (items,).
        each: By how much the counter of each grows with an iteration, (items,).
    """

    of_item: list[int]
    of_passes: Ints
    row: Rows
    each: Ints


def _places(program: list[Item]) -> _Places:
    found = [item for item in program if item.do in HAS_RECORD]
    count = np.cumsum([item.do in HAS_RECORD for item in program])
    of_item = [int(at) - 1 if item.do in HAS_RECORD else -1 for item, at in zip(program, count, strict=True)]
    row, each = np.zeros(len(found), RECORD), np.zeros(len(found), np.int64)
    numbers: dict[tuple[int, int, int], list[int]] = {}
    for at, item in enumerate(found):
        line = item.slot, int(item.kind) if item.slot == PP else 0, item.peer
        numbers.setdefault(line, []).append(at)
        row[at]["counter"], row[at]["comm_slot"] = len(numbers[line]), item.slot
        row[at]["kind"], row[at]["peer"], row[at]["count"] = item.kind, item.peer, ELEMENTS[item.slot]
    for places in numbers.values():
        each[places] = len(places)
    row["ordinal"], row["dtype"], row["status"] = np.arange(1, len(found) + 1), FLOAT32, Status.DONE
    row["epoch"] = EPOCH
    of_passes = [int(at) for item, at in zip(program, count, strict=True) if item.do in (Do.BEGIN, Do.END)]
    return _Places(of_item, np.array(of_passes, np.int64).reshape(-1, 2), row, each)


def _note(ops: Rows, at: int, issue_s: Floats, end_s: Floats, until_s: Floats) -> None:
    """The times of an operation in which the ranks were blocked until then; 0 is never."""
    rows, has_begun, is_over = ops[:, at], np.isfinite(issue_s), np.isfinite(end_s)
    rows["t_issue_ns"] = rows["t_start_ns"] = np.round(np.where(has_begun, issue_s, 0.0) * 1e9)
    rows["t_end_ns"] = np.round(np.where(is_over, end_s, 0.0) * 1e9)
    rows["wait_us"] = np.where(is_over, np.where(is_over, until_s, 0.0) - np.where(has_begun, issue_s, 0.0), 0.0) * 1e6
