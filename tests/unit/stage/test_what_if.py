"""What fixing something would buy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from step_jobs import BACKWARD_S, FORWARD_S, TP, job

from whichrank.intake.op_spans import read_parquet
from whichrank.intake.span_ops import step_ops_of
from whichrank.model.step_ops import StepOps
from whichrank.stage import what_if as module
from whichrank.stage.what_if import WhatIf
from whichrank.stage.why_slow import Explanation, explain

RECORDED = Path(__file__).parents[4] / "shared" / "data" / "what_if_AR"


def ones(stage: Any, *_: Any) -> Any:
    return np.ones(len(stage))


def slow(stage_of: int, replica_of: int, times: float) -> Any:
    """One worker computes slowly."""
    return lambda stage, replica, *_: np.where((stage == stage_of) & (replica == replica_of), times, 1.0)


def long_last(pp: int, times: float) -> Any:
    """The last stage has more to do."""
    return lambda stage, *_: np.where(stage == pp - 1, times, 1.0)


def sequences(seed: int) -> Any:
    """Microbatches are of uneven length, for all stages of a replica alike."""
    lengths = np.random.default_rng(seed).lognormal(0.0, 0.5, (64, 64, 64))
    return lambda stage, replica, microbatch, step: lengths[step, replica, microbatch]


def test_slowdown_by_hand() -> None:
    # GIVEN two workers that compute once in each step and then meet; the second takes 3 s instead of 1 s
    ops = StepOps(
        rank=np.array([0, 0, 1, 1]), replica=np.array([0, 0, 1, 1]), stage=np.zeros(4, np.int64),
        what=np.array([0, 1, 0, 1]), microbatch=np.array([0, -1, 0, -1]), names=("compute", "reduce"),
        meeting=np.array([-1, 0, -1, 0]), before=np.array([0, 2]), after=np.array([1, 3]),
        lasted_s=np.array([[1.0, 0.5, 3.0, 0.5], [1.0, 0.5, 3.0, 0.5]]), steps=np.arange(2),
    )  # fmt: skip
    what_if = WhatIf(ops)
    # THEN a step takes 3.5 s, and 2.5 s if both take the mean of 2 s
    assert what_if.actual_s == pytest.approx(3.5)
    assert what_if.ideal_s == pytest.approx(2.5)
    assert what_if.slowdown == pytest.approx(1.4)
    # AND all of it is due to the second
    assert what_if.slowest_first.tolist() == [1, 0]
    assert what_if.slowest_worker.saved_s == pytest.approx(1.0)
    assert what_if.slowest_worker.share == pytest.approx(1.0)
    assert what_if.buys(what_if.of_ranks(np.array([0]))).share == pytest.approx(0.0)


def test_a_healthy_job_is_not_slow() -> None:
    what_if = WhatIf(job(4, 4, 8, 5, ones))
    assert what_if.slowdown == pytest.approx(1.0, abs=0.03)
    assert explain(what_if) == (Explanation.NONE, ())


@pytest.mark.parametrize("stage", range(4))
def test_a_slow_rank_is_told_from_a_slow_stage(stage: int) -> None:
    # GIVEN one worker that takes twice as long, also in the last stage
    what_if = WhatIf(job(4, 4, 8, 5, slow(stage, 2, 2.0)))
    rank = TP * (2 + 4 * stage)
    # THEN fixing it buys most, and it is named
    assert what_if.slowest_workers.share > 0.8
    assert explain(what_if) == (Explanation.RANKS, (rank,))
    # AND fixing another stage or rank buys nothing
    assert abs(what_if.buys(what_if.of_stage((stage + 1) % 4)).share) < 0.1
    assert abs(what_if.buys(what_if.of_ranks(np.array([TP * 3]))).share) < 0.1


def test_two_slow_ranks_of_sixty_four() -> None:
    both = lambda stage, replica, *_: np.where(np.isin(4 * replica + stage, (4 * 3 + 1, 4 * 11 + 2)), 2.0, 1.0)  # noqa: E731
    what_if = WhatIf(job(4, 16, 8, 3, both))
    why, ranks = explain(what_if)
    assert why == Explanation.RANKS
    assert sorted(ranks) == [TP * (3 + 16 * 1), TP * (11 + 16 * 2)]
    assert what_if.slowest_worker.share < 0.3


def test_a_long_last_stage_is_an_imbalance_and_names_nobody() -> None:
    for dp in (1, 4, 32):
        what_if = WhatIf(job(4, dp, 8, 3, long_last(4, 1.8)))
        assert what_if.last_stage.share > 0.8
        assert explain(what_if) == (Explanation.LAST_STAGE, ())


def test_so_is_a_last_stage_that_is_all_of_the_slowest_workers() -> None:
    # GIVEN 64 stages of two replicas, so that three per cent are both workers of the last one, and more
    what_if = WhatIf(job(64, 2, 16, 2, long_last(64, 1.8)))
    assert what_if.slowest_workers.share > 0.8
    assert explain(what_if) == (Explanation.LAST_STAGE, ())


def test_uneven_sequences_are_an_imbalance_and_name_nobody() -> None:
    for seed in range(5):
        what_if = WhatIf(job(4, 4, 8, 5, sequences(seed)))
        assert what_if.slowdown > 1.1
        assert explain(what_if) == (Explanation.SEQUENCES, ())


def test_pauses_of_all_ranks_now_and_then_are_neither() -> None:
    hits = np.random.default_rng(0).random((5, 4, 4, 8)) < 0.05
    pauses = lambda stage, replica, microbatch, step: 1.0 + 10.0 * hits[step, replica, stage, microbatch]  # noqa: E731
    what_if = WhatIf(job(4, 4, 8, 5, pauses))
    assert explain(what_if) == (Explanation.SPREAD, ())


def test_a_stage_without_replicas_is_not_called_a_faulty_rank() -> None:
    what_if = WhatIf(job(4, 1, 8, 5, slow(1, 0, 2.0)))
    assert what_if.slowest_workers.share > 0.8
    assert explain(what_if) == (Explanation.SPREAD, ())


def test_fixing_a_slow_link_buys_all() -> None:
    # GIVEN messages between stages 1 and 2 of replica 3 that take 60 times as long, both ways
    what_if = WhatIf(job(4, 4, 8, 5, ones, slow_link=(1, 3, 60.0)))
    one, other = TP * (3 + 4), TP * (3 + 8)
    link = what_if.of_link(one, other)
    # THEN these transfers are both ends of eight messages there and eight back, and fixing them buys it
    assert link.sum() == 2 * 16
    assert what_if.buys(link).share > 0.9
    assert np.array_equal(link, what_if.of_link(other, one))
    # AND fixing another link of the same ranks, or the same one of another replica, buys nothing
    for pair in ((one - TP * 4, one), (one - TP, other - TP)):
        assert what_if.of_link(*pair).sum() == 2 * 16
        assert abs(what_if.buys(what_if.of_link(*pair)).share) < 0.1


def test_in_parts_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ops = job(4, 4, 8, 5, slow(2, 1, 1.5))
    whole = WhatIf(ops).slowest_first
    monkeypatch.setattr(module, "MOST_AT_ONCE", 1)
    np.testing.assert_array_equal(WhatIf(ops).slowest_first, whole)


def test_the_makespan_is_that_of_the_schedule() -> None:
    what_if = WhatIf(job(4, 2, 8, 2, ones, noise=0.0))
    bare_s = (8 + 4 - 1) * (FORWARD_S + BACKWARD_S)
    assert bare_s < what_if.actual_s < 1.1 * bare_s


def test_the_published_recording() -> None:
    """Published: S 1.973, Mw 1.00, Ms 0.00; one worker, of replica 0 and stage 0, computes slowly."""
    files = sorted(RECORDED.glob("*.parquet"))
    if not files:
        pytest.skip("the recordings of others are not here (../shared/data)")
    pytest.importorskip("pyarrow")
    ops = step_ops_of(read_parquet(files[0].read_bytes()))
    assert ops is not None
    what_if = WhatIf(ops)
    assert what_if.slowdown == pytest.approx(1.97, abs=0.01)
    assert what_if.slowest_workers.share == pytest.approx(1.0, abs=0.005)
    assert what_if.last_stage.share == pytest.approx(0.0, abs=0.005)
    assert explain(what_if) == (Explanation.RANKS, (0,))
