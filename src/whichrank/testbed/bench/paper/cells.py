"""What is done to the jobs of each cell of a table, and with which seeds.

Jobs (layout, schedule, layers) and places of faults are drawn by chance. A cell is one magnitude, so that F1 can be
given for each. The delays are those of the paper: 50 ms to 30 s in one block of each iteration, beside forward passes
of 40 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Final, Literal

import numpy as np

from whichrank.testbed.sim.faults import (
    DELAYS_S,
    Fault,
    draw_delay,
    draw_hang,
    draw_healthy,
    draw_imbalance,
    draw_lost,
    draw_slow,
)
from whichrank.testbed.sim.program import BACKWARD, FORWARD
from whichrank.testbed.sim.run import Run
from whichrank.testbed.sim.trial import CONFIG, Drawn, draw_job

FIRST_SEED: Final = 20_000
"""Seed of the first scored run of each cell: no test and no fitting of a threshold uses seeds from here on. Those from
10,000 on were scored before the rules were changed, and are used up."""
LEAST_ONSET: Final = 15
"""Iterations before a fault, at the least: all methods know by then what is usual."""
QUIET_WINDOWS: Final = 2.2
"""Windows of slowness before a fault, at the least: CCL-D takes its baseline from two."""
FACTORS: Final = {
    "5 %": 1.05, "10 %": 1.1, "20 %": 1.2, "50 %": 1.5, "2x": 2.0, "3x": 3.0, "5x": 5.0, "10x": 10.0,
}  # fmt: skip
"""Times as long as a slow rank computes."""
Group = Literal["hang", "slow", "nobody"]


@dataclass(frozen=True)
class Cell:
    """A row of a table.

    Attributes:
        name: As it stands there.
        number: Of chance, never changed.
        group: What is due: a hang, a slow rank, or nothing.
        draw: Makes the fault of a job; the last argument is its first iteration.
    """

    name: str
    number: int
    group: Group
    draw: Callable[[Run, np.random.Generator, int], Fault]

    def drawn(self, seed: int) -> tuple[Drawn, Fault]:
        """A job and what is done to it."""
        job = draw_job(seed)
        run = job.run()
        fault = self.draw(run, np.random.default_rng([seed, self.number]), _onset(job))
        if fault.kind == "slow" and fault.phase in (FORWARD, BACKWARD) and job.schedule.microbatches == 1:
            fault = replace(fault, microbatch=0)  # all microbatches are one: whoever says so is right
        return job, fault


def _onset(job: Drawn) -> int:
    """The first iteration behind the quiet time."""
    run = job.run()
    ends_s = [max(float(steps_s.max()) for steps_s in run.iterate().steps_s) for _ in range(3)]
    iteration_s = (ends_s[2] - ends_s[0]) / 2
    return max(LEAST_ONSET, ceil(QUIET_WINDOWS * CONFIG.slow_window_s / iteration_s))


def _slow(factor: float, run: Run, rng: np.random.Generator, onset: int) -> Fault:
    return draw_slow(run, rng, (factor,), onset)


def _delay(run: Run, rng: np.random.Generator, onset: int) -> Fault:
    return draw_delay(run, rng, *DELAYS_S, onset)


CELLS: Final = {
    cell.name: cell
    for cell in (
        Cell("hang", 1, "hang", draw_hang),
        Cell("lost transfer", 2, "hang", draw_lost),
        *(
            Cell(f"slow {name}", 10 + at, "slow", partial(_slow, factor))
            for at, (name, factor) in enumerate(FACTORS.items())
        ),
        Cell("slow by delay", 3, "slow", _delay),
        Cell("healthy", 4, "nobody", draw_healthy),
        Cell("imbalance", 5, "nobody", draw_imbalance),
    )
}
"""By name, in the order of the tables."""
