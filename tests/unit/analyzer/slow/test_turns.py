"""Ranks that are slow one after the other, and those that are at once."""

from __future__ import annotations

from whichrank.analyzer.slow.turns import Turns


def test_the_third_rank_in_turn_is_one_of_those_that_take_turns() -> None:
    turns = Turns(20.0)
    assert [turns.take(slow, 2.0 * at) for at, slow in enumerate([{1}, {1}, {2}, set(), {3}, set()])] == [
        False, False, False, False, True, True,
    ]  # fmt: skip


def test_ranks_that_are_slow_at_once_do_not_take_turns() -> None:
    turns = Turns(20.0)
    assert not any(turns.take({1, 2, 3}, float(at)) for at in range(10))
    # GIVEN that one of them gets well
    assert not any(turns.take({1, 2}, 10.0 + at) for at in range(10))


def test_what_is_long_over_does_not_count() -> None:
    turns = Turns(20.0)
    turns.take({1}, 0.0)
    turns.take({2}, 10.0)
    assert not turns.take({3}, 25.0)
