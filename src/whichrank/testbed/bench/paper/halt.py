"""In which part of the iteration a rank has stopped: the halt point of MegaTrace's partial graph (section III.C).

A rank that has begun so many events of its unfinished iteration has stopped before the next one, so in the block of the
gap before that; one that is in an operation has stopped there, in the block that the operation belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whichrank.model.kinds import Kind
from whichrank.stage.schedules import Phase
from whichrank.testbed.bench.methods.telemetry import Telemetry
from whichrank.testbed.bench.paper.finding import Part
from whichrank.testbed.bench.paper.observed import Configuration, Rows
from whichrank.testbed.sim.program import BACKWARD, FORWARD, OPTIMIZER


def halt_part(config: Configuration, records: Sequence[Rows], seen: Telemetry, rank: int) -> Part:
    """Where a rank has stopped.

    Args:
        config: Of the job.
        records: Rows of RECORD_REPORTED, all until now.
        seen: What is in flight.
        rank: Globally numbered.
    """
    rows = np.concatenate([one["row"][one["rank"] == rank] for one in records])
    steps = int((rows["kind"] == Kind.STEP).sum())
    ops = seen.picture.ops
    in_flight = int((ops["rank"] == rank).sum())
    program = config.programs[rank // config.layout.per_stage]
    begun = len(rows) + in_flight - steps * len(program.items)
    at = min(max(begun - 1 if in_flight else begun, 0), len(program.items) - 1)
    if in_flight or program.block_of[at] < 0:
        item = program.items[at]
        return Part(item.phase, item.microbatch if item.phase != OPTIMIZER else -1)
    if program.block_of[at] == program.blocks:
        return Part(OPTIMIZER)
    schedule = config.schedule
    block = int(schedule.first[rank // config.layout.per_stage] + program.block_of[at])
    phase = FORWARD if schedule.phase[block] == Phase.FORWARD else BACKWARD
    return Part(phase, int(schedule.microbatch[block]))
