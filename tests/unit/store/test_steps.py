"""Optimizer steps: iterations counted by the program's own word."""

from __future__ import annotations

import numpy as np

from whichrank.model.rows import RECORD
from whichrank.store.steps import KEPT, Steps

MS = 1_000_000


def stepped(rank: int, counters: range, ops: int = 10, every_ms: int = 200) -> Steps:
    """A rank that issues `ops` operations in each iteration."""
    steps = Steps()
    rows = np.zeros(len(counters), RECORD)
    rows["counter"] = list(counters)
    rows["ordinal"] = rows["counter"] * ops
    rows["t_issue_ns"] = 5_000_000 * MS + rows["counter"].astype(np.uint64) * every_ms * MS
    steps.feed(np.full(len(rows), rank), rows)
    return steps


def test_nothing_is_known_without_steps() -> None:
    steps = Steps()
    steps.feed(np.zeros(0, np.int64), np.zeros(0, RECORD))
    assert (steps.count(3), steps.iteration_of(3, 5), steps.iteration_s(4)) == (0, None, 0.0)


def test_operations_belong_to_the_iteration_whose_step_follows_them() -> None:
    # GIVEN five iterations of ten operations, of which the last step has been seen
    steps = stepped(2, range(1, 6))

    # THEN operations 1 to 10 are of iteration 0, and those after the fifth step of iteration 5
    assert steps.count(2) == 5
    assert [steps.iteration_of(2, n) for n in (1, 10, 11, 50, 51, 400)] == [0, 0, 1, 4, 5, 5]
    assert steps.iteration_of(1, 1) is None


def test_an_iteration_begins_with_the_step_before_it() -> None:
    steps = stepped(2, range(1, KEPT + 5))
    newest = KEPT + 4
    assert steps.begun_ns(2, newest) == 5_000_000 * MS + newest * 200 * MS
    assert [steps.begun_ns(*of) for of in ((2, 0), (2, 4), (2, newest + 1), (7, 1))] == [0, 0, 0, 0]


def test_what_is_too_long_ago_is_not_guessed() -> None:
    steps = stepped(0, range(1, 3 * KEPT))
    first_kept = (3 * KEPT - KEPT) * 10

    assert steps.iteration_of(0, first_kept - 10) is None
    assert steps.iteration_of(0, first_kept + 1) == 2 * KEPT


def test_losing_some_does_not_change_the_count() -> None:
    assert stepped(0, range(40, 45)).count(0) == 44


def test_seconds_from_step_to_step() -> None:
    steps = stepped(1, range(1, 4), every_ms=300)
    assert abs(steps.iteration_s(2) - 0.3) < 1e-9


def test_a_new_process_begins_anew() -> None:
    steps = stepped(1, range(1, 4))
    steps.forget(1)
    steps.forget(77)
    assert (steps.count(1), steps.iteration_of(1, 5)) == (0, None)


def test_latest_step_and_how_long_its_iteration_took() -> None:
    latest = stepped(2, range(1, 6)).latest(np.array([0, 2, 9]))
    assert latest.number.tolist() == [0, 5, 0]
    assert latest.at_ns.tolist() == [0, 5_000_000 * MS + 5 * 200 * MS, 0]
    assert latest.lasted_ns.tolist() == [0, 200 * MS, 0]
    assert stepped(0, range(1, 3)).latest(np.array([0])).lasted_ns.tolist() == [0]
    assert stepped(0, range(1, 9, 2)).latest(np.array([0])).lasted_ns.tolist() == [0]


def test_single_long_iteration_does_not_say_how_long_the_next_one_takes() -> None:
    steps = stepped(0, range(1, 6))
    late = np.zeros(1, RECORD)
    late["counter"], late["t_issue_ns"] = 6, 5_000_000 * MS + 9000 * MS
    steps.feed(np.zeros(1, np.int64), late)
    assert steps.latest(np.array([0])).lasted_ns.tolist() == [200 * MS]
