"""A script that was not written for it reports its iterations."""

from __future__ import annotations

from whichrank.testbed.demo.clocked import clocked


def test_the_range_of_all_steps_reports_each_and_no_other_does() -> None:
    # GIVEN a script that goes through five steps, with ranges of its own in each
    begun: list[int] = []
    of = clocked(5, begun.append)
    seen = []
    for step in of(5):
        assert begun[-1] == step
        seen.append((step, list(of(2)), list(of(1, 4)), list(of(0, 5, 2))))
    # THEN it sees the numbers that it would see, and each step was reported once
    assert seen == [(step, [0, 1], [1, 2, 3], [0, 2, 4]) for step in range(5)]
    assert begun == list(range(5))
