"""Does a rank cost the job enough to be reported, as far as that can be measured?"""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.detect.slow import Suspect
from whichrank.slow.effect import has_effect

ITERATIONS = 12


def ends_s(each_s: float | np.ndarray) -> np.ndarray:
    """When each iteration is over; the first one, in which ranks fall into step, may take any time."""
    return 7.0 + np.cumsum(np.append(0.0, np.full(ITERATIONS - 1, 1.0) * each_s))


def costs(share: float, apart: float, *, since: int = 0, comes_and_goes: bool = False) -> bool:
    """Whether this share of an iteration is an effect, in the mean of iterations that differ by it."""
    varied = np.where(np.arange(ITERATIONS - 1) % 2 == 0, 1.0, -1.0) * apart
    varied -= varied.mean()
    suspect = Suspect(0, 0.1, 1.0, "peers", 1.0, 0, comes_and_goes)
    return has_effect(suspect, ends_s(1.0), ends_s(1.0 + share + varied), since)


@pytest.mark.parametrize(
    ("share", "apart", "expected"),
    [
        (0.051, 0.0, True),
        (0.049, 0.0, False),  # it is known that it costs less
        (0.042, 0.03, True),  # 4.2 +/- 0.9 %: it may as well be 5 %
        (0.042, 0.01, False),  # 4.2 +/- 0.3 %
        (0.029, 0.2, False),  # however inexact: too little was measured
        (0.051, 0.2, True),
    ],
)
def test_a_rank_is_let_off_where_it_is_likely_that_it_costs_less(share: float, apart: float, expected: bool) -> None:
    assert costs(share, apart) is expected


def test_of_what_comes_and_goes_the_mean_counts() -> None:
    # GIVEN iterations that differ since most of them are as usual
    assert costs(0.051, 0.05, comes_and_goes=True) is True
    assert costs(0.042, 0.05, comes_and_goes=True) is False


def test_iterations_before_it_began_do_not_count() -> None:
    # GIVEN a rank that costs 6 % in the last four iterations of twelve
    longer = np.where(np.arange(1, ITERATIONS) >= 8, 0.06, 0.0)
    suspect = Suspect(0, 0.1, 1.0, "peers", 1.0, 0)
    assert has_effect(suspect, ends_s(1.0), ends_s(1.0 + longer), since=8) is True
    # BUT with as many from before it, it is 3 %, and these are alike
    assert has_effect(suspect, ends_s(1.0), ends_s(1.03), since=4) is False


def test_what_is_not_known_is_no_effect() -> None:
    suspect = Suspect(0, 0.1, 1.0, "peers", 1.0, 0)
    unknown = np.full(ITERATIONS, np.nan)
    assert has_effect(suspect, unknown, unknown, since=0) is False
    assert has_effect(suspect, unknown[:1], unknown[:1], since=0) is False


def test_a_single_iteration_counts_as_it_is() -> None:
    suspect = Suspect(0, 0.1, 1.0, "peers", 1.0, 0)
    assert has_effect(suspect, np.array([1.0]), np.array([1.06]), since=0) is True
    assert has_effect(suspect, np.array([1.0]), np.array([1.04]), since=0) is False
