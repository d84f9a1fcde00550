"""Change points: what is one and what is none, when it is reported, and what `ruptures` says of the same series."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from whichrank.detect.change_points import WARM_UP, ChangePoints

Floats = NDArray[np.float64]
NOISE = 0.03
"""Standard deviation of an iteration time, as a share of it."""


def quiet(length: int, seed: int = 0, noise: float = NOISE) -> Floats:
    """A level of 1 with noise."""
    return 1 + noise * np.random.default_rng(seed).standard_normal(length)


def found(values: Sequence[float] | Floats) -> list[tuple[int, int]]:
    """Of one series: the number of the first value of each new level, and at which value it was reported."""
    bank = ChangePoints(1)
    changes = []
    for number, value in enumerate(np.asarray(values, np.float64)):
        changes += [(int(at), number) for at in bank.feed(np.array([value])).at]
    return changes


def places(values: Sequence[float] | Floats) -> list[int]:
    """The same without the moment."""
    return [at for at, _ in found(values)]


# ---- what is a change ------------------------------------------------------------------------------------------------


def test_onset_and_relief_are_reported_at_the_third_value() -> None:
    values = quiet(200)
    values[100:150] *= 1.25
    assert found(values) == [(100, 102), (150, 152)]


def test_a_change_says_the_levels_before_and_after() -> None:
    bank, values = ChangePoints(1), quiet(120)
    values[100:] *= 1.25
    for value in values:
        changes = bank.feed(np.array([value]))
        if len(changes):
            break
    assert changes.before[0] == pytest.approx(1, abs=0.02)
    assert changes.after[0] == pytest.approx(1.25, abs=0.05)


def test_the_level_becomes_known_better_after_it_was_reported() -> None:
    bank, values = ChangePoints(1), quiet(180)
    values[100:] *= 1.25
    for value in values:
        bank.feed(np.array([value]))
    assert bank.level[0] == pytest.approx(1.25, abs=0.01)


@pytest.mark.parametrize("steps", [2, 4])
def test_small_steps_in_a_row_add_up(steps: int) -> None:
    values = quiet(100 + 40 * steps)
    for step in range(steps):
        values[100 + 40 * step :] *= 1.07
    changes = places(values)
    assert len(changes) == steps // 2
    assert changes[0] in range(138, 145)


def test_a_step_below_a_tenth_is_no_change() -> None:
    values = quiet(300)
    values[100:] *= 1.06
    assert places(values) == []


def test_up_by_less_than_a_tenth_and_down_by_more_is_one_change() -> None:
    values = quiet(300)
    values[100:200] *= 1.08
    values[200:] *= 0.92
    assert places(values) == [200]


def test_a_drift_is_reported_when_it_has_come_to_a_tenth() -> None:
    values = quiet(400) * np.linspace(1, 1.15, 400)
    assert len(places(values)) == 1


# ---- what is none ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_change(seed: int) -> None:
    assert places(quiet(400, seed)) == []


@pytest.mark.parametrize("every", [10, 25, 60])
def test_periodic_checkpoints_are_no_change(every: int) -> None:
    values = quiet(400)
    values[every - 1 :: every] *= 4
    assert places(values) == []


@pytest.mark.parametrize("values_in_a_row", [1, 2])
def test_a_pause_is_no_change(values_in_a_row: int) -> None:
    values = quiet(200)
    values[100 : 100 + values_in_a_row] *= 50
    assert places(values) == []


def test_heavy_tails_are_no_change() -> None:
    rng = np.random.default_rng(2)
    assert places(1 + 0.03 * rng.standard_t(2, 400)) == []


def test_a_slow_start_is_no_change() -> None:
    values = quiet(100)
    values[:3] *= [20, 5, 2]
    assert places(values) == []


# ---- values that are no iteration times ------------------------------------------------------------------------------


def test_values_that_are_not_finite_are_left_out_and_have_no_number() -> None:
    values = quiet(200)
    values[120:] *= 1.5
    with_gaps = np.insert(values, [0, 50, 122], [np.nan, np.inf, np.nan])
    assert places(with_gaps) == places(values) == [120]


def test_a_constant_series_has_no_change_and_its_step_is_one() -> None:
    assert places([2.0] * 200) == []
    assert places([2.0] * 100 + [2.5] * 20) == [100]


def test_zeros_have_no_change_and_what_comes_after_them_is_one() -> None:
    assert places([0.0] * 200) == []
    assert places([0.0] * 100 + [1e-9] * 20) == [100]


def test_negative_values_are_levels_too() -> None:
    values = -quiet(200)
    values[100:] *= 1.25
    assert places(values) == [100]


def test_a_huge_step_is_one_change_and_the_next_step_is_seen_as_well() -> None:
    values = quiet(300)
    values[100:] *= 1e8
    values[200:] *= 1e4
    with np.errstate(all="raise", under="ignore"):
        assert places(values) == [100, 200]


@pytest.mark.parametrize("unit", [1e-30, 1e-6, 1e9, 1e30])
def test_the_unit_does_not_matter(unit: float) -> None:
    values = quiet(300)
    values[100:150] *= 1.2
    values[220:] *= 0.7
    assert found(values * unit) == found(values)


# ---- many series -----------------------------------------------------------------------------------------------------


def test_many_series_have_the_changes_that_each_has_alone() -> None:
    # GIVEN more series than are handled at once, of which some change
    values = np.stack([quiet(140, seed % 7) for seed in range(2100)])
    values[::50, 100:] *= 1.3
    bank, together = ChangePoints(len(values)), dict[int, list[int]]()
    for number in range(values.shape[1]):
        changes = bank.feed(values[:, number])
        for series, at in zip(changes.series.tolist(), changes.at.tolist(), strict=True):
            together.setdefault(series, []).append(at)
    # THEN those change, and no other
    assert together.keys() == set(range(0, 2100, 50))
    assert all(together[series] == places(values[series]) for series in list(together)[:7])


def test_series_may_begin_later_and_come_in_any_order() -> None:
    # GIVEN series 3 that begins with feed 20, and feeds of some series, out of order
    values = quiet(200)
    values[100:] *= 1.25
    bank = ChangePoints(4)
    changes = []
    for number in range(180):
        of = np.array([2, 0]) if number < 20 else np.array([3, 0, 2])
        late = [values[number - 20]] if number >= 20 else []
        got = bank.feed(np.array([*late, 1.0, values[number]]), of)
        changes += list(zip(got.series.tolist(), got.at.tolist(), strict=True))
    # THEN numbers count from the first value of each
    assert changes == [(2, 100), (3, 100)]
    assert bank.seen.tolist() == [180, 0, 180, 160]
    assert np.isnan(bank.level[1])


def test_nothing_is_reported_of_the_first_values() -> None:
    bank = ChangePoints(1)
    for value in [1.0] * 3 + [9.0] * (WARM_UP - 3):
        assert not len(bank.feed(np.array([value])))


def test_no_values_at_all() -> None:
    bank = ChangePoints(3)
    assert not len(bank.feed(np.zeros(0), np.zeros(0, np.int64)))
    assert not len(bank.feed(np.full(3, np.nan)))


def test_memory_of_a_series_is_bounded() -> None:
    bank = ChangePoints(100)
    before = bank.nbytes
    for values in quiet(1000):
        bank.feed(np.full(100, values))
    assert bank.nbytes == before == 100 * 704


# ---- a second opinion ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_ruptures_finds_the_same_changes(seed: int) -> None:
    ruptures = pytest.importorskip("ruptures")
    # GIVEN levels that last for 40 values or more, and differ by a fifth or more
    rng = np.random.default_rng(seed)
    levels, lengths = [1.0], rng.integers(40, 90, 4)
    for _ in lengths[1:]:
        levels.append(levels[-1] * rng.choice([0.6, 0.75, 1.25, 1.5]))
    values = np.repeat(levels, lengths) * quiet(int(lengths.sum()), seed)
    # WHEN PELT has all of it (offline), and ours value by value
    sigma = 0.03 * float(np.median(values))
    penalty = 30 * sigma**2
    theirs = ruptures.Pelt(model="l2", min_size=3, jump=1).fit(values).predict(pen=penalty)[:-1]
    # THEN both name the same places
    ours = places(values)
    assert len(ours) == len(theirs) == 3
    assert np.abs(np.array(ours) - np.array(theirs)).max() <= 1
