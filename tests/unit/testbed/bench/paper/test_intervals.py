"""Statistics of the paper's tables, against values computed by hand."""

from __future__ import annotations

import pytest

from whichrank.testbed.bench.paper.intervals import Counts, share


def test_share_has_wilsons_interval() -> None:
    # GIVEN 8 of 10: middle (0.8 + 0.192) / 1.384 = 0.717, half 1.96 * sqrt(0.016 + 0.0096) / 1.384 = 0.227
    found = share(8, 10)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.8, 0.490, 0.943), abs=5e-4)


def test_interval_of_all_does_not_end_at_all() -> None:
    found = share(200, 200)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((1.0, 0.9811, 1.0), abs=5e-4)
    assert share(0, 0) is None


def test_wrong_name_is_missed_and_false() -> None:
    # GIVEN 8 right, 1 wrong where another one was due, 1 silent, 2 wrong where nothing was due, 5 others
    counts = Counts(8, 1, 1, 2, 5)
    assert counts.recall
    assert counts.precision
    assert counts.f1
    assert counts.recall.value == pytest.approx(8 / 10)
    assert counts.precision.value == pytest.approx(8 / 11)
    # THEN F1 is their harmonic mean, and resampling gives a range around it
    assert counts.f1.value == pytest.approx(2 * 8 / (2 * 8 + 3 + 2))
    assert 0.4 < counts.f1.low < counts.f1.value < counts.f1.high < 1.0


def test_runs_in_which_nothing_was_due_do_not_count() -> None:
    assert Counts(other=7).f1 is None
    assert Counts(right=3, other=50).f1 == Counts(right=3).f1
