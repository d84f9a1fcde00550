"""A new level, or noise: medians, chances, and the test made of them."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from whichrank.detect.level_shift import KEPT, at_least, is_shift, medians


def shift(old: list[float], new: list[float]) -> bool:
    """Whether the new values are another level than 1.0, to which the old ones belong."""
    values = np.array([*old, *new])[:, None]
    is_new = np.arange(len(values))[:, None] >= len(old)
    before, after = np.ones(1), np.array([np.median(new)])
    its_level = np.where(is_new, after, before)
    return bool(is_shift(values, its_level, is_new, before, after, np.full(1, 0.1), np.ones(1))[0])


def test_medians_of_some_values_of_each_column() -> None:
    values = np.array([[1.0, 9.0], [5.0, 2.0], [3.0, 4.0], [np.inf, 7.0]])
    which = np.array([[True, False], [True, True], [True, True], [False, True]])
    assert medians(values, which).tolist() == [3.0, 4.0]
    assert medians(values[:2], which[:2]).tolist() == [3.0, 2.0]


def test_chance_is_that_of_the_binomial_distribution() -> None:
    hits, trials, share = np.array([3, 0, 2]), np.array([5, 4, 64]), np.array([0.1, 0.3, 0.01])
    wanted = [
        sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(h, n + 1))
        for h, n, p in zip(hits, trials, share, strict=True)
    ]
    assert at_least(hits, trials, share) == pytest.approx(wanted)


@pytest.mark.parametrize(("earlier", "suffice"), [(10, 5), (20, 4), (30, 3), (KEPT - 3, 3)])
def test_the_more_values_are_known_the_fewer_new_ones_suffice(earlier: int, suffice: int) -> None:
    old = [1.0, 1.02] * earlier
    assert shift(old[:earlier], [1.2] * suffice)
    assert not shift(old[:earlier], [1.2] * (suffice - 1))


def test_a_series_that_has_such_values_now_and_then_has_no_new_level_by_three() -> None:
    old = [1.0] * 50
    assert shift(old, [1.5] * 3)
    old[10] = 1.5
    assert not shift(old, [1.5] * 3)
    assert shift(old, [1.5] * 5)


def test_values_that_do_not_count_change_nothing() -> None:
    values = np.array([*[1.0] * 45, *[1.5] * 3])[:, None]
    is_new = np.arange(48)[:, None] >= 45
    its_level = np.where(is_new, 1.5, 1.0)
    its_level[:30] = np.nan
    values[:30] = 99.0
    fifteen = is_shift(values, its_level, is_new, np.array([1.0]), np.array([1.5]), np.full(1, 0.1), np.ones(1))
    assert fifteen.tolist() == [shift([1.0] * 15, [1.5] * 3)]


def test_levels_that_differ_by_less_than_the_noise_are_one() -> None:
    rng = np.random.default_rng(0)
    assert not shift(list(rng.normal(1.0, 0.5, 32)), list(rng.normal(1.2, 0.5, 32)))
    assert shift(list(rng.normal(1.0, 0.5, 32)), list(rng.normal(2.5, 0.5, 32)))


def test_the_standard_error_of_few_values_comes_on_top_of_the_least_change() -> None:
    rng = np.random.default_rng(0)
    noise = 0.05 * rng.standard_normal(48)
    new = 1.13 + 0.05 * np.resize([-1, 0, 1], 16)
    assert not shift(list(1 + noise), list(new[:3]))
    assert shift(list(1 + noise), list(new))
