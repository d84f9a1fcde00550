"""Small simulated jobs for the tests of the paper's tables, and what is observed of them."""

from __future__ import annotations

from functools import partial
from typing import Final

from whichrank.stage.layout import Layout
from whichrank.stage.schedules import interleaved, one_f_one_b
from whichrank.testbed.bench.paper.observed import Configuration, Observed, observe
from whichrank.testbed.sim.faults import Fault
from whichrank.testbed.sim.telemetry import Agents
from whichrank.testbed.sim.trial import Drawn

ITERATIONS: Final = 24
JOBS: Final = ("dp4", "tp2-pp2-dp2", "pp2-dp4", "tp2-cp2-dp2")


def job(name: str, seed: int = 5) -> Drawn:
    """A job of this layout with little noise; the pipeline of `pp2-dp4` is interleaved."""
    layout = Layout.parse(name)
    schedule = interleaved(2, 2, 4) if name == "pp2-dp4" else one_f_one_b(layout.pp, 4)
    return Drawn(layout, schedule, "1f1b", 2, seed, spread=0.02)


def observed(drawn: Drawn, fault: Fault) -> Observed:
    """What agents report of some iterations of it."""
    run = drawn.run()
    run.slower = partial(fault.slower, run)
    agents = Agents(run)
    records = [batch.record_rows() for _ in range(ITERATIONS) for batch in agents.report([run.iterate()])]
    return observe(Configuration(drawn.layout, drawn.schedule, drawn.layers), records)
