"""The jobs that are simulated at each size: eight tensor-parallel ranks on a node, up to 16 pipeline stages, 1F1B."""

from __future__ import annotations

from typing import Final

from whichrank.stage.layout import Layout
from whichrank.stage.schedules import one_f_one_b
from whichrank.testbed.sim.run import Run, Times

TENSOR: Final = 8
"""Ranks of a node, which share layers."""
MOST_STAGES: Final = 16
SHORT, LONG = 4, 16
"""Microbatches of an iteration: where one iteration is as good as another, and where it has 100 rounds or so."""


def layout_of(ranks: int) -> Layout:
    """The layout of a job of this size.

    Args:
        ranks: A power of two, at least 64.
    """
    stages = min(MOST_STAGES, ranks // (2 * TENSOR))
    return Layout(tp=TENSOR, pp=stages, dp=ranks // (TENSOR * stages))


def job_of(ranks: int, microbatches: int, times: Times) -> Run:
    """The job of this size, one layer in each stage.

    Args:
        ranks: As for `layout_of`.
        microbatches: Of an iteration.
        times: What things take.
    """
    layout = layout_of(ranks)
    return Run(layout, one_f_one_b(layout.pp, microbatches), layers=1, times=times)
