"""In which part of the iteration a job has stopped: the halt point of MegaTrace's partial graph (section III.C).

A rank that has begun so many events of its unfinished iteration has stopped before the next one, so in the block of the
gap before that; one that is in an operation has stopped there, in the block that the operation belongs to. Where none
is named, or several are, the halt point is the block of the least level of the trace graph in which a rank has stopped:
all others wait for it. What comes behind all blocks is the optimizer's part.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whichrank.model.kinds import Kind
from whichrank.stage.schedules import Phase
from whichrank.testbed.bench.methods.telemetry import Telemetry
from whichrank.testbed.bench.paper.finding import Part
from whichrank.testbed.bench.paper.observed import Configuration, Rows
from whichrank.testbed.sim.program import BACKWARD, FORWARD, OPTIMIZER, Do


class HaltPoint:
    """Of a job that hangs.

    Args:
        config: Of the job.
        records: Rows of RECORD_REPORTED, all until now.
        seen: What is in flight.
    """

    def __init__(self, config: Configuration, records: Sequence[Rows], seen: Telemetry) -> None:
        self._config, ranks = config, config.layout.ranks
        rank = np.concatenate([one["rank"] for one in records]).astype(np.int64)
        is_step = np.concatenate([one["row"]["kind"] == Kind.STEP for one in records])
        steps = np.bincount(rank[is_step], minlength=ranks)
        in_flight = np.bincount(seen.picture.ops["rank"], minlength=ranks)
        events = np.array([len(program.items) for program in config.programs])
        begun = np.bincount(rank, minlength=ranks) + in_flight - steps * np.repeat(events, config.layout.per_stage)
        self._blocks = [self._block(*one) for one in enumerate(zip(begun.tolist(), in_flight.tolist(), strict=True))]

    def of_rank(self, rank: int) -> Part:
        """Where this one has stopped."""
        return self._part(self._blocks[rank])

    def of_job(self) -> Part:
        """Where the first one has stopped."""
        levels, stopped = self._config.schedule.levels, [block for block in self._blocks if block >= 0]
        return self._part(min(stopped, key=lambda block: int(levels[block]), default=-1))

    def _block(self, rank: int, counts: tuple[int, int]) -> int:
        """The block in the schedule in which a rank has stopped, -1 behind all blocks."""
        begun, in_flight = counts
        place = rank // self._config.layout.per_stage
        program = self._config.programs[place]
        at = min(max(begun - 1 if in_flight else begun, 0), len(program.items) - 1)
        item = program.items[at]
        if in_flight and item.phase == OPTIMIZER:
            return -1
        is_before_block = in_flight and item.do is Do.RECEIVE
        known = program.block_of[at + 1 :] if is_before_block else program.block_of[at::-1]
        block = next((int(one) for one in known if one >= 0), program.blocks)
        return -1 if block == program.blocks else int(self._config.schedule.first[place]) + block

    def _part(self, block: int) -> Part:
        if block < 0:
            return Part(OPTIMIZER)
        schedule = self._config.schedule
        phase = FORWARD if schedule.phase[block] == Phase.FORWARD else BACKWARD
        return Part(phase, int(schedule.microbatch[block]))
