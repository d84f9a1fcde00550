"""What fixing something would buy: the steps of a job are gone through again with other durations.

In the ideal step every computation takes the mean of those with its name, over all workers and steps, and every
transfer their median, since few transfers are very long. The slowdown S is the actual step over the ideal one. What a
fix buys is the share of the seconds between both that is gone when the operations in question become ideal.

Example: a step takes 46 s, an ideal one 23 s, so S is 2. If it takes 23 s with one worker fixed, that buys all of it;
if fixing the last pipeline stage leaves it at 46 s, that buys nothing, and the model is not cut badly.

Actual steps are gone through, too, since a step as recorded contains pauses for which no operation accounts.

Source: "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025), equations 1, 4 and 5.
There the means are over faulty workers as well, so a slow worker makes the ideal step a little longer than it should
be; kept as it is, to be comparable.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.step_ops import StepOps
from whichrank.stage.graph import Graph

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SLOWEST_PERCENT: Final = 3
"""Of all workers, that are fixed for `slowest_workers` (Mw, as published)."""
MOST_EXACT: Final = 64
"""Workers of which it is gone through what is due to each alone. Where k are faulty, up to k * k share a replica with
one of them and a stage with one, and look alike before that."""
MOST_AT_ONCE: Final = 1 << 22
"""Durations that are gone through in one pass, at most: 32 MiB."""


@dataclass(frozen=True)
class Bought:
    """What a fix buys.

    Attributes:
        saved_s: Seconds of each step; below zero where others are longer in an ideal step.
        share: Of the slowdown: 1.0 all of it; 0.0 as well where there is none.
        usual_share: The median over steps of the same, to which pauses in few steps add nothing.
    """

    saved_s: float
    share: float
    usual_share: float


class WhatIf:
    """The steps of a job, actual and ideal.

    Args:
        ops: What its workers do, and how long that took.

    Raises:
        ValueError: Operations need each other in a circle.
    """

    def __init__(self, ops: StepOps) -> None:
        self.ops = ops
        self._meetings = int(ops.meeting.max(initial=-1)) + 1
        self._graph = _graph_of(ops, self._meetings)

    @cached_property
    def actual_s(self) -> float:
        """Mean seconds of a step without pauses for which no operation accounts."""
        return float(self._actual_s.mean())

    @cached_property
    def ideal_s(self) -> float:
        """Seconds of a step without stragglers."""
        return float(self._steps_s(self._ideal_s).mean())

    @property
    def slowdown(self) -> float:
        """S: how many times longer a step is than without stragglers; 1.0 where nothing takes any time."""
        return self.actual_s / self.ideal_s if self.ideal_s > 0 else 1.0

    @cached_property
    def workers(self) -> Ints:
        """Ranks that were traced, (w,)."""
        return np.unique(self.ops.rank)

    @cached_property
    def slowest_first(self) -> Ints:
        """The same ranks by the slowdown that is due to each: how long a step is if all but it is ideal.

        That takes as many passes as there are workers. So they are sorted by the lesser of what is due to the replica
        and to the stage of each (equation 4), and only the first MOST_EXACT anew by what is due to them alone.
        """
        _, first = np.unique(self.ops.rank, return_index=True)
        replica_s, stage_s = (self._with_alone(of)[first] for of in (self.ops.replica, self.ops.stage))
        by_both = self.workers[np.lexsort((self.workers, -np.minimum(replica_s, stage_s)))]
        exact = np.sort(by_both[:MOST_EXACT])
        alone_s = self._with_alone(np.where(self.of_ranks(exact), self.ops.rank, -1))[first]
        alone_s = alone_s[np.searchsorted(self.workers, exact)]
        return np.concatenate((exact[np.argsort(-alone_s, kind="stable")], by_both[MOST_EXACT:]))

    @property
    def slowest(self) -> Ints:
        """The slowest SLOWEST_PERCENT of all workers, one at the least."""
        return self.slowest_first[: -(-SLOWEST_PERCENT * len(self.workers) // 100)]

    @cached_property
    def slowest_workers(self) -> Bought:
        """What fixing those buys (its share is Mw)."""
        return self.buys(self.of_ranks(self.slowest))

    @cached_property
    def slowest_worker(self) -> Bought:
        """What fixing the slowest worker buys, and no other."""
        return self.buys(self.of_ranks(self.slowest_first[:1]))

    @cached_property
    def last_stage(self) -> Bought:
        """What fixing the last pipeline stage buys (its share is Ms)."""
        return self.buys(self.of_stage(int(self.ops.stage.max())))

    def of_ranks(self, ranks: Ints) -> Bools:
        """Operations of a worker, or of any group of them, (n,)."""
        return np.isin(self.ops.rank, ranks)

    def of_stage(self, stage: int) -> Bools:
        """Operations of a pipeline stage, (n,)."""
        return np.asarray(self.ops.stage == stage)

    def of_link(self, one: int, other: int) -> Bools:
        """Transfers in which two ranks meet, and nobody else, (n,)."""
        transfers = np.flatnonzero(self.ops.is_transfer)
        meeting, size = self.ops.meeting[transfers], np.bincount(self.ops.meeting[transfers], minlength=self._meetings)
        both = size == 2
        for rank in (one, other):
            both &= np.bincount(meeting, self.ops.rank[transfers] == rank, self._meetings) == 1
        found = np.zeros(len(self.ops.rank), np.bool_)
        found[transfers] = both[meeting]
        return found

    def buys(self, fixed: Bools) -> Bought:
        """What it buys if these operations take what they should.

        Args:
            fixed: Which become ideal, (n,).
        """
        return self._bought(np.where(fixed, self._ideal_s, self.ops.lasted_s))

    @cached_property
    def longest_microbatches(self) -> Bought:
        """What it buys if no microbatch takes longer than the usual one, as packing sequences evenly would do.

        How much longer a microbatch is, is the lower median over all that is computed on it, in all stages of its
        replica, each compared with the mean of its worker. A slow worker is so for all microbatches, and a pause is in
        one stage, so neither counts.
        """
        counted = np.flatnonzero((self.ops.microbatch >= 0) & ~self.ops.is_transfer)
        if not len(counted):
            return Bought(0.0, 0.0, 0.0)
        lasted_s = self.ops.lasted_s[:, counted]
        own = _groups(self.ops.rank[counted], self.ops.what[counted])
        ratio = lasted_s / np.maximum(_means(lasted_s, own), np.finfo(np.float64).tiny)
        batch = _groups(self.ops.replica[counted], self.ops.microbatch[counted])
        longer = np.empty_like(ratio)
        order = np.argsort(batch, kind="stable")
        for mine in np.split(order, np.flatnonzero(np.diff(batch[order])) + 1):
            longer[:, mine] = np.quantile(ratio[:, mine], 0.5, axis=1, method="lower")[:, None]
        evened_s = self.ops.lasted_s.copy()
        evened_s[:, counted] /= np.maximum(longer, 1.0)
        return self._bought(evened_s)

    def _bought(self, lasted_s: Floats) -> Bought:
        saved_s, lost_s = self._actual_s - self._steps_s(lasted_s), self._actual_s - self.ideal_s
        share = saved_s.mean() / lost_s.mean() if lost_s.mean() > 0 else 0.0
        shares = np.divide(saved_s, lost_s, out=np.zeros_like(lost_s), where=lost_s > 0)
        return Bought(float(saved_s.mean()), float(share), float(np.median(shares)))

    @cached_property
    def _actual_s(self) -> Floats:
        """Seconds of each step as it was, (steps,)."""
        return self._steps_s(self.ops.lasted_s)

    @cached_property
    def _ideal_s(self) -> Floats:
        """Durations without stragglers, (steps, n)."""
        ideal_s = np.empty(len(self.ops.rank))
        for what in range(len(self.ops.names)):
            for mine, middle in ((self.ops.is_transfer, np.median), (~self.ops.is_transfer, np.mean)):
                at = np.flatnonzero((self.ops.what == what) & mine)
                if len(at):
                    ideal_s[at] = middle(self.ops.lasted_s[:, at])
        return np.broadcast_to(ideal_s, self.ops.lasted_s.shape)

    def _with_alone(self, of: Ints) -> Floats:
        """Seconds of a step in which one part of the job is as it was and all else is ideal, for each operation's part.

        Args:
            of: The part to which each operation belongs, (n,).
        """
        parts, at = np.unique(of, return_inverse=True)
        at_once = max(1, MOST_AT_ONCE // self.ops.lasted_s.size)
        found = list[Floats]()
        for first in range(0, len(parts), at_once):
            as_it_was = of == parts[first : first + at_once, None, None]
            found.append(self._steps_s(np.where(as_it_was, self.ops.lasted_s, self._ideal_s)).mean(axis=1))
        return np.concatenate(found)[at.reshape(-1)]

    def _steps_s(self, lasted_s: Floats) -> Floats:
        """Seconds of each step with these durations, (..., steps, n) to (..., steps)."""
        meetings_s = np.zeros((*lasted_s.shape[:-1], self._meetings))
        return self._graph.makespan(np.concatenate((lasted_s, meetings_s), axis=-1))


def _graph_of(ops: StepOps, meetings: int) -> Graph:
    """Operations, then meetings, which take no time: one needs what its members need, and its members need it."""
    count, members = len(ops.rank), np.flatnonzero(ops.is_transfer)
    meets_at = np.where(ops.is_transfer, count + ops.meeting, np.arange(count))
    before = np.concatenate((ops.before, meets_at[members]))
    after = np.concatenate((meets_at[ops.after], members))
    return Graph.of_edges(before, after, count + meetings)


def _groups(one: Ints, other: Ints) -> Ints:
    """A number for each pair."""
    return np.unique(np.stack((one, other)), axis=1, return_inverse=True)[1].reshape(-1)


def _means(values: Floats, group: Ints) -> Floats:
    """Of each column the mean over its group and all rows, (n,)."""
    sums, count = np.bincount(group, values.sum(axis=0)), np.bincount(group) * len(values)
    return np.asarray((sums / count)[group])
