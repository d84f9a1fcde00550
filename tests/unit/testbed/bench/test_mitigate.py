"""What `bench mitigate` draws, computes and prints; its jobs are real, and are run by `bench mitigate` alone."""

from __future__ import annotations

import math

import pytest

from whichrank.testbed.bench.mitigate.events import COMPUTE, LASTS_S, LINKS, SHAPE, EventsResult, events_table, schedule
from whichrank.testbed.bench.mitigate.handover import HandoverResult, handover_table
from whichrank.testbed.bench.mitigate.histories import DURATIONS_S, histories_table, replay_histories
from whichrank.testbed.bench.mitigate.losses import LossesResult, losses_table
from whichrank.testbed.bench.mitigate.places import PlacesResult, places_table
from whichrank.testbed.bench.mitigate.shares import SharesResult, plans, shares_table
from whichrank.testbed.bench.mitigate.split import GROUPS, split_table, time_splits


def test_schedule_has_ten_slow_ranks_and_two_slow_links_some_at_one_time() -> None:
    for seed in range(5):
        events = schedule(seed)
        assert sorted(event.severity for event in events) == sorted([*COMPUTE, *LINKS])
        assert sum(event.rank < 0 for event in events) == len(LINKS)
        assert {event.rank for event in events} <= set(range(-1, SHAPE.ranks))
        assert all(LASTS_S[0] <= event.until_s - event.at_s <= LASTS_S[1] for event in events)
        assert schedule(seed) == events
    assert schedule(1) != schedule(2)


def test_planner_pays_little_more_than_who_knows_the_end() -> None:
    results = replay_histories(seed=3)
    assert [one.kind for one in results] == list(DURATIONS_S)
    for one in results:
        assert one.least_s <= one.paid_s < 2 * one.least_s
        assert one.paid_s < one.ignored_s
        assert max(one.ratios) < 2.5
    assert histories_table(results).count("\n") == 1 + len(results)


def test_splits_are_timed_for_all_sizes() -> None:
    results = time_splits()
    assert [one.groups for one in results] == list(GROUPS)
    assert "| 512 | 20 |" in split_table(results)


def test_all_severities_and_all_counts_are_planned() -> None:
    assert len(plans()) == len(set(plans())) == 13


def test_a_job_in_which_nothing_was_done_says_so() -> None:
    shares = SharesResult(
        replicas=4, slow=4, factor=1.7, healthy_s=0.2, slow_s=0.34, after_s=0.34, bound_s=0.34,
        acted_after_s=math.nan, reverted=0, names=0,
    )  # fmt: skip
    assert "| 1.70 x | 1.70 x | 1.000 | not | 0 | 0 |" in shares_table([shares])
    places = PlacesResult(
        stages=2, what="severe", healthy_s=0.2, slow_s=1.0, after_s=0.25, predicted_s=0.3, acted_after_s=9.0,
        stood_still_s=0.5, moved=2,
    )  # fmt: skip
    assert "| 2 x 2 | cable of 40mbit (severe) | 200 ms | 5.00 x | 1.25 x | 1.50 x | 9.0 s |" in places_table([places])


def test_ratio_of_a_schedule_is_that_of_iterations() -> None:
    result = EventsResult(
        events=schedule(1), lasted_s=60.0, healthy_s=0.5, iterations=100, iterations_without=50, found=12,
        found_after_s=(5.0, 7.0), wrong_names=0, steps=20,
    )  # fmt: skip
    assert result.ratio == pytest.approx(2.0)
    assert "| 12 | 12 | 6.0 s | 0 | 20 | 120 | 50 | 100 | 2.00 |" in events_table([result])


def test_table_of_losses_says_how_far_they_are_apart() -> None:
    result = LossesResult(mode="ddp", dtype="float64", iterations=200, changes=9, uneven=171, difference=3.4e-15,
                          trained_difference=2e-16)  # fmt: skip
    assert losses_table([result]).endswith("| ddp | float64 | 200 | 9 | 171 | 3.4e-15 | 2.0e-16 |")


def test_table_of_hand_overs_has_ratios_of_medians() -> None:
    result = HandoverResult(
        state_bytes=250_000_000, handed_over_s=(0.4, 0.5, 0.9), written_s=(1.0, 1.5, 2.0), loaded_s=0.5, restarted_s=8.5
    )
    row = "| 250 MB | 3 | 0.50 s | 0.90 s | 2.00 | 1.50 s | 0.50 s | 8.5 s | 4.00 | 20.0 |"
    assert handover_table([result]).endswith(row)
