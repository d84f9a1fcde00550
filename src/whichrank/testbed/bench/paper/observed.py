"""When each rank computed and when it waited, block by block, from the records that agents report.

A rank computes between two events: an operation that blocks it, or the begin or end of a backward pass. What an
iteration's events are is known from the job's configuration (layout, schedule, layers), as MegaTrace reads it; so the
n-th gap of an iteration belongs to one block of the schedule. Differences of times are of one rank's clock only.

Example: a rank of a data-parallel job does `begin, end, all-reduce, all-reduce, step`. The first gap is the forward
pass, the second the backward pass, the third and fourth are nothing, and the fifth is the optimizer's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.kinds import Kind
from whichrank.stage.layout import Layout
from whichrank.stage.schedules import Schedule
from whichrank.stage.straggler import Pipelines
from whichrank.testbed.sim.program import HAS_RECORD, OPTIMIZER, Do, Item, program_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = np.ndarray[Any, Any]
_EVENTS = HAS_RECORD | {Do.BEGIN, Do.END, Do.STEP}


@dataclass(frozen=True)
class Configuration:
    """What a method may know of a job before it runs.

    Attributes:
        layout: Of its ranks.
        schedule: Of its pipelines.
        layers: Of each pipeline stage.
    """

    layout: Layout
    schedule: Schedule
    layers: int

    @cached_property
    def pipelines(self) -> Pipelines:
        """Which ranks work together."""
        return Pipelines.of(self.layout, self.schedule)

    @cached_property
    def programs(self) -> list[Events]:
        """What the ranks at each place of the pipeline do in an iteration."""
        return [self._events(place) for place in range(self.layout.pp)]

    def _events(self, place: int) -> Events:
        """Raises ValueError where a gap holds the work of two blocks."""
        blocks = int(self.schedule.first[place + 1] - self.schedule.first[place])
        events, block_of, computed, block = list[Item](), list[int](), 0, -1
        for item in program_of(self.schedule, place, self.layers, self.layout):
            if item.do is Do.OWN:
                now = computed // self.layers if item.phase != OPTIMIZER else blocks
                if block not in (-1, now):
                    raise ValueError(f"one gap of pipeline rank {place} holds the work of two blocks")
                block, computed = now, computed + 1
            elif item.do in _EVENTS:
                events.append(item)
                block_of.append(block)
                block = -1
        return Events(events, np.array(block_of), blocks)


@dataclass(frozen=True)
class Events:
    """Of one iteration of a rank.

    Attributes:
        items: Operations, begins and ends of backward passes, and the step, (e,).
        block_of: The block in which the gap before each falls, by its number on this rank; `blocks` is the optimizer's,
            -1 nothing's, (e,).
        blocks: How many blocks the rank does.
    """

    items: list[Item]
    block_of: Ints
    blocks: int

    @cached_property
    def members(self) -> Ints:
        """Which gaps belong to which block, (e, blocks + 1), 0 or 1."""
        return np.asarray(self.block_of[:, None] == np.arange(self.blocks + 1), np.int64)


@dataclass(frozen=True)
class Observed:
    """The whole iterations of a job, but for the first one: what came before it is not known.

    Attributes:
        config: Of the job.
        gaps_s: Seconds from one event to the next, by place in the pipeline, (iterations, per_stage, e) each.
        waits_s: Seconds in which the event blocked the rank, in the same shape.
    """

    config: Configuration
    gaps_s: list[Floats]
    waits_s: list[Floats]

    @property
    def iterations(self) -> int:
        """How many are whole."""
        return len(self.gaps_s[0])

    @cached_property
    def own_s(self) -> Floats:
        """Seconds that each rank computed in each block, (iterations, dp, cp * tp, n); see `Pipelines.stragglers`."""
        return np.concatenate([one[..., :-1] for one in self._by_block], axis=-1)

    @cached_property
    def optimizer_s(self) -> Floats:
        """Behind all blocks, (iterations, dp, cp * tp, pp)."""
        return np.stack([one[..., -1] for one in self._by_block], axis=-1)

    @cached_property
    def iteration_s(self) -> Floats:
        """What iterations took: all gaps and waits of the first rank, (iterations,)."""
        return np.asarray((self.gaps_s[0] + self.waits_s[0])[:, 0].sum(axis=-1))

    def of_ranks(self, by_place: Floats) -> Floats:
        """From (iterations, dp, cp * tp, pp) to (iterations, ranks)."""
        flat = by_place.reshape(self.iterations, -1)
        found = np.empty_like(flat)
        found[:, self.config.pipelines.ranks.reshape(-1)] = flat
        return found

    @cached_property
    def computed_s(self) -> Floats:
        """Seconds that each rank computed in the blocks of an iteration, (iterations, ranks)."""
        return self.of_ranks(np.stack([one[..., :-1].sum(axis=-1) for one in self._by_block], axis=-1))

    @cached_property
    def _by_block(self) -> list[Floats]:
        """By place in the pipeline, (iterations, dp, cp * tp, blocks + 1)."""
        layout = self.config.layout
        shape = self.iterations, layout.dp, layout.cp * layout.tp, -1
        programs = self.config.programs
        return [
            (gaps_s @ program.members).reshape(shape) for gaps_s, program in zip(self.gaps_s, programs, strict=True)
        ]


def observe(config: Configuration, records: Sequence[Rows]) -> Observed:
    """What ranks did, from all records of a job.

    Args:
        config: Of the job.
        records: Rows of RECORD_REPORTED, as they came.

    Raises:
        ValueError: They are not of such a job.
    """
    rows = np.concatenate(records)
    row, rank = rows["row"], rows["rank"].astype(np.int64)
    is_mark = row["kind"] >= Kind.STEP
    at_ns = np.where(is_mark & (row["t_end_ns"] > 0), row["t_end_ns"], row["t_issue_ns"]).astype(np.int64)
    order = np.lexsort((at_ns, is_mark, row["ordinal"], rank))
    bounds = np.searchsorted(rank[order], np.arange(config.layout.ranks + 1))
    n, gaps, waits = config.layout.per_stage, list[Floats](), list[Floats]()
    whole = int(np.bincount(rank[row["kind"] == Kind.STEP], minlength=config.layout.ranks).min())
    for place, program in enumerate(config.programs):
        events = len(program.items)
        starts = bounds[place * n : (place + 1) * n]
        at = order[starts[:, None] + np.arange(whole * events)].reshape(n, whole, events).swapaxes(0, 1)
        if not (row["kind"][at[..., -1]] == Kind.STEP).all() or (row["kind"][at[..., :-1]] == Kind.STEP).any():
            raise ValueError(f"the records of pipeline rank {place} are not those of its schedule")
        wait_ns = row["wait_us"][at].astype(np.int64) * 1000
        until_ns = at_ns[at] + wait_ns
        before_ns = np.concatenate((until_ns[:-1, :, -1:], until_ns[1:, :, :-1]), axis=-1)
        gaps.append((at_ns[at][1:] - before_ns) / 1e9)
        waits.append(wait_ns[1:] / 1e9)
    return Observed(config, gaps, waits)
