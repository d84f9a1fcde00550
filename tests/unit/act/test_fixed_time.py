"""What is the same whatever a replica's share is, by what those take that are not slow."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.act.fixed_time import MOST, FixedTime

EVEN, OTHER = np.array([4, 4, 4, 4]), np.array([5, 5, 2, 4])
NOBODY = np.zeros(4, np.bool_)
THIRD = np.array([False, False, True, False])


def seen(first_s: np.ndarray, then_s: np.ndarray) -> FixedTime:
    fixed = FixedTime()
    fixed.see(0, EVEN, 9 * first_s)
    fixed.see(0, EVEN, first_s)
    fixed.see(1, OTHER, then_s)
    return fixed


def test_it_is_not_known_before_shares_change() -> None:
    fixed = FixedTime()
    assert fixed.seconds(NOBODY) == 0.0
    fixed.see(0, EVEN, np.ones(4))
    assert fixed.seconds(NOBODY) == 0.0


def test_it_is_what_is_left_of_those_that_are_not_slow() -> None:
    times = np.array([0.1, 0.1, 0.2, 0.1])
    fixed = seen(0.3 + times * EVEN, 0.3 + times * OTHER)
    assert fixed.seconds(THIRD) == pytest.approx(0.3)


def test_who_was_slow_and_has_recovered_says_nothing_of_it() -> None:
    before, after = np.array([0.1, 0.1, 0.4, 0.1]), np.full(4, 0.1)
    fixed = seen(0.3 + before * EVEN, 0.3 + after * OTHER)
    assert fixed.seconds(THIRD) == pytest.approx(0.3)
    assert fixed.seconds(np.ones(4, np.bool_)) == 0.0


@pytest.mark.parametrize(("jitter_s", "expected_s"), [(-0.3, MOST * 0.1), (0.3, 0.0), (1e-9, 0.0)])
def test_what_cannot_be_is_not_believed(jitter_s: float, expected_s: float) -> None:
    first_s = 0.1 * EVEN
    then_s = np.where(OTHER > EVEN, first_s + 0.1 + jitter_s, 0.4)
    fixed = seen(first_s, np.where(THIRD, 0.1, then_s))
    assert fixed.seconds(THIRD) == pytest.approx(expected_s)
