"""Ranks that are slow one after the other, and those that are at once."""

from __future__ import annotations

from whichrank.analyzer.slow.turns import Turns


def test_a_third_rank_takes_its_turn_once_two_are_slow_no_more() -> None:
    turns = Turns(10.0)
    looks = [{1}, {1}, {2}, set(), {3}, {3}, set()]
    assert [turns.take(slow, slow, 2.0 * at) for at, slow in enumerate(looks)] == [False] * 5 + [True, False]


def test_ranks_that_are_slow_at_once_do_not_take_turns() -> None:
    turns = Turns(10.0)
    # GIVEN looks in which one or two of them are not seen
    assert not any(turns.take({1, 2, 3} if at % 3 else {at % 2 + 1}, set(), float(at)) for at in range(30))
    # AND one that gets well
    assert not any(turns.take({1, 2}, set(), 30.0 + at) for at in range(30))


def test_what_is_long_over_does_not_count() -> None:
    turns = Turns(10.0)
    turns.take({1}, set(), 0.0)
    turns.take({2}, set(), 10.0)
    assert not turns.take({3}, set(), 25.0)


def test_a_rank_that_is_still_slow_and_delays_nobody_is_not_over() -> None:
    # GIVEN two ranks that a slower one hides
    turns = Turns(10.0)
    turns.take({1, 2}, {1, 2}, 0.0)
    assert not any(turns.take({3}, {1, 2, 3}, float(at)) for at in range(1, 18))
