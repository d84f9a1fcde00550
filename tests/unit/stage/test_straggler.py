"""Who put an iteration off, and in which block."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.stage.layout import Layout
from whichrank.stage.schedules import Phase, gpipe, interleaved, one_f_one_b
from whichrank.stage.straggler import Pipelines, Straggler

LAYOUT = Layout(tp=4, dp=8, pp=4)
FORWARD_S, BACKWARD_S, NOISE = 0.04, 0.08, 0.02
SCHEDULES = (one_f_one_b(4, 8), gpipe(4, 8), interleaved(4, 2, 8))


def usual(pipelines: Pipelines) -> np.ndarray:
    """Expected seconds of each block, (n,)."""
    return np.where(pipelines.schedule.phase == Phase.FORWARD, FORWARD_S, BACKWARD_S)


def healthy(pipelines: Pipelines, rng: np.random.Generator) -> np.ndarray:
    """Own times of all ranks, (P, m, n)."""
    shape = (*pipelines.ranks.shape[:2], len(pipelines.schedule.rank))
    return np.asarray(usual(pipelines) * rng.lognormal(0.0, NOISE, shape))


def names(found: tuple[Straggler, ...]) -> list[tuple[int, int]]:
    return [(one.rank, one.block) for one in found]


def test_a_rank_is_named_with_its_block_and_what_it_costs() -> None:
    # GIVEN a pipeline of which rank 21 takes 0.5 s for a block that should take 0.08 s, last of the iteration
    pipelines = Pipelines.of(LAYOUT, one_f_one_b(4, 8))
    assert pipelines.ranks.shape == (8, 4, 4)
    rank, schedule = 21, pipelines.schedule
    replica, member, place = (int(at[0]) for at in np.nonzero(pipelines.ranks == rank))
    block = int(np.flatnonzero((schedule.rank == place) & (schedule.microbatch == 7) & (schedule.phase == 1))[0])
    own_s = np.broadcast_to(usual(pipelines), (8, 4, len(schedule.rank))).copy()
    own_s[replica, member, block] = 0.5
    # WHEN the iteration is judged
    (found,) = pipelines.stragglers(own_s, usual(pipelines))
    # THEN it is named
    assert (found.rank, found.block) == (rank, block)
    assert (found.stage, found.phase, found.microbatch) == (place, Phase.BACKWARD, 7)
    assert found.excess_s == pytest.approx(0.42)
    assert found.saved_s == pytest.approx(0.42)


def test_the_last_to_enter_is_named_and_not_who_waited_longest() -> None:
    pipelines = Pipelines.of(Layout(tp=2, pp=2), gpipe(2, 2))
    own_s = np.ones((1, 2, len(pipelines.schedule.rank)))
    own_s[0, 1, 0] = 2.0  # the other one waits for a second in their all-reduce
    assert names(pipelines.stragglers(own_s, np.ones(own_s.shape[2]))) == [(1, 0)]


def test_an_excess_that_a_bubble_absorbs_is_not_named() -> None:
    # GIVEN the last forward pass before the first gradient comes back
    pipelines = Pipelines.of(Layout(pp=4), one_f_one_b(4, 8))
    own_s = np.ones((1, 1, len(pipelines.schedule.rank)))
    own_s[0, 0, 3] = 2.0
    # THEN it may take twice as long: three seconds are free
    assert not pipelines.stragglers(own_s, np.ones(own_s.shape[2]))
    # AND of a longer one only what is not absorbed would be saved
    own_s[0, 0, 3] = 9.0
    (found,) = pipelines.stragglers(own_s, np.ones(own_s.shape[2]))
    assert found.excess_s == 8.0
    assert found.saved_s == pytest.approx(5.0)


def test_a_slower_pipeline_elsewhere_absorbs_it_too() -> None:
    # GIVEN a pipeline all of whose blocks take 1.4 times as long, which is not anomalous
    pipelines = Pipelines.of(Layout(dp=2, pp=2), gpipe(2, 4))
    own_s = np.ones((2, 1, len(pipelines.schedule.rank)))
    own_s[1] = 1.4
    # WHEN a block of the other one takes a second longer
    own_s[0, 0, 0] = 2.0
    # THEN it is not what the iteration waits for
    assert not pipelines.stragglers(own_s, np.ones(own_s.shape[2]))
    # AND of a longer one that counts by which it is beyond the other pipeline
    own_s[0, 0, 0] = 7.0
    (found,) = pipelines.stragglers(own_s, np.ones(own_s.shape[2]))
    assert found.saved_s == pytest.approx(16 - 14)


def test_nobody_is_named_on_healthy_noise() -> None:
    rng = np.random.default_rng(0)
    for schedule in SCHEDULES:
        pipelines = Pipelines.of(LAYOUT, schedule)
        for _ in range(100):
            assert not pipelines.stragglers(healthy(pipelines, rng), usual(pipelines))


def test_a_rank_that_is_slow_throughout_is_named_in_several_blocks() -> None:
    pipelines = Pipelines.of(LAYOUT, one_f_one_b(4, 8))
    own_s = healthy(pipelines, np.random.default_rng(1))
    own_s[2, 3, pipelines.schedule.rank == 1] *= 2.5
    found = pipelines.stragglers(own_s, usual(pipelines))
    assert len(found) > 1
    assert {one.rank for one in found} == {int(pipelines.ranks[2, 3, 1])}


@pytest.mark.parametrize("among_all", [False, True])
def test_faults_of_random_place_and_size(among_all: bool) -> None:
    """The truth is the effect on the iteration, as in the paper: a fault that matters is named, no other rank is."""
    rng = np.random.default_rng(7)
    everyone = np.arange(LAYOUT.dp)
    for trial in range(300):
        pipelines = Pipelines.of(LAYOUT, SCHEDULES[trial % 3])
        own_s = healthy(pipelines, rng)
        before_s = pipelines.graph.makespan(own_s.max(axis=1)).max()
        at = tuple(int(rng.integers(size)) for size in own_s.shape)
        own_s[at] += np.exp(rng.uniform(np.log(0.05), np.log(30)))
        lost_s = pipelines.graph.makespan(own_s.max(axis=1)).max() - before_s
        found = pipelines.stragglers(own_s, usual(pipelines), among=everyone if among_all else None)
        truth = (int(pipelines.ranks[at[0], at[1], pipelines.schedule.rank[at[2]]]), at[2])
        assert names(found) in ([truth], [])
        if lost_s > 0.05 * before_s:
            assert names(found) == [truth]


def test_pruned_and_full_analysis_name_the_same() -> None:
    rng = np.random.default_rng(3)
    differ = 0
    for trial in range(200):
        pipelines = Pipelines.of(LAYOUT, SCHEDULES[trial % 3])
        own_s = healthy(pipelines, rng)
        for _ in range(int(rng.integers(1, 4))):
            own_s[tuple(int(rng.integers(size)) for size in own_s.shape)] += rng.exponential(0.5)
        pruned = pipelines.stragglers(own_s, usual(pipelines))
        full = pipelines.stragglers(own_s, usual(pipelines), among=np.arange(LAYOUT.dp))
        differ += names(pruned) != names(full)
    assert differ == 0
