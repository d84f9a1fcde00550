"""Figure 12 of MegaTrace: by how much a block may take longer before the iteration takes one percent longer.

Twice: from the slack of the block in the trace graph, and measured, by making one rank take longer in that block in the
simulator until the iteration is one percent longer. Both are without noise, so they should agree.

Example: in 1F1B of four stages, the first forward pass of the last stage has no slack, so it may grow by 1 % of the
iteration only. The fourth forward pass of the first stage runs ahead of the others, so it may take 260 ms longer, six
times what it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from whichrank.stage.graph import Floats, Graph
from whichrank.stage.layout import Layout
from whichrank.stage.schedules import Phase, Schedule, one_f_one_b
from whichrank.testbed.sim.clocks import BEGIN_S
from whichrank.testbed.sim.program import Do, Item
from whichrank.testbed.sim.run import Run, Times

GROWTH: Final = 0.01
"""Share by which an iteration must grow until a slowdown is no longer tolerated; the figure of the paper has none."""
HALVINGS: Final = 12
"""Of the range in which the measured time is looked for: to one part in 4,096."""
LAYOUT: Final = Layout(tp=2, pp=4, dp=2)
LAYERS: Final = 2
BATCHES: Final = 8
"""Microbatches. With the layout this is table I of the paper, but for fewer replicas, which are all alike."""
TIMES: Final = Times(forward_s=0.040 / LAYERS, spread=0.0, pauses=0.0)
"""Forward passes of 40 ms as in the paper, without noise."""


@dataclass(frozen=True)
class Tolerated:
    """Of each block of a schedule.

    Attributes:
        schedule: The blocks, n.
        iteration_s: Seconds of an iteration as it should be.
        by_graph_s: Seconds by which a block may take longer, from its slack, (n,).
        measured_s: The same in the simulator, (n,).
    """

    schedule: Schedule
    iteration_s: float
    by_graph_s: Floats
    measured_s: Floats

    def csv(self) -> str:
        """A line for each block, in milliseconds."""
        lines = ["pipeline_stage,phase,microbatch,tolerated_by_graph_ms,tolerated_measured_ms"]
        for block in range(len(self.schedule.rank)):
            phase = Phase(int(self.schedule.phase[block])).name.lower()
            lines.append(
                f"{self.schedule.stage[block]},{phase},{self.schedule.microbatch[block]},"
                f"{1e3 * self.by_graph_s[block]:.2f},{1e3 * self.measured_s[block]:.2f}"
            )
        return "\n".join(lines) + "\n"


def tolerated(
    schedule: Schedule | None = None, layout: Layout = LAYOUT, show_progress: Callable[[int, int], None] | None = None
) -> Tolerated:
    """By how much each block may grow.

    Args:
        schedule: 1F1B with `BATCHES` microbatches, if none is given.
        layout: Of the job.
        show_progress: Called with the blocks that are done, and how many there are.
    """
    schedule = one_f_one_b(layout.pp, BATCHES) if schedule is None else schedule
    iteration_s = _iteration_s(schedule, layout, -1, 0.0)
    allowed_s = GROWTH * iteration_s
    measured_s = np.zeros(len(schedule.rank))
    for block in range(len(measured_s)):
        measured_s[block] = _measured(schedule, layout, block, iteration_s)
        if show_progress:
            show_progress(block + 1, len(measured_s))
    return Tolerated(schedule, iteration_s, _slack_s(schedule, layout) + allowed_s, measured_s)


def _slack_s(schedule: Schedule, layout: Layout) -> Floats:
    """Of each block in the trace graph; blocks of a stage take what its layers and their collectives do."""
    shared_s = TIMES.share_s if layout.tp > 1 else 0.0
    forward_s = LAYERS * (TIMES.forward_s + shared_s)
    backward_s = LAYERS * (2 * TIMES.forward_s + shared_s)
    durations_s = np.where(schedule.phase == Phase.FORWARD, forward_s, backward_s)
    before, after = schedule.edges
    moves_s = np.where(schedule.rank[before] == schedule.rank[after], 0.0, TIMES.message_s)
    return Graph.of(schedule).times(durations_s, moves_s).slack_s


def _measured(schedule: Schedule, layout: Layout, block: int, iteration_s: float) -> float:
    """Seconds by which a block can grow in the simulator, by halving the range."""
    low_s, high_s = 0.0, iteration_s
    for _ in range(HALVINGS):
        middle_s = (low_s + high_s) / 2
        has_grown = _iteration_s(schedule, layout, block, middle_s) > (1 + GROWTH) * iteration_s
        low_s, high_s = (low_s, middle_s) if has_grown else (middle_s, high_s)
    return (low_s + high_s) / 2


def _iteration_s(schedule: Schedule, layout: Layout, block: int, delay_s: float) -> float:
    """Of a job whose first rank at the place of a block takes longer in it; block -1 is none."""
    run = Run(layout, schedule, LAYERS, TIMES)
    if block >= 0:
        place = int(schedule.rank[block])
        owns = [item for item in run.programs[place] if item.do is Do.OWN]
        first = owns[(block - int(schedule.first[place])) * LAYERS]  # a block is computed in so many parts

        def slower(_: int, item: Item, at: int, own_s: Floats) -> Floats:
            if at == place and item is first:
                own_s[0] += delay_s
            return own_s

        run.slower = slower
    return max(float(steps_s.max()) for steps_s in run.iterate().steps_s) - BEGIN_S
