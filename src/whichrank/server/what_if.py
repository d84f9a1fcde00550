"""What fixing something would buy, of a recording that says what workers do in each step."""

from __future__ import annotations

import msgspec
import numpy as np

from whichrank.intake.recording import Recording
from whichrank.stage.what_if import WhatIf
from whichrank.stage.why_slow import explain


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
    """What stragglers cost; None where the recording does not say what needs what, or contradicts itself in that."""
    if recording.ops is None:
        return None
    try:
        what_if = WhatIf(recording.ops)
    except ValueError:
        return None
    explanation, faulty = explain(what_if)
    stages = [what_if.buys(what_if.of_stage(stage)).share for stage in np.unique(recording.ops.stage).tolist()]
    return Bill(
        job=recording.job,
        steps=len(recording.ops.steps),
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
