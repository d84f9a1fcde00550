"""Paired costs: the estimate is right in the mean, and the bound holds as often as it says."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.testbed.bench.paired import paired


def noisy(pairs: int, cost: float, noise: float, seed: int) -> tuple[list[float], list[float]]:
    """Blocks of 100 ms on a machine that drifts by half, slower with than without by `cost`."""
    draw = np.random.default_rng(seed)
    drift = 0.1 * (1 + 0.25 * np.sin(np.arange(pairs) / 7))
    off = drift * (1 + noise * draw.standard_normal(pairs))
    on = drift * (1 + cost) * (1 + noise * draw.standard_normal(pairs))
    return off.tolist(), on.tolist()


def test_drift_of_the_machine_falls_on_both_sides() -> None:
    # GIVEN a cost of 1 % on a machine that drifts by half but has no other noise
    result = paired(*noisy(pairs=40, cost=0.01, noise=0.0, seed=1))
    # THEN it is found exactly, and the bound is next to it
    assert result.mean == pytest.approx(0.01)
    assert 0.01 <= result.upper < 0.0103
    assert result.n == 40
    assert result.low <= result.median <= result.high
    assert result.resolution < 0.001


@pytest.mark.parametrize("pairs", [10, 40])
def test_bound_holds_about_nineteen_times_of_twenty(pairs: int) -> None:
    # GIVEN three hundred measurements of a cost of 0.1 % in noise of 2 %
    results = [paired(*noisy(pairs, 0.001, 0.02, seed)) for seed in range(300)]
    # THEN the true cost is below the bound in about 95 % of them, and the estimates lie around it
    assert 0.91 <= np.mean([r.upper >= 0.001 for r in results]) <= 0.99
    assert np.mean([r.mean for r in results]) == pytest.approx(0.001, abs=0.001)


def test_estimate_is_not_driven_up_by_noise() -> None:
    # GIVEN no cost and noise of 20 %, where the mean of the ratios would say +4 %
    results = [paired(*noisy(20, 0.0, 0.2, seed)).mean for seed in range(200)]
    assert np.mean(results) == pytest.approx(0.0, abs=0.01)


def test_rare_expensive_block_counts() -> None:
    # GIVEN an agent that falls into one block of ten and doubles it
    off, on = [0.1] * 10, [0.1] * 9 + [0.2]
    result = paired(off, on)
    # THEN the median does not see it, the mean and the bound do
    assert result.median == 0.0
    assert result.mean == pytest.approx(0.1)
    assert result.upper > 0.1


def test_resolution_says_how_many_pairs_are_needed() -> None:
    result = paired(*noisy(pairs=400, cost=0.0, noise=0.01, seed=3))
    needed = result.pairs_for(0.001)
    # THEN that many pairs of the same noise resolve it
    assert paired(*noisy(needed, 0.0, 0.01, seed=4)).resolution == pytest.approx(0.001, rel=0.15)


def test_same_figures_give_the_same_bound() -> None:
    figures = noisy(20, 0.001, 0.02, seed=5)
    assert paired(*figures) == paired(*figures)


@pytest.mark.parametrize(("off", "on"), [([], []), ([1.0], [1.0]), ([1.0, 1.0], [1.0])])
def test_too_few_figures_are_refused(off: list[float], on: list[float]) -> None:
    with pytest.raises(ValueError, match="make no 2 pairs"):
        paired(off, on)
