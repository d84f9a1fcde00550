"""The trace graph, beside the longest path found by recursion."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whichrank.stage.graph import Graph
from whichrank.stage.schedules import Phase, Schedule, from_csv, gpipe, interleaved, one_f_one_b

ZERO_BUBBLE = ["0F0,0F1,,0I0,0W0,0I1,0W1", ",1F0,1I0,1F1,1I1,1W0,1W1"]
SCHEDULES = {
    "gpipe": gpipe(3, 4),
    "1f1b": one_f_one_b(4, 6),
    "interleaved": interleaved(2, 2, 4),
    "zero bubble": from_csv(ZERO_BUBBLE),
}


def by_recursion(schedule: Schedule, lasts: list[float], moves: list[float]) -> tuple[list[float], list[float]]:
    """Earliest end of each block, and the longest way from its start to the end of the iteration."""
    edges = list(zip(*(column.tolist() for column in schedule.edges), moves, strict=True))

    @cache
    def end(block: int) -> float:
        return max((end(before) + move for before, after, move in edges if after == block), default=0.0) + lasts[block]

    @cache
    def rest(block: int) -> float:
        return max((rest(after) + move for before, after, move in edges if before == block), default=0.0) + lasts[block]

    blocks = range(len(lasts))
    return [end(block) for block in blocks], [rest(block) for block in blocks]


@given(name=st.sampled_from(sorted(SCHEDULES)), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_times_are_those_of_the_longest_paths(name: str, seed: int) -> None:
    # GIVEN blocks and transfers of random length, some of none
    schedule, rng = SCHEDULES[name], np.random.default_rng(seed)
    lasts = rng.exponential(1.0, len(schedule.rank)) * (rng.random(len(schedule.rank)) > 0.1)
    moves = rng.exponential(0.2, len(schedule.edges[0]))
    # WHEN the graph is gone through
    graph = Graph.of(schedule)
    times = graph.times(lasts, moves)
    # THEN all is as by recursion
    ends, rests = by_recursion(schedule, lasts.tolist(), moves.tolist())
    np.testing.assert_allclose(times.end_s, ends)
    np.testing.assert_allclose(times.start_s, ends - lasts, atol=1e-9)
    assert times.makespan_s == pytest.approx(max(ends))
    np.testing.assert_allclose(times.latest_s, max(ends) - np.array(rests), atol=1e-9)
    np.testing.assert_allclose(times.slack_s, times.latest_s - times.start_s, atol=1e-12)
    assert graph.makespan(lasts, moves) == pytest.approx(max(ends))


@given(name=st.sampled_from(sorted(SCHEDULES)), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_the_critical_path_is_a_chain_that_fills_the_makespan(name: str, seed: int) -> None:
    schedule, rng = SCHEDULES[name], np.random.default_rng(seed)
    lasts = rng.exponential(1.0, len(schedule.rank))
    graph = Graph.of(schedule)
    path = graph.critical_path(lasts, 0.1)
    edges = set(zip(*(column.tolist() for column in schedule.edges), strict=True))
    assert all(pair in edges for pair in zip(path[:-1].tolist(), path[1:].tolist(), strict=True))
    times = graph.times(lasts, 0.1)
    assert lasts[path].sum() + 0.1 * (len(path) - 1) == pytest.approx(float(times.makespan_s))
    np.testing.assert_allclose(times.slack_s[path], 0.0, atol=1e-9)


def test_many_pipelines_at_once_are_as_one_by_one() -> None:
    schedule, rng = SCHEDULES["interleaved"], np.random.default_rng(0)
    graph = Graph.of(schedule)
    lasts = rng.exponential(1.0, (5, 3, len(schedule.rank)))
    moves = rng.exponential(0.1, (3, len(schedule.edges[0])))
    times = graph.times(lasts, moves)
    for step, pipeline in np.ndindex(5, 3):
        alone = graph.times(lasts[step, pipeline], moves[pipeline])
        np.testing.assert_allclose(times.latest_s[step, pipeline], alone.latest_s, atol=1e-9)
        np.testing.assert_allclose(times.end_s[step, pipeline], alone.end_s)
        assert times.makespan_s[step, pipeline] == pytest.approx(float(alone.makespan_s))


def test_the_makespan_of_1f1b_with_equal_blocks_is_known() -> None:
    graph = Graph.of(one_f_one_b(4, 8))
    assert graph.makespan(np.ones(2 * 4 * 8)) == 2 * (8 + 4 - 1)


def test_a_slow_block_that_bubbles_absorb_is_not_on_the_critical_path() -> None:
    # GIVEN the last forward pass of warm-up on the first rank, which then waits for its first gradient
    schedule = one_f_one_b(4, 8)
    block = int(np.flatnonzero((schedule.stage == 0) & (schedule.microbatch == 3) & (schedule.phase == 0))[0])
    lasts = np.ones(len(schedule.rank))
    # WHEN it takes twice as long
    lasts[block] = 2.0
    # THEN nothing comes later
    graph = Graph.of(schedule)
    assert graph.makespan(lasts) == 22
    assert block not in graph.critical_path(lasts)


def test_a_circle_is_refused() -> None:
    with pytest.raises(ValueError, match="waits for itself"):
        Graph.of_edges(np.array([0, 1]), np.array([1, 0]), 2)


@pytest.mark.parametrize("entered", [True, False])
@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_a_hang_is_found_where_it_began(name: str, entered: bool) -> None:
    schedule = SCHEDULES[name]
    graph = Graph.of(schedule)
    for block in range(len(schedule.rank)):
        # GIVEN an iteration in which one block never ends, and all goes on that can
        stuck = np.zeros(len(schedule.rank), bool)
        stuck[block] = True
        for at in np.argsort(schedule.levels, kind="stable").tolist():
            stuck[at] |= stuck[schedule.edges[0][schedule.edges[1] == at]].any()
        begun = ~stuck
        begun[block] = entered
        # WHEN it is asked where it stands
        halt = graph.halt_point(begun, ~stuck)
        # THEN it is in that block alone
        assert halt.blocks.tolist() == [block]
        assert halt.begun.tolist() == [entered]


def test_of_two_that_stopped_the_earlier_one_is_the_halt_point() -> None:
    schedule = gpipe(2, 3)
    ended = np.zeros(len(schedule.rank), bool)
    ended[(schedule.stage == 0) & (schedule.microbatch == 0) & (schedule.phase == Phase.FORWARD)] = True
    halt = Graph.of(schedule).halt_point(ended, ended)
    assert [schedule.name_of(block) for block in halt.blocks.tolist()] == ["0F1", "1F0"]
    ended[np.flatnonzero((schedule.stage == 0) & (schedule.phase == Phase.FORWARD))] = True
    halt = Graph.of(schedule).halt_point(ended, ended)
    assert [schedule.name_of(block) for block in halt.blocks.tolist()] == ["1F0"]


def test_nothing_halts_where_all_is_over() -> None:
    schedule = gpipe(2, 2)
    all_of_them = np.ones(len(schedule.rank), bool)
    assert not Graph.of(schedule).halt_point(all_of_them, all_of_them).blocks.size
