"""Run lengths against the exact recursion, written out, and against the package `changepoint`."""

from __future__ import annotations

import math

import numpy as np
import pytest

from whichrank.detect.run_lengths import (
    HAZARD,
    LONGEST_RUN,
    PRIOR_MEAN_WEIGHT,
    PRIOR_VARIANCE_WEIGHT,
    RUNS,
    RunLengths,
)

CASES = {
    "quiet": [0.1, -0.4, 0.7, 0.0, -1.2, 0.3, 0.5, -0.2],
    "a step": [0.1, -0.4, 0.7, 0.0, 8.2, 7.9, 8.4, 8.0],
    "an outlier": [0.1, -0.4, 0.7, 30.0, 0.2, 0.3, 0.5, -0.2],
    "equal values": [0.0] * 8,
}


def fed(values: list[float], runs: int) -> RunLengths:
    """One series that has these values."""
    lengths = RunLengths(1, runs)
    for number, value in enumerate(values):
        lengths.feed(np.array([0]), np.array([number]), np.array([value]))
    return lengths


def predictive(value: float, earlier: list[float]) -> float:
    """Density of the value after the earlier ones of its run: Student's t of the normal-gamma model, from scratch."""
    n, mean = len(earlier), float(np.mean(earlier)) if earlier else 0.0
    weight, alpha = PRIOR_MEAN_WEIGHT + n, PRIOR_VARIANCE_WEIGHT + n / 2
    scale = 1.0 + sum((x - mean) ** 2 for x in earlier) / 2
    scale += PRIOR_MEAN_WEIGHT * n * mean**2 / (2 * weight)
    centre, width2 = n * mean / weight, scale * (weight + 1) / (alpha * weight)
    norm = math.gamma(alpha + 0.5) / math.gamma(alpha) / math.sqrt(2 * alpha * math.pi * width2)
    return norm * (1 + (value - centre) ** 2 / (2 * alpha * width2)) ** -(alpha + 0.5)


def exact(values: list[float]) -> dict[int, float]:
    """By number of a value: how likely the level begins with it. No run is dropped, no logarithm taken."""
    p = {0: 1.0}
    for number, value in enumerate(values):
        joint = {began: p[began] * predictive(value, values[began:number]) for began in p}
        total = sum(joint.values())
        p = {began: (1 - HAZARD) * one / total for began, one in joint.items()}
        p[number + 1] = HAZARD
    return p


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_exact_recursion_where_nothing_is_dropped(name: str) -> None:
    values = CASES[name]
    found = fed(values, runs=len(values) + 1).likelihoods(0)
    assert found == pytest.approx(exact(values), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_the_package_changepoint_finds_the_same(name: str) -> None:
    changepoint = pytest.importorskip("changepoint")
    # GIVEN its normal-gamma prior, in which a precision has shape v/2 and rate s/2
    theirs = changepoint.Bocpd(
        changepoint.NormalGamma(0.0, PRIOR_MEAN_WEIGHT, 2.0, 2 * PRIOR_VARIANCE_WEIGHT), 1 / HAZARD
    )
    values = CASES[name]
    # WHEN both take the values, of which it leaves the first one out (version 0.4)
    by_length = [list(theirs.step(value)) for value in [0.0, *values]][-1]
    found = fed(values, runs=len(values) + 1).likelihoods(0)
    # THEN all run lengths have the same likelihoods
    assert [found[len(values) - length] for length in range(len(values) + 1)] == pytest.approx(
        by_length, rel=1e-3, abs=1e-6
    )


def test_few_runs_find_the_step_as_well() -> None:
    rng = np.random.default_rng(0)
    values = [*rng.normal(0, 1, 60), *rng.normal(8, 1, 10)]
    found, every = fed(values, RUNS).likelihoods(0), exact(values)
    assert len(found) == RUNS
    assert found[60] == pytest.approx(every[60], rel=0.01)


def test_likelihoods_add_up_to_one_after_thousands_of_values() -> None:
    rng = np.random.default_rng(1)
    found = fed(list(rng.normal(0, 1, 3 * LONGEST_RUN)), RUNS).likelihoods(0)
    assert sum(found.values()) == pytest.approx(1, abs=1e-4)


def test_that_a_level_begins_now_has_the_likelihood_of_the_hazard_whatever_comes() -> None:
    for values in CASES.values():
        assert fed(values, RUNS).likelihoods(0)[len(values)] == pytest.approx(HAZARD, rel=1e-5)


def test_a_level_that_began_after_a_value() -> None:
    lengths = fed(CASES["a step"], RUNS)
    likelihood, began = lengths.begun_after(np.array([0]), np.array([0]))
    assert likelihood[0] > 0.9
    assert began[0] == 4
    likelihood, _ = lengths.begun_after(np.array([0]), np.array([4]))
    assert likelihood[0] < 0.1


def test_values_beyond_all_bounds_break_nothing() -> None:
    with np.errstate(all="raise", under="ignore"):
        found = fed([0.1, 1e300, -1e300, 0.0, 0.2], RUNS).likelihoods(0)
    assert sum(found.values()) == pytest.approx(1, abs=1e-4)


def test_series_do_not_mix() -> None:
    # GIVEN three series, of which one has a step, and only some get each value
    lengths = RunLengths(3)
    for number, value in enumerate(CASES["a step"]):
        lengths.feed(np.array([2, 0]), np.array([number, number]), np.array([value, CASES["quiet"][number]]))
    # THEN each has the runs that it would have alone
    assert lengths.likelihoods(2) == pytest.approx(fed(CASES["a step"], RUNS).likelihoods(0))
    assert lengths.likelihoods(0) == pytest.approx(fed(CASES["quiet"], RUNS).likelihoods(0))
    assert lengths.likelihoods(1) == {0: 1.0}


def test_memory_of_a_series() -> None:
    assert RunLengths(1000).nbytes == 1000 * RUNS * 16
