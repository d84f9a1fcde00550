"""In which part of its iterations a slow rank takes longer."""

from __future__ import annotations

import numpy as np
import pytest
from repaired_jobs import course_and_passes
from simulated import Call, Compute, Pass, Program, Wait, ddp, tp_pp_dp

from whichrank.locate.interleaving import Interleaving
from whichrank.locate.phases import SlowPart, own_by_part, slow_part
from whichrank.model.kinds import Kind


def part_of(programs: list[Program], rank: int, peers: list[int], what: str, batch: int | None = None) -> SlowPart:
    """Where a rank is slow that takes three times as long for one sort of work, or for that of one microbatch."""
    seen: dict[tuple[int, int, str], int] = {}

    def slower(at: int, iteration: int, work: Compute) -> float:
        number = seen[at, iteration, work.what] = seen.get((at, iteration, work.what), -1) + 1
        is_slow = at == rank and what in (work.what, "all") and batch in (None, number)
        return work.seconds * (3 if is_slow else 1)

    course, passes = course_and_passes(programs, slower)
    is_pipeline = any(course.ops["kind"] >= 32)
    found = slow_part(course, rank, np.array(peers), passes, 0, 0.0, is_pipeline=is_pipeline)
    assert found is not None
    return found


@pytest.mark.parametrize("what", ["forward", "backward", "optimizer"])
def test_phase_of_data_parallel_ranks(what: str) -> None:
    found = part_of(ddp(4), 2, [0, 1, 3], what)
    assert (found.phase, found.microbatch) == (what, None)
    assert found.share == pytest.approx(1.0)


def test_what_is_slow_in_all_of_it_has_no_phase() -> None:
    found = part_of(ddp(4), 2, [0, 1, 3], "all")
    assert (found.phase, found.microbatch) == (None, None)
    assert found.share < 0.8


@pytest.mark.parametrize("what", ["forward", "backward"])
@pytest.mark.parametrize("stage", range(4))
def test_phase_of_each_stage_of_a_pipeline(stage: int, what: str) -> None:
    found = part_of(tp_pp_dp(tp=1, pp=4, dp=2), 2 * stage, [2 * stage + 1], what)
    assert (found.phase, found.microbatch) == (what, None)


@pytest.mark.parametrize("batch", range(4))
@pytest.mark.parametrize("what", ["forward", "backward"])
@pytest.mark.parametrize(("pp", "stage"), [(2, 0), (2, 1), (4, 0), (4, 1), (4, 2), (4, 3)])
def test_microbatch_of_each_stage_of_a_pipeline(pp: int, stage: int, what: str, batch: int) -> None:
    found = part_of(tp_pp_dp(tp=1, pp=pp, dp=2), 2 * stage, [2 * stage + 1], what, batch)
    assert (found.phase, found.microbatch) == (what, batch)


@pytest.mark.parametrize(("forward_s", "batch"), [(0.02, 2), (0.0, None)], ids=["microbatches", "losses"])
def test_passes_without_a_forward_pass_between_them_are_of_no_microbatch(forward_s: float, batch: int | None) -> None:
    # GIVEN four backward passes of 40 ms in each iteration, each after a forward pass or all in a row
    program: Program = [Compute(0.02, "forward")]
    for number in range(4):
        work = [Compute(forward_s, "forward")] * (number > 0)
        program += [*work, Pass(ends=False), Compute(0.04, "backward"), Pass(ends=True)]
    programs: list[Program] = [[*program, Call(0), Compute(0.01, "optimizer")] for _ in range(4)]
    found = part_of(programs, 2, [0, 1, 3], "backward", 2)
    # THEN the third one is said by its number only if it is of a microbatch
    assert (found.phase, found.microbatch) == ("backward", batch)


def test_own_time_adds_up() -> None:
    course, passes = course_and_passes(tp_pp_dp(tp=2, pp=2, dp=2), lambda _, __, work: work.seconds)
    for index in range(8):
        parts = own_by_part(course, index, passes, is_pipeline=True)
        assert parts is not None
        of_rank = course.rank == index
        whole = np.bincount(course.iteration[of_rank], course.own_s[of_rank])
        np.testing.assert_allclose(parts.seconds.sum(axis=(1, 2)), whole, atol=1e-6)


def test_without_peers_its_own_past_says_where() -> None:
    course, passes = course_and_passes(
        ddp(4), lambda at, n, work: work.seconds * (3 if at == 2 and n > 4 and work.what == "backward" else 1)
    )
    since = 5 - 1
    found = slow_part(course, 2, np.zeros(0, np.int64), passes, since, 0.0, is_pipeline=False)
    assert found is not None
    assert found.phase == "backward"
    # BUT not where nothing is known of it
    assert slow_part(course, 2, np.zeros(0, np.int64), passes, 1, 0.0, is_pipeline=False) is None


def test_nothing_is_said_where_no_pass_was_noted_or_nothing_is_longer() -> None:
    course, passes = course_and_passes(ddp(4), lambda _, __, work: work.seconds)
    peers = np.array([0, 1, 3])
    assert slow_part(course, 2, peers, passes[passes["rank"] != 2], 0, 0.0, is_pipeline=False) is None
    assert slow_part(course, 2, peers, passes[:0], 0, 0.0, is_pipeline=False) is None
    quicker, passes = course_and_passes(ddp(4), lambda at, _, work: work.seconds * (0.5 if at == 2 else 1))
    assert slow_part(quicker, 2, peers, passes, 0, 0.0, is_pipeline=False) is None


def test_what_is_too_little_to_explain_the_excess_says_nothing() -> None:
    # GIVEN a rank that is slow in two of six iterations backward, and always a little forward
    def slower(at: int, iteration: int, work: Compute) -> float:
        if at != 2:
            return work.seconds
        often = 1.04 if work.what == "forward" else 1.0
        return work.seconds * (5 if work.what == "backward" and iteration in (3, 5) else often)

    course, passes = course_and_passes(ddp(4), slower)
    peers = np.array([0, 1, 3])
    excess_s = 0.16 * 2 / 6
    # THEN the median, which has only the little, is not taken for it, and the mean is
    assert slow_part(course, 2, peers, passes, 0, excess_s, is_pipeline=False) is None
    found = slow_part(course, 2, peers, passes, 0, excess_s, is_pipeline=False, comes_and_goes=True)
    assert found is not None
    assert found.phase == "backward"


@pytest.mark.parametrize("kept", [8, 5, 4, 3])
def test_passes_that_are_not_known_any_more_are_no_optimizer(kept: int) -> None:
    # GIVEN a rank that is slow forward, and only the latest passes of all
    course, passes = course_and_passes(
        ddp(4), lambda at, _, work: work.seconds * (3 if (at, work.what) == (2, "forward") else 1)
    )
    latest = np.concatenate([passes[passes["rank"] == rank][-kept:] for rank in range(4)])
    found = slow_part(course, 2, np.array([0, 1, 3]), latest, 0, 0.04, is_pipeline=False)
    # THEN iterations without them do not count
    assert found is not None
    assert found.phase == "forward"
    assert slow_part(course, 2, np.array([0, 1, 3]), latest[-1:], 0, 0.04, is_pipeline=False) is None


def test_halves_of_passes_that_nobody_notes_say_nothing() -> None:
    # GIVEN a pipeline of which only one of four backward passes is noted, as of a zero-bubble schedule
    programs = tp_pp_dp(tp=1, pp=4, dp=2)
    course, passes = course_and_passes(
        programs, lambda at, _, work: work.seconds * (3 if (at, work.what) == (2, "forward") else 1)
    )
    some = np.concatenate([passes[passes["rank"] == rank][3::4] for rank in range(8)])
    assert slow_part(course, 2, np.array([3]), some, 0, 0.0, is_pipeline=True) is None


def looped(schedule: Interleaving, dp: int = 2) -> list[Program]:
    """A pipeline whose ranks hold several stages each, `dp` times; the index of the copy runs fastest."""
    programs, last = list[Program](), schedule.ranks * schedule.stages_per_rank - 1
    for rank in range(schedule.ranks * dp):
        place, copy = divmod(rank, dp)
        program: Program = []
        for is_forward, stage, _ in schedule.order(place).blocks:
            ahead = 1 if is_forward else -1
            if 0 <= stage - ahead <= last:
                program.append(Call(1000 + copy, Kind.RECV, (stage - ahead) % schedule.ranks * dp + copy))
            work = Compute(0.004 if is_forward else 0.008, "forward" if is_forward else "backward")
            program += [work] if is_forward else [Pass(ends=False), work, Pass(ends=True)]
            if 0 <= stage + ahead <= last:
                peer = (stage + ahead) % schedule.ranks * dp + copy
                program.append(Call(1000 + copy, Kind.SEND, peer, later=f"send {len(program)}"))
        program += [Wait(call.later) for call in program if isinstance(call, Call) and call.later]
        programs.append([*program, Call(2000 + place), Compute(0.002, "optimizer"), Call(3000)])
    return programs


def part_of_looped(schedule: Interleaving, place: int, what: str, batch: int, is_odd: bool = False) -> SlowPart:
    """Where a rank is slow that takes three times as long for one microbatch, in all of its stages."""
    batches = [block.microbatch for block in schedule.order(place).blocks if block.is_forward == (what == "forward")]
    seen: dict[tuple[int, int, str], int] = {}

    def slower(at: int, iteration: int, work: Compute) -> float:
        number = seen[at, iteration, work.what] = seen.get((at, iteration, work.what), -1) + 1
        is_slow = at == 2 * place and work.what == what and batches[number] == batch
        return work.seconds * (3 if is_slow else 1)

    programs = looped(schedule)
    if is_odd:  # the last rank makes its passes of one microbatch in two pieces
        for program in programs[-2:]:
            program.insert(program.index(Pass(ends=True)), Pass(ends=True))
            program.insert(program.index(Pass(ends=True)) + 1, Pass(ends=False))
    course, passes = course_and_passes(programs, slower)
    found = slow_part(course, 2 * place, np.array([2 * place + 1]), passes, 0, 0.0, is_pipeline=True)
    assert found is not None
    return found


@pytest.mark.parametrize("what", ["forward", "backward"])
@pytest.mark.parametrize("schedule", [Interleaving(2, 2, 4), Interleaving(3, 2, 6), Interleaving(4, 3, 4)])
def test_microbatch_of_ranks_that_hold_several_stages(schedule: Interleaving, what: str) -> None:
    for place in range(schedule.ranks):
        for batch in range(schedule.microbatches):
            found = part_of_looped(schedule, place, what, batch)
            assert (found.phase, found.microbatch) == (what, batch)


def test_no_microbatch_where_some_rank_goes_through_them_in_no_known_order() -> None:
    found = part_of_looped(Interleaving(3, 2, 6), 0, "forward", 1, is_odd=True)
    assert (found.phase, found.microbatch) == ("forward", None)
