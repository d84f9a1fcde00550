"""Whether ranks may be compared by the lines that a log has of their collectives."""

from __future__ import annotations

import pytest

from whichrank.intake.counts_in_doubt import are_comparable


@pytest.mark.parametrize(
    ("last", "comparable"),
    [
        ((9, 9, 9, 9), True),
        ((9, 9, 9, 8), True),  # one alone may be late
        ((9, 9, 8, 8), False),  # the log ends within a round
        ((9, 9, 8, 6), True),  # nobody is behind by more than one at a cut
        ((9, 9, 9, 0), True),
    ],
)
def test_a_log_that_ends_within_a_round(last: tuple[int, ...], comparable: bool) -> None:
    assert are_comparable([range(1, one + 1) for one in last]) is comparable


def test_a_rank_without_a_line_that_others_have_may_lack_its_last_ones_too() -> None:
    whole = [1, 2, 3, 4, 5]
    assert not are_comparable([whole, whole, [1, 2, 4, 5], [1, 2, 3]])
    assert are_comparable([whole, whole, whole, [1, 2, 3]])


def test_numbers_that_all_ranks_lack_are_no_loss() -> None:
    assert are_comparable([[1, 4, 5, 9], [1, 4, 5, 9], [1, 4]])


def test_only_the_last_numbers_of_each_are_known() -> None:
    assert are_comparable([range(40, 100), range(20, 80)])
    assert are_comparable([])
