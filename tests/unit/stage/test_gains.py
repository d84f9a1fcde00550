"""How much of an iteration is lost to what."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from repaired_jobs import course_and_passes, repaired
from simulated import Call, Compute, Program, ddp, tp_pp_dp

from whichrank.stage.gains import EVERYBODY, Gain, gains


def bought(
    programs: list[Program],
    slower: Callable[[int, int, Compute], float],
    per_stage: int,
    node: dict[int, str] | None = None,
) -> dict[str, Gain]:
    """What each fix buys in a job of which so many ranks are in a pipeline stage."""
    job = repaired(programs, slower, 0, 1.0)
    found = gains(job.now, np.arange(len(programs)) // per_stage, node or {})
    assert [one.saved_s for one in found] == sorted((one.saved_s for one in found), reverse=True)
    return {one.what: one for one in found}


def test_a_faulty_rank_buys_all_that_everybody_buys() -> None:
    # GIVEN one of four ranks that takes 80 ms longer
    found = bought(ddp(4), lambda rank, _, work: work.seconds * (2 if rank == 2 else 1), 4)
    assert found["rank 2"].saved_s == pytest.approx(0.08, abs=0.005)
    assert found["rank 2"].saved_s == pytest.approx(found[EVERYBODY].saved_s, rel=0.05)
    # THEN nothing is won by any other rank
    assert set(found) == {"rank 2", EVERYBODY}
    assert found["rank 2"].ranks == (2,)


def test_iterations_before_a_slowdown_are_not_counted() -> None:
    # GIVEN a rank that takes 80 ms longer, in the second half of the iterations
    job = repaired(ddp(4), lambda rank, number, work: work.seconds * (2 if rank == 2 and number >= 4 else 1), 2, 2.0)
    of_it = job.now.rank == 2
    own_s = np.bincount(job.now.iteration[of_it], job.now.own_s[of_it])
    slow = int(np.argmax(own_s > 1.5 * own_s[0]))
    found = {one.what: one for one in gains(job.now, np.zeros(4, np.int64), {}, slow)}
    # THEN what it buys is all of that, and not half of it
    assert 1 < slow < job.now.iterations - 2
    assert found["rank 2"].saved_s == pytest.approx(0.08, abs=0.005)


def test_of_two_the_quicker_one_is_what_is_usual() -> None:
    programs = tp_pp_dp(1, 4, 2)
    found = bought(programs, lambda rank, _, work: work.seconds * (3 if rank == 5 else 1), 2)
    without = bought(programs, lambda _, __, work: work.seconds, 2)
    assert without == {}
    assert found["rank 5"].saved_s == pytest.approx(found[EVERYBODY].saved_s, rel=0.05)
    assert found["rank 5"].saved_s > 0.3 * found["rank 5"].iteration_s
    assert not any(name.startswith("pipeline stage") for name in found)


def test_a_long_stage_is_no_ranks_doing() -> None:
    # GIVEN a last stage that has twice as much to do
    found = bought(tp_pp_dp(1, 4, 2), lambda rank, _, work: work.seconds * (2 if rank >= 6 else 1), 2)
    assert set(found) == {"pipeline stage 3"}
    assert found["pipeline stage 3"].ranks == (6, 7)


def test_two_ranks_that_hold_up_the_same_buy_nothing_alone_and_their_node_all() -> None:
    node = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    found = bought(ddp(6), lambda rank, _, work: work.seconds * (2 if rank in (2, 3) else 1), 6, node)
    assert set(found) == {"node b", EVERYBODY}
    assert found["node b"].saved_s == pytest.approx(0.08, abs=0.005)


def test_a_communicator_of_which_transfers_take_longer_than_comparable_ones_buys_that() -> None:
    # GIVEN four replicas of two ranks, one of which reduces for 30 ms where the others take 10
    programs: list[Program] = [[Compute(0.02), Call(rank // 2, transfer_s=0.01)] for rank in range(8)]
    course, _ = course_and_passes(programs, lambda *_: 0.02, transfer=lambda comm, _: 3.0 if comm == 2 else 1.0)
    (found,) = gains(course, np.zeros(8, np.int64), {}, name=lambda comm: f"dp {comm}")
    # THEN it is worth 20 ms of each iteration, and that is the doing of no rank
    assert (found.what, found.ranks) == ("communicator dp 2", (4, 5))
    assert found.saved_s == pytest.approx(0.02, abs=0.002)
    # BUT not where it moves something else
    programs[4] = programs[5] = [Compute(0.02), Call(2, transfer_s=0.01, elements=99)]
    course, _ = course_and_passes(programs, lambda *_: 0.02, transfer=lambda comm, _: 3.0 if comm == 2 else 1.0)
    assert gains(course, np.zeros(8, np.int64), {}) == ()
