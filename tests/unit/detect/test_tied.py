"""Slow ranks of which all but one may wait for that one, and those that are slow alike by chance."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.detect.slow import Suspect
from whichrank.detect.tied import tied
from whichrank.model.iterations import Window

RANKS = 20


def window(own_s: np.ndarray) -> Window:
    n = own_s.shape[1]
    return Window(
        np.arange(RANKS), np.arange(n), np.zeros((RANKS, n), np.int64), np.ones((RANKS, n)), own_s,
        np.zeros(RANKS, np.int64), np.zeros(RANKS, np.bool_), np.zeros(RANKS, np.uint64), float(n), np.full(RANKS, -1),
    )  # fmt: skip


def suspects(count: int) -> list[Suspect]:
    return [Suspect(index, 0.5, 0.5, "peers", 1.0, 0) for index in range(count)]


@pytest.mark.parametrize("count", [2, 3, 4, 8])
@pytest.mark.parametrize("iterations", [30, 60])
def test_ranks_that_wait_for_a_slow_one_are_tied_to_it_however_many_they_are(count: int, iterations: int) -> None:
    rng = np.random.default_rng(count)
    own_s = rng.normal(0.5, 0.01, (RANKS, iterations))
    own_s[:count] += rng.normal(0.5, 0.02, iterations)
    (group,) = tied(window(own_s), suspects(count))
    assert {suspect.index for suspect in group} == set(range(count))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("count", "iterations"), [(2, 60), (10, 60)])
def test_ranks_that_are_slow_alike_each_in_its_own_way_are_not(seed: int, count: int, iterations: int) -> None:
    rng = np.random.default_rng(seed)
    own_s = rng.normal(0.5, 0.02, (RANKS, iterations))
    own_s[:count] += 0.5
    assert tied(window(own_s), suspects(count)) == []


def test_of_few_iterations_two_equal_ones_may_be_tied() -> None:
    # GIVEN two ranks that vary little WHEN little was seen THEN it is better to name none
    own_s = np.full((RANKS, 8), 0.5)
    own_s[:2] += 0.5
    assert len(tied(window(own_s), suspects(2))) == 0  # no spread at all: nothing to go by
    own_s[:2] += np.random.default_rng(1).normal(0, 0.01, 8)
    assert len(tied(window(own_s), suspects(2))) == 1
