"""Microbatches for groups of which some are slow."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from whichrank.act.rebalance import balanced, iteration_s


def best_of_all(seconds: np.ndarray, total: int, multiple: int) -> float:
    """The shortest iteration, by trying every split."""
    parts = total // multiple
    each = itertools.product(range(1, parts + 1), repeat=len(seconds) - 1)
    splits = [(*some, parts - sum(some)) for some in each if sum(some) < parts]
    return float((multiple * np.array(splits) * seconds).max(axis=1).min())


def test_slow_group_gets_fewer_and_the_others_more() -> None:
    counts = balanced(np.array([1.0, 1.0, 2.0, 1.0]), 28)
    assert counts.tolist() == [8, 8, 4, 8]
    assert iteration_s(np.array([1.0, 1.0, 2.0, 1.0]), counts) == 8.0


def test_groups_that_are_alike_share_evenly() -> None:
    assert balanced(np.full(4, 0.3), 32).tolist() == [8] * 4
    assert sorted(balanced(np.full(4, 0.3), 30).tolist()) == [7, 7, 8, 8]


@pytest.mark.parametrize("seed", range(40))
def test_no_split_is_quicker(seed: int) -> None:
    # GIVEN groups of which some are alike, and some far slower than others
    rng = np.random.default_rng(seed)
    groups, multiple = int(rng.integers(2, 5)), int(rng.choice([1, 1, 2, 4]))
    seconds = rng.choice(
        [rng.uniform(0.5, 1.5, groups), rng.integers(1, 4, groups) / 10, 10 ** rng.uniform(-2, 1, groups)]
    )
    total = multiple * int(rng.integers(groups, 16))
    counts = balanced(seconds, total, multiple)
    # THEN all microbatches are given out as told
    assert counts.sum() == total
    assert (counts >= multiple).all()
    assert not (counts % multiple).any()
    # AND no other split is quicker
    assert iteration_s(seconds, counts) == pytest.approx(best_of_all(seconds, total, multiple), rel=1e-12)


@pytest.mark.parametrize("groups", [512, 16_384])
def test_many_groups_are_as_good_as_the_bound(groups: int) -> None:
    # GIVEN so many microbatches that the bound of real numbers is nearly reached
    rng = np.random.default_rng(groups)
    seconds = rng.uniform(1.0, 3.0, groups)
    total = 500 * groups
    counts = balanced(seconds, total)
    assert counts.sum() == total
    bound = total / (1.0 / seconds).sum()
    assert bound <= iteration_s(seconds, counts) <= 1.01 * bound


def test_as_few_as_there_are_groups() -> None:
    assert balanced(np.array([1.0, 1e9, 1e-9]), 3).tolist() == [1, 1, 1]
    assert balanced(np.array([5.0]), 6, 3).tolist() == [6]


@pytest.mark.parametrize(
    ("seconds", "total", "multiple", "why"),
    [
        ([1.0, 1.0], 1, 1, "too few"),
        ([1.0, 1.0], 6, 4, "parts of 4"),
        ([1.0, 1.0], 6, 0, "parts of 0"),
        ([1.0, 0.0], 6, 1, "known of each"),
        ([1.0, np.nan], 6, 1, "known of each"),
        ([], 6, 1, "too few"),
    ],
)
def test_what_has_no_answer(seconds: list[float], total: int, multiple: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        balanced(np.array(seconds), total, multiple)
