"""How long a job takes to simulate: its iterations, and what all agents say of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from whichrank.testbed.bench.figures import Figure, figure
from whichrank.testbed.bench.scale.jobs import LONG, job_of
from whichrank.testbed.sim.run import Times
from whichrank.testbed.sim.telemetry import Agents

RANKS: Final = 65_536
ITERATIONS: Final = 10
LIMIT_S: Final = 60.0
"""For all iterations, with their batches."""


def program_of(ranks: int) -> str:
    """The job in words."""
    return f"{job_of(ranks, LONG, Times()).layout.name}, 1F1B, {LONG} microbatches, one layer a stage"


def measure(ranks: int, iterations: int, times: int, show_progress: Callable[[float], None]) -> Figure:
    """Seconds to simulate a job of this size, so many times.

    Args:
        ranks: Of the job.
        iterations: Of each simulation.
        times: How often it is simulated.
        show_progress: Is told the share that is done.
    """
    samples = list[float]()
    for done in range(times):
        begin_s = time.perf_counter()
        run = job_of(ranks, LONG, Times())
        agents = Agents(run)
        for number in range(iterations):
            for _ in agents.report([run.iterate()]):
                pass
            show_progress((done + (number + 1) / iterations) / times)
        samples.append(time.perf_counter() - begin_s)
    limit_s = LIMIT_S if (ranks, iterations) == (RANKS, ITERATIONS) else None
    return figure(f"{iterations} iterations simulated ({program_of(ranks)})", ranks, samples, "s", limit_s)
