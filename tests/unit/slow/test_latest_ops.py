"""What is kept of a job's latest operations: enough iterations to go through again, also of a large job."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from whichrank.model.iterations import OP, STEP, Ops, Window
from whichrank.model.kinds import Kind
from whichrank.slow import latest_ops
from whichrank.slow.latest_ops import FEWEST, LatestOps

S = 1_000_000_000
EACH = 20
"""Operations of a rank in an iteration of a second."""


def fed(ranks: int, iterations: int) -> Iterator[tuple[LatestOps, int]]:
    """A job of which one iteration is reported at a time."""
    latest = LatestOps()
    ordinal = np.arange(1, EACH + 1)
    for iteration in range(1, iterations + 1):
        ops = np.zeros((ranks, EACH), OP)
        ops["rank"], ops["kind"], ops["peer"] = np.arange(ranks)[:, None], Kind.ALL_REDUCE, -1
        ops["counter"] = ops["ordinal"] = (iteration - 1) * EACH + ordinal
        ops["issue_ns"] = (iteration - 1) * S + ordinal * (S // (2 * EACH))
        ops["end_ns"] = ops["issue_ns"] + 1000
        steps = np.zeros(ranks, STEP)
        steps["rank"], steps["counter"], steps["ordinal"] = np.arange(ranks), iteration, iteration * EACH
        steps["at_ns"] = iteration * S
        latest.keep_steps(steps)
        latest.keep_ops(Ops.of_rows(ops.reshape(-1)), iteration - 1)  # it is named by the step that opens it
        yield latest, iteration


def window(ranks: int, last: int) -> Window:
    n = 5
    nothing = np.ones((ranks, n))
    return Window(
        np.arange(ranks), np.arange(last - n, last), nothing.astype(np.int64), nothing, nothing,
        np.zeros(ranks, np.int64), np.zeros(ranks, np.bool_), np.zeros(ranks, np.uint64), 5.0, np.full(ranks, -1),
    )  # fmt: skip


@pytest.mark.parametrize(("ranks", "replayed"), [(8, 5), (600, FEWEST)])
def test_some_iterations_are_gone_through_again_however_many_ranks_there_are(
    ranks: int, replayed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN room for less than one iteration of the larger job
    monkeypatch.setattr(latest_ops, "KEPT_OPS", 10_000)
    monkeypatch.setattr(latest_ops, "KEPT_STEPS", 1_000)
    for latest, iteration in fed(ranks, 30):
        if iteration > 20:
            # THEN there are always some in a row
            course = latest.course(window(ranks, iteration), np.array([ranks]))
            assert course is not None
            assert course.iterations == replayed
            assert len(course.rank) == ranks * replayed * (EACH + 1)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest_ops, "KEPT_OPS", 1_000)
    monkeypatch.setattr(latest_ops, "MOST_OPS", 5_000)
    for latest, _ in fed(100, 40):
        assert sum(len(part) for _, part in latest._ops) <= 5_000
    # GIVEN room for two iterations THEN no others are gone through again, though their steps are known
    course = latest.course(window(100, 40), np.array([100]))
    assert course is not None
    assert course.iterations == 2


def test_a_job_that_begins_again_lets_go_of_what_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest_ops, "KEPT_OPS", 1_000)
    latest, _ = [*fed(10, 30)][-1]
    latest.forget()
    for other, iteration in fed(10, 9):
        latest.keep_steps(other._steps[-1])
        latest.keep_ops(other._ops[-1][1], iteration - 1)
    course = latest.course(window(10, 9), np.array([10]))
    assert course is not None
    assert course.iterations == 5
