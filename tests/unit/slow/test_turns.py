"""Ranks that are slow one after the other, and those that are at once."""

from __future__ import annotations

from whichrank.slow.turns import Turns


def test_a_third_rank_takes_its_turn_once_two_are_slow_no_more() -> None:
    turns = Turns(10.0)
    polls = [{1}, {1}, {2}, {2}, set(), {3}, {3}, {3}, set(), {4}]
    reported = [turns.take(slow, slow, 2.0 * at) for at, slow in enumerate(polls)]
    # THEN also between two of them
    assert reported == [False] * 6 + [True] * 4


def test_ranks_that_are_slow_at_once_do_not_take_turns() -> None:
    turns = Turns(10.0)
    # GIVEN looks in which one or two of them are not seen
    assert not any(turns.take({1, 2, 3, 4} if at % 3 else {at % 2 + 1}, set(), float(at)) for at in range(30))
    # AND two that get well, or come back for a while
    assert not any(turns.take({1, 2}, set(), 30.0 + at) for at in range(30))
    for begin in (60, 75, 90):
        assert not any(turns.take({1, 3 + begin % 2}, set(), float(begin + at)) for at in range(5))
        assert not any(turns.take({1}, set(), float(begin + at)) for at in range(5, 15))


def test_two_that_were_slow_at_once_are_one_turn() -> None:
    turns = Turns(10.0)
    assert not any(turns.take({1, 2}, set(), float(at)) for at in range(5))
    assert not any(turns.take({3}, set(), float(at)) for at in range(10, 20))


def test_what_was_so_in_one_snapshot_is_no_turn() -> None:
    turns = Turns(10.0)
    for at, rank in ((0.0, 1), (3.0, 2)):
        turns.take({rank}, set(), at)
    assert not any(turns.take({3}, set(), float(at)) for at in range(9, 20))


def test_what_is_long_over_does_not_count() -> None:
    turns = Turns(10.0)
    for rank, begin in ((1, 0), (2, 10)):
        for at in range(3):
            turns.take({rank}, set(), float(begin + at))
    assert not turns.take({3}, set(), 27.0)


def test_a_rank_that_is_still_slow_and_delays_nobody_is_not_over() -> None:
    # GIVEN two ranks that a slower one hides
    turns = Turns(10.0)
    for begin, rank in ((0, 1), (4, 2)):
        for at in range(3):
            turns.take({rank}, {1, 2}, float(begin + at))
    assert not any(turns.take({3}, {1, 2, 3}, float(at)) for at in range(7, 20))
