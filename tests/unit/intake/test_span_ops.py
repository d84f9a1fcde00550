"""Spans as operations that need each other."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from span_jobs import DP, MICROBATCHES, NAMES, PP, STEPS, job, noise

from whichrank.intake.op_spans import Spans
from whichrank.intake.span_ops import step_ops_of
from whichrank.model.step_ops import StepOps
from whichrank.stage.levels import levels_of
from whichrank.stage.what_if import WhatIf
from whichrank.stage.why_slow import Explanation, explain


def those(spans: Spans, kept: np.ndarray) -> Spans:
    columns = {
        field.name: getattr(spans, field.name)[kept] for field in dataclasses.fields(spans) if field.name != "names"
    }
    return dataclasses.replace(spans, **columns)


def ops_of(spans: Spans) -> StepOps:
    ops = step_ops_of(spans)
    assert ops is not None
    return ops


def slow_at(dp_of: int, stage_of: int, times: float) -> Any:
    usual = noise(1)
    return lambda dp, stage, step, micro: (
        usual(dp, stage, step, micro) * (times if (dp, stage) == (dp_of, stage_of) else 1.0)
    )


def test_what_meets_and_what_each_takes_alone() -> None:
    ops = ops_of(job(noise(0)))
    # THEN each message is a meeting of two ranks of one replica, and the reduce-scatters of a stage are one of all
    sizes = np.bincount(ops.meeting[ops.is_transfer])
    assert sorted(sizes.tolist()) == [2] * (2 * MICROBATCHES * DP) + [DP] * PP
    for meeting in range(len(sizes)):
        members = np.flatnonzero(ops.meeting == meeting)
        assert len(set(ops.rank[members].tolist())) == len(members)
        assert len(set((ops.replica if len(members) == 2 else ops.stage)[members].tolist())) == 1
    # AND waiting is no part of what they take
    sends = ops.what == NAMES.index("forward-send")
    np.testing.assert_allclose(ops.lasted_s[:, sends], 0.001, atol=1e-9)
    reduces = ops.what == NAMES.index("grads-reduce-scatter")
    np.testing.assert_allclose(ops.lasted_s[:, reduces], 0.01, atol=1e-9)
    assert ops.lasted_s.shape[0] == STEPS


def test_the_steps_gone_through_again_are_those_recorded() -> None:
    spans = job(noise(0))
    ends = [(spans.start_s + spans.lasted_s)[spans.step == step].max() for step in range(STEPS)]
    assert WhatIf(ops_of(spans)).actual_s == pytest.approx(np.mean(ends))


def test_a_slow_worker_is_found_in_spans() -> None:
    what_if = WhatIf(ops_of(job(slow_at(2, 1, 2.0))))
    assert explain(what_if) == (Explanation.RANKS, (4 * 2 + 1 * 4 * DP,))


def test_steps_with_other_operations_are_left_out() -> None:
    # GIVEN a table in which a span of step 3 is lost
    spans = job(noise(0))
    lost = np.flatnonzero(spans.step == 3)[5]
    ops = ops_of(those(spans, np.arange(len(spans.rank)) != lost))
    assert ops.steps.tolist() == [step for step in range(STEPS) if step != 3]


def test_a_single_step_says_nothing() -> None:
    spans = job(noise(0))
    assert step_ops_of(those(spans, spans.step == 3)) is None


def test_what_takes_no_time_at_one_moment_does_not_need_each_other() -> None:
    # GIVEN a job in which nothing takes any time
    spans = dataclasses.replace(job(noise(0)), start_s=np.zeros(len(job(noise(0)).rank)))
    spans = dataclasses.replace(spans, lasted_s=np.zeros(len(spans.rank)))
    # THEN no worker's operations need each other in a circle
    ops = ops_of(spans)
    assert (levels_of(ops.before, ops.after, len(ops.rank)) >= 0).all()
