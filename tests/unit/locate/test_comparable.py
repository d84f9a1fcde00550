"""Communicators that take longer than comparable ones."""

from __future__ import annotations

import numpy as np
from simulated import Call, Compute, Program, run

from whichrank.locate.comparable import LongGroup, _median_of_others, long_groups
from whichrank.model.iterations import Ops

MS = 1e-3


def long_in(programs: list[Program], transfer: dict[int, float], iteration_s: float = 0.05) -> list[LongGroup]:
    """What is found if transfers of some communicators take so many times as long."""
    ops, steps = run(programs, 12, transfer=lambda comm, _: transfer.get(comm, 1.0)).arrays()
    size = np.zeros(int(ops["comm"].max()) + 1, np.int64)
    for comm in np.unique(ops["comm"]):
        size[comm] = len(np.unique(ops["rank"][ops["comm"] == comm]))
    some = steps[(steps["counter"] >= 3) & (steps["counter"] <= 9)]
    return long_groups([Ops.of_rows(ops)], some, size, iteration_s)


def replicas(elements: dict[int, int] | None = None, transfer_s: float = 10 * MS) -> list[Program]:
    """Four communicators of two ranks that reduce as much each, but for those with other sizes."""
    sizes = elements or {}
    return [
        [Compute(20 * MS), Call(rank // 2, transfer_s=transfer_s, elements=sizes.get(rank // 2, 1000))]
        for rank in range(8)
    ]


def test_one_that_takes_longer_is_found_and_by_how_much() -> None:
    (found,) = long_in(replicas(), {2: 1.5})
    assert (found.comm, round(found.times, 2), found.comparable) == (2, 1.5, 3)


def test_the_longest_comes_first() -> None:
    assert [group.comm for group in long_in(replicas(), {1: 1.4, 3: 2.0})] == [3, 1]


def test_a_tenth_is_no_difference() -> None:
    assert long_in(replicas(), {2: 1.08}) == []


def test_one_that_moves_something_else_is_not_comparable() -> None:
    # GIVEN one that takes longer and moves more, and no other like it
    assert long_in(replicas({2: 5000}), {2: 5.0}) == []
    # WHEN there is another like it, which is quick THEN it takes longer
    (found,) = long_in(replicas({2: 5000, 3: 5000}), {2: 5.0})
    assert (found.comm, round(found.times, 2), found.comparable) == (2, 5.0, 1)


def test_each_is_held_against_the_median_of_the_others() -> None:
    rng = np.random.default_rng(3)
    for count in range(2, 9):
        values = rng.uniform(1.0, 5.0, count)
        expected = [np.median(np.delete(values, at)) for at in range(count)]
        assert np.allclose(_median_of_others(values), expected)


def test_those_that_move_something_else_in_each_iteration_are_not_comparable() -> None:
    # GIVEN tokens that are exchanged unevenly, as by experts
    programs = replicas()
    reported = run(programs, 12, transfer=lambda comm, _: 3.0 if comm == 2 else 1.0)
    rng = np.random.default_rng(1)
    reported.ops = [(*op[:7], int(rng.integers(500, 1500)), *op[8:]) for op in reported.ops]
    ops, steps = reported.arrays()
    some = steps[(steps["counter"] >= 3) & (steps["counter"] <= 9)]
    assert long_groups([Ops.of_rows(ops)], some, np.full(4, 2), 0.05) == []


def test_what_hardly_takes_any_of_an_iteration_does_not_matter() -> None:
    assert long_in(replicas(transfer_s=0.1 * MS), {2: 3.0}) == []


def test_without_iterations_nothing_is_found() -> None:
    ops, steps = run(replicas(), 3).arrays()
    assert long_groups([Ops.of_rows(ops)], steps[:0], np.full(4, 2), 0.05) == []
