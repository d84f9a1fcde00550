"""Iterations gone through again with links as slow as they are, and as they usually are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated import Call, Compute, Program, ddp, run, tp_pp_dp

from whichrank.locate.critical_path import Course
from whichrank.locate.events import course_of
from whichrank.locate.link_times import LinkTime, with_links_that_fit
from whichrank.model.iterations import Ops
from whichrank.model.kinds import Kind

MESSAGES, QUICK_S, SLOW_S = 4, 0.002, 0.03


def course(programs: list[Program], transfer: float = 1.0) -> Course:
    """Some iterations of a job."""
    ops, steps = run(programs, 12, None, transfer).arrays()
    size = np.array([len(np.unique(ops["rank"][ops["comm"] == comm])) for comm in range(int(ops["comm"].max()) + 1)])
    made = course_of([Ops.of_rows(ops)], steps[(steps["counter"] >= 3) & (steps["counter"] <= 9)], size)
    assert made is not None
    return made


def pipeline(src: int = -1, dst: int = -1) -> list[Program]:
    """Four stages, and one way between two of them that is slow."""

    def slower(rank: int, call: Call) -> Call:
        ends = (rank, call.peer) if call.kind == Kind.SEND else (call.peer, rank)
        return replace(call, transfer_s=SLOW_S) if call.kind >= Kind.SEND and ends == (src, dst) else call

    programs = tp_pp_dp(1, 4, 1, MESSAGES)
    return [
        [slower(rank, call) if isinstance(call, Call) else call for call in program]
        for rank, program in enumerate(programs)
    ]


@pytest.mark.parametrize(("src", "dst"), [(0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)])
def test_what_a_slow_link_costs_comes_out_for_each_hop_of_a_pipeline(src: int, dst: int) -> None:
    # GIVEN one way of a pipeline on which messages take 30 ms instead of 2, and the same job without
    slow, sound_s = course(pipeline(src, dst)), course(pipeline()).replay()
    link = LinkTime(src, dst, QUICK_S / SLOW_S)
    # WHEN it is gone through with the link's times
    both = with_links_that_fit(slow, [link])
    # THEN iterations take what they took, and without the fault what the other job takes
    assert both is not None
    now_s, usual_s = (one.replay() for one in both)
    assert now_s == pytest.approx(slow.recorded_s, rel=0.05)
    assert usual_s == pytest.approx(sound_s, rel=0.05)
    assert now_s > 1.3 * usual_s


def test_nothing_is_said_where_the_links_times_do_not_make_the_iteration() -> None:
    # GIVEN a link whose messages would have taken four times as long
    slow = course(pipeline(1, 2))
    longer = replace(slow, shortest_s=4 * slow.shortest_s)
    assert with_links_that_fit(longer, [LinkTime(1, 2, 0.1)]) is None


def test_collectives_over_a_slow_link_become_as_much_quicker() -> None:
    # GIVEN data-parallel ranks whose all-reduces take five times as long, since one link does
    slow, sound_s = course(ddp(4), 20.0), course(ddp(4), 4.0).replay()
    both = with_links_that_fit(slow, [LinkTime(1, 2, 0.2)])
    assert both is not None
    assert both[0].replay() == pytest.approx(slow.recorded_s, rel=0.05)
    assert both[1].replay() == pytest.approx(sound_s, rel=0.08)


def test_a_bubble_absorbs_a_slow_link() -> None:
    # GIVEN a rank that has 40 ms of its own to do before it takes the message of a slow way
    late: Program = [Compute(0.04), Call(0, Kind.RECV, 0, SLOW_S), Call(1)]
    slow = course([[Call(0, Kind.SEND, 1, SLOW_S, later=""), Call(1)], late])
    both = with_links_that_fit(slow, [LinkTime(0, 1, QUICK_S / SLOW_S)])
    assert both is not None
    # THEN being quick would save what it takes behind that, and no more
    assert both[0].replay() - both[1].replay() == pytest.approx(SLOW_S - QUICK_S, abs=0.002)
