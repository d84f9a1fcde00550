"""What fixing something would buy, of a recording that says what workers do in each step."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from whichrank.intake.recording import Recording
from whichrank.model.step_ops import StepOps
from whichrank.stage.what_if import MOST_EXACT, WhatIf
from whichrank.stage.why_slow import explain

MOST_DURATIONS: Final = 1 << 29
"""That are gone through in all passes together, which takes about ten seconds; of a longer recording some steps, evenly
spread, say as much."""
LEAST_STEPS: Final = 2
"""Of which it is said: one step alone is no usual one."""


class Bill(msgspec.Struct, frozen=True):
    """What stragglers cost a job, and what fixing some would buy; shares are of the slowdown, and may be below zero.

    Attributes:
        job: Its name.
        steps: Of which it is the mean.
        step_s: Seconds of a step.
        ideal_step_s: Seconds of a step without stragglers.
        slowdown: The one over the other (S).
        slowest_ranks: The slowest three per cent of the ranks that were traced, the slowest first.
        slowest_ranks_share: What fixing those buys (Mw).
        last_stage_share: What fixing the last pipeline stage buys (Ms).
        stage_shares: The same of each pipeline stage.
        longest_microbatches_share: What it buys if no microbatch takes longer than the usual one.
        explanation: `none`, `ranks`, `last_stage`, `sequences` or `spread`, as in `stage.why_slow`.
        faulty_ranks: Those that explain it, if `explanation` is `ranks`.
    """

    job: str
    steps: int
    step_s: float
    ideal_step_s: float
    slowdown: float
    slowest_ranks: tuple[int, ...]
    slowest_ranks_share: float
    last_stage_share: float
    stage_shares: tuple[float, ...]
    longest_microbatches_share: float
    explanation: str
    faulty_ranks: tuple[int, ...]


def bill_of(recording: Recording) -> Bill | None:
    """What stragglers cost a job.

    Returns:
        None where the recording does not say which operation needs which, contradicts itself in that, or is too large.
    """
    ops = _fitting(recording.ops) if recording.ops is not None else None
    if ops is None:
        return None
    try:
        what_if = WhatIf(ops)
    except ValueError:
        return None
    explanation, faulty = explain(what_if)
    stages = [what_if.buys(what_if.of_stage(stage)).share for stage in np.unique(ops.stage).tolist()]
    return Bill(
        job=recording.job,
        steps=len(ops.steps),
        step_s=what_if.actual_s,
        ideal_step_s=what_if.ideal_s,
        slowdown=what_if.slowdown,
        slowest_ranks=tuple(what_if.slowest.tolist()),
        slowest_ranks_share=what_if.slowest_workers.share,
        last_stage_share=what_if.last_stage.share,
        stage_shares=tuple(stages),
        longest_microbatches_share=what_if.longest_microbatches.share,
        explanation=explanation.value,
        faulty_ranks=faulty,
    )


def _fitting(ops: StepOps) -> StepOps | None:
    """As many of the steps as can be gone through; None if not even `LEAST_STEPS` can."""
    passes = len(np.unique(ops.replica)) + 2 * len(np.unique(ops.stage)) + MOST_EXACT
    most = MOST_DURATIONS // (passes * len(ops.rank))
    if most < LEAST_STEPS:
        return None
    kept = slice(None, None, -(-len(ops.steps) // most))
    return replace(ops, lasted_s=ops.lasted_s[kept], steps=ops.steps[kept])
