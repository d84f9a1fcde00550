"""Simulated jobs with faults drawn by chance, and what an analyzer says of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from whichrank.stage.layout import Layout
from whichrank.stage.schedules import interleaved
from whichrank.testbed.sim.faults import (
    Fault,
    draw_delay,
    draw_hang,
    draw_healthy,
    draw_imbalance,
    draw_lost,
    draw_slow,
    ends_of,
)
from whichrank.testbed.sim.trial import Drawn, Score, draw_job, listen, longer_by, score

ONSET = 14


def scored(drawn: Drawn, fault: Fault) -> Score:
    return score(drawn, fault, listen(drawn, fault))


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, 9])


@pytest.mark.parametrize("seed", range(16))
def test_rank_that_hangs_is_named_with_its_part(seed: int) -> None:
    drawn = draw_job(seed)
    found = scored(drawn, draw_hang(drawn.run(), rng(seed), ONSET))
    # THEN the part is right, or not said
    assert (found.verdict, found.phase is not False, found.microbatch is not False) == ("right", True, True)


@pytest.mark.parametrize("seed", range(12))
def test_nobody_is_named_for_what_was_lost(seed: int) -> None:
    drawn = draw_job(seed)
    found = scored(drawn, draw_lost(drawn.run(), rng(seed), ONSET))
    assert (found.verdict, found.phase is not False, found.microbatch is not False) == ("right", True, True)


@pytest.mark.parametrize("seed", range(6))
def test_nobody_is_named_in_healthy_and_unequal_jobs(seed: int) -> None:
    drawn = draw_job(seed)
    for draw in (draw_healthy, draw_imbalance):
        assert scored(drawn, draw(drawn.run(), rng(seed), ONSET)).verdict == "silent"


@pytest.mark.parametrize("seed", range(6))
def test_rank_that_is_slow_is_named(seed: int) -> None:
    drawn = draw_job(seed)
    for fault in (
        draw_slow(drawn.run(), rng(seed), (2.0,), ONSET), draw_delay(drawn.run(), rng(seed), 0.2, 2.0, ONSET)
    ):  # fmt: skip
        found = scored(drawn, fault)
        assert found.verdict == "right" or (found.verdict == "silent" and not found.is_due)
        assert (found.phase is not False, found.microbatch is not False) == (True, True)


def test_phase_is_said_where_two_ranks_hold_two_stages_each() -> None:
    drawn = Drawn(Layout(tp=2, dp=4, pp=2), interleaved(2, 2, 8), "interleaved", 2, 1)
    for phase, where in ((0, "forward"), (1, "backward")):
        found = scored(drawn, Fault("slow", where, 5, phase=phase, factor=3.0, onset=ONSET))  # type: ignore[arg-type]
        assert (found.verdict, found.phase, found.microbatch) == ("right", True, None)


def test_effect_is_that_on_the_iteration() -> None:
    # GIVEN one rank that computes twice as long in all of a job without bubbles
    drawn = replace(draw_job(0, ("dp4",)), spread=0.02)
    assert longer_by(drawn, Fault("slow", "all", 1, factor=2.0)) == pytest.approx(1.0, abs=0.1)
    assert longer_by(drawn, Fault("healthy")) == 0.0


def test_what_is_lost_is_between_members() -> None:
    drawn = draw_job(3, ("tp2-pp2-dp2",))
    run = drawn.run()
    for seed in range(20):
        fault = draw_lost(run, rng(seed), ONSET)
        ends = ends_of(fault, run)
        assert fault.rank in ends
        assert len(ends) == 2 or len(ends) == run.layout.ranks


def test_link_of_a_lost_message_leads_from_its_sender_to_its_receiver() -> None:
    drawn = draw_job(1, ("pp4-dp2",))
    faults = (draw_lost(drawn.run(), rng(seed), ONSET) for seed in range(20))
    lost = next(fault for fault in faults if fault.where == "lost message")
    links = {(link.src, link.dst) for one in listen(drawn, lost) for link in one.links}
    assert links == {(lost.sender, lost.rank)}
