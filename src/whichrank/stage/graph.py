"""The trace graph of one iteration: when each block can begin, how long it could be put off, and what decides the end.

A block begins once all that it needs is over, so one pass over the levels of the graph gives its earliest start, and
one pass back its latest start; the difference is its slack, which bubbles absorb. Blocks without slack make up the
critical path. The passes are vectorised within a level and over any number of pipelines, or of "what if", at once.

Example: stage 0 does F0 in 1 s, stage 1 does F0 and B0 in 1 s each, stage 0 then B0 in 2 s. The makespan is 5 s, all
four blocks are critical. If stage 0 does a second forward pass of 0.5 s meanwhile, it has 1.5 s of slack.

Source: MegaTrace, section III.C and Algorithm 3, which never seeds the latest start of the last block: here it is the
makespan less the duration of the block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whichrank.stage.levels import levels_of
from whichrank.stage.schedules import Schedule

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class _Step:
    """A level of one pass: for each of its blocks the dependencies that decide it, which are consecutive.

    Attributes:
        blocks: Those that have a dependency on this side, (k,).
        edges: Their dependencies, sorted by block, (m,).
        first: Of each block its first one among `edges`, (k,).
    """

    blocks: Ints
    edges: Ints
    first: Ints


@dataclass(frozen=True)
class Times:
    """When blocks are done, in seconds since the iteration began; `...` are the axes of the durations before the last.

    Attributes:
        start_s: Earliest start, (..., n).
        end_s: Earliest end, (..., n).
        latest_s: Latest start that does not put the iteration off, (..., n).
        slack_s: How much later each could start, (..., n).
        makespan_s: The end of the last block, (...).
    """

    start_s: Floats
    end_s: Floats
    latest_s: Floats
    slack_s: Floats
    makespan_s: Floats


@dataclass(frozen=True)
class HaltPoint:
    """Where a hung iteration stands.

    Attributes:
        blocks: Indices of those that could go on and have not ended, of the least level, in order.
        begun: Which of them have begun: their rank computes, or is stuck, in them. The others were never entered.
    """

    blocks: Ints
    begun: Bools


@dataclass(frozen=True)
class Graph:
    """Blocks and what each of them needs.

    Attributes:
        before: The earlier block of each dependency, (e,).
        after: The later one, (e,).
        levels: Of each block, from `levels_of`, (n,).

    Raises:
        ValueError: A block waits for itself.
    """

    before: Ints
    after: Ints
    levels: Ints

    def __post_init__(self) -> None:
        if (self.levels < 0).any():
            raise ValueError(f"block {int(self.levels.argmin())} waits for itself")

    @classmethod
    def of(cls, schedule: Schedule) -> Graph:
        """The graph of one pipeline on a schedule."""
        return cls(*schedule.edges, schedule.levels)

    @classmethod
    def of_edges(cls, before: Ints, after: Ints, blocks: int) -> Graph:
        """The graph of any blocks.

        Args:
            before: The earlier block of each dependency, (e,).
            after: The later one, (e,).
            blocks: How many there are.

        Raises:
            ValueError: A block waits for itself.
        """
        return cls(before, after, levels_of(before, after, blocks))

    def times(self, durations_s: Floats, transfer_s: ArrayLike = 0.0) -> Times:
        """When each block is done, at the earliest and at the latest.

        Args:
            durations_s: Seconds of each block, (..., n).
            transfer_s: Seconds from the end of the earlier block of a dependency until the later one may start; one
                number, or (..., e).
        """
        lasts, moves = self._by_block(durations_s, transfer_s)
        end = self._ends(lasts, moves)
        makespan = end.max(axis=0)
        latest_end = np.broadcast_to(makespan, end.shape).copy()
        for step in self._backward:
            allowed = latest_end[self.after[step.edges]] - lasts[self.after[step.edges]] - moves[step.edges]
            latest_end[step.blocks] = np.minimum.reduceat(allowed, step.first, axis=0)
        slack = latest_end - end
        start, latest = end - lasts, latest_end - lasts
        start, end, latest, slack = (np.moveaxis(one, 0, -1) for one in (start, end, latest, slack))
        return Times(start, end, latest, slack, makespan)

    def makespan(self, durations_s: Floats, transfer_s: ArrayLike = 0.0) -> Floats:
        """As in `times`, without the pass back, (...)."""
        return np.asarray(self._ends(*self._by_block(durations_s, transfer_s)).max(axis=0))

    def critical_path(self, durations_s: Floats, transfer_s: ArrayLike = 0.0) -> Ints:
        """Blocks that decide the makespan of one pipeline, in order: each begins as soon as the one before allows.

        Args:
            durations_s: Seconds of each block, (n,).
            transfer_s: As in `times`, one number or (e,).
        """
        lasts, moves = self._by_block(durations_s, transfer_s)
        end = self._ends(lasts, moves)
        ready = end[self.before] + moves
        path = [int(end.argmax())]
        while (edges := self._edges_to(path[-1])).size:
            path.append(int(self.before[edges[ready[edges].argmax()]]))
        return np.array(path[::-1], np.int64)

    def halt_point(self, begun: Bools, ended: Bools) -> HaltPoint:
        """Where an iteration stopped: the blocks of the least level that nothing holds up and that have not ended.

        Others that have not ended wait for them, or stopped later. Nothing is left, and `blocks` is empty, where all
        have ended.

        Args:
            begun: Which blocks were entered, (n,).
            ended: Which are over, (n,).
        """
        free = ~ended
        free[self.after[~ended[self.before]]] = False
        blocks = np.flatnonzero(free)
        blocks = blocks[self.levels[blocks] == self.levels[blocks].min(initial=len(self.levels))]
        return HaltPoint(blocks, np.asarray(begun[blocks]))

    def _by_block(self, durations_s: Floats, transfer_s: ArrayLike) -> tuple[Floats, Floats]:
        """Durations and transfers with blocks and dependencies first, so that a level is whole rows."""
        lasts = np.ascontiguousarray(np.moveaxis(np.asarray(durations_s, np.float64), -1, 0))
        moves = np.asarray(transfer_s, np.float64)
        if moves.ndim:
            moves = np.moveaxis(moves, -1, 0)
            moves = moves.reshape(moves.shape[:1] + (1,) * (lasts.ndim - moves.ndim) + moves.shape[1:])
        return lasts, np.broadcast_to(moves, (len(self.before), *lasts.shape[1:]))

    def _ends(self, lasts: Floats, moves: Floats) -> Floats:
        """The earliest end of each block, (n, ...)."""
        end = lasts.copy()
        for step in self._forward:
            ready = end[self.before[step.edges]] + moves[step.edges]
            end[step.blocks] += np.maximum.reduceat(ready, step.first, axis=0)
        return end

    def _edges_to(self, block: int) -> Ints:
        order, bounds = self._by_after
        return order[bounds[block] : bounds[block + 1]]

    @cached_property
    def _by_after(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.after, kind="stable")
        return order, np.searchsorted(self.after[order], np.arange(len(self.levels) + 1))

    @cached_property
    def _forward(self) -> list[_Step]:
        return _steps(self.after, self.levels)

    @cached_property
    def _backward(self) -> list[_Step]:
        return _steps(self.before, self.levels)[::-1]


def _steps(decided: Ints, levels: Ints) -> list[_Step]:
    """The dependencies by the level of the block that they decide.

    Args:
        decided: The block that each decides, (e,).
        levels: Of each block, (n,).
    """
    order = np.lexsort((decided, levels[decided]))
    found = []
    for edges in np.split(order, np.flatnonzero(np.diff(levels[decided[order]])) + 1):
        if len(edges):
            blocks, first = np.unique(decided[edges], return_index=True)
            found.append(_Step(blocks, edges, first))
    return found
