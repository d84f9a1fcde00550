"""Iterations gone through again: as they were, and as they would have been."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from simulated import Call, Compute, Program, Wait, ddp, run, tp_pp_dp

from whichrank.locate.critical_path import END, ISSUE, Course, as_its_peers
from whichrank.locate.events import course_of
from whichrank.model.iterations import OP, STEP, Ops
from whichrank.model.kinds import Kind

FIRST, LAST = 3, 9
MS, S = 1_000_000, 1_000_000_000


def course(programs: list[Program], factors: dict[int, float]) -> Course:
    """Some iterations of a job in which ranks compute so many times as long."""
    ops, steps = run(programs, 12, lambda rank, _, what: what.seconds * factors.get(rank, 1.0)).arrays()
    size = np.zeros(int(ops["comm"].max()) + 1, np.int64)
    for comm in np.unique(ops["comm"]):
        size[comm] = len(np.unique(ops["rank"][ops["comm"] == comm]))
    made = course_of([Ops.of_rows(ops)], steps[(steps["counter"] >= FIRST) & (steps["counter"] <= LAST)], size)
    assert made is not None
    return made


@pytest.mark.parametrize("programs", [ddp(8), tp_pp_dp(), tp_pp_dp(1, 4, 2)], ids=["dp8", "tp2-pp2-dp2", "pp4-dp2"])
@pytest.mark.parametrize("factors", [{}, {5: 1.5}, {2: 3.0, 6: 1.2}], ids=str)
def test_what_happened_comes_out_again(programs: list[Program], factors: dict[int, float]) -> None:
    # GIVEN the iterations of a job, and how long they really took
    reported = run(programs, 12, lambda rank, _, what: what.seconds * factors.get(rank, 1.0))
    at_s = sorted(at_ns / 1e9 for rank, _, _, at_ns in reported.steps if rank == 0)

    # WHEN they are gone through again THEN they take as long, but for a little
    assert course(programs, factors).replay() == pytest.approx(np.diff(at_s[FIRST : LAST + 1]).mean(), rel=0.05)


def _rooted(kind: Kind, transfer_s: float = 0.002) -> list[Program]:
    """A data-parallel job of which rank 2 sends to all, or all send to it, at the beginning of each iteration."""
    return [[Compute(0.001), Call(4, kind, peer=2, transfer_s=transfer_s), *program] for program in ddp(4)]


@pytest.mark.parametrize(
    "programs",
    [ddp(4), tp_pp_dp(), _rooted(Kind.BROADCAST), _rooted(Kind.REDUCE)],
    ids=["dp4", "tp2-pp2-dp2", "broadcast", "reduce"],
)
@pytest.mark.parametrize("at_once", [3, 1 << 20])
def test_several_own_times_at_once_say_the_same_as_each(
    programs: list[Program], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN five ways in which the own times of all ranks could have been, and room for three of them or for all
    made, rng = course(programs, {1: 1.5}), np.random.default_rng(3)
    several = [made.own_s * rng.uniform(0.3, 3.0, len(made.own_s)) for _ in range(5)]
    monkeypatch.setattr("whichrank.locate.critical_path.MOST_AT_ONCE", at_once * len(made.own_s))
    # WHEN they are gone through together THEN that is what each gives alone, and they differ
    together = made.ends_of_each(iter(several))
    assert [ends.tolist() for ends in together] == [made.ends(own_s).tolist() for own_s in several]
    assert len({float(ends[-1]) for ends in together}) == 5


@pytest.mark.parametrize(("slow", "longer_s"), [(2, 0.028), (1, 0.009)], ids=["root", "receiver"])
def test_a_broadcast_takes_its_time_at_the_root_and_after_it(slow: int, longer_s: float) -> None:
    # GIVEN a broadcast of 2 or 30 ms, and one rank on whose computation all wait; as receiver it comes 21 ms late
    short, long = (course(_rooted(Kind.BROADCAST, transfer_s), {slow: 2.0}) for transfer_s in (0.002, 0.03))
    # THEN the root stays blocked for 28 ms more, and a receiver waits for what is left when it comes
    assert long.replay() - short.replay() == pytest.approx(longer_s, rel=0.05)


def test_without_its_excess_the_job_is_as_fast_as_ever() -> None:
    slow, sound = course(tp_pp_dp(), {6: 1.5}), course(tp_pp_dp(), {}).replay()
    peers = np.array([4, 5, 7])

    assert slow.replay(as_its_peers(slow, np.array([6]), peers)) == pytest.approx(sound)


def test_a_rank_that_delays_nobody_costs_nothing() -> None:
    # GIVEN a long last stage, and a slower rank in the first, which has to wait for the last anyway
    slow = course(tp_pp_dp(), {1: 1.3, 4: 2.5, 5: 2.5, 6: 2.5, 7: 2.5})

    # WHEN that rank is made as quick as its peers THEN little is won; with the stage much is
    without = slow.own_s.copy()
    without[slow.rank == 1] /= 1.3
    assert slow.replay() - slow.replay(without) < 0.05 * slow.replay()
    without[slow.rank >= 4] /= 2.5
    assert slow.replay(without) < 0.65 * slow.replay()


def test_where_an_iteration_goes() -> None:
    # GIVEN one of four ranks that computes for 40 ms longer, and transfers of 2 ms
    spent = course(ddp(4), {2: 1.5}).spent()
    iteration_s = spent.sum(axis=1)
    # THEN own time, transfer and waiting add up to the same iteration, and only the others wait
    assert iteration_s == pytest.approx(np.full(4, iteration_s[2]), rel=0.01)
    assert spent[:, 0] == pytest.approx(np.array([0.08, 0.08, 0.12, 0.08]), abs=0.001)
    assert spent[2, 2] == pytest.approx(0.0, abs=0.003)
    assert spent[[0, 1, 3], 2] == pytest.approx(np.full(3, 0.04), abs=0.005)


def test_what_collectives_lose() -> None:
    # GIVEN four buckets, of which the last all-reduce waits 40 ms for one of four ranks
    sound, slow = course(ddp(4), {}), course(ddp(4), {2: 1.5})
    # THEN transfers are the same, and the rest is waiting
    assert sound.lost_in_collectives()[0] == pytest.approx(0.0, abs=0.001)
    waiting_s, transfer_s = slow.lost_in_collectives()
    assert transfer_s == pytest.approx(sound.lost_in_collectives()[1], rel=0.3)
    assert waiting_s > 0.04


def test_a_broadcast_waits_for_its_root_only() -> None:
    # GIVEN a broadcast to whose end nobody but the root matters, and a member that comes late
    def program(rank: int) -> Program:
        own: Program = [Compute(0.05 if rank == 2 else 0.01), Call(0, Kind.BROADCAST, peer=0, transfer_s=0.001)]
        return [*own, Compute(0.02)]

    ops, steps = run([program(rank) for rank in range(3)], 8).arrays()
    made = course_of([Ops.of_rows(ops)], steps[(steps["counter"] >= 2) & (steps["counter"] <= 6)], np.array([3]))
    assert made is not None
    needs = {int(made.ranks[r]): set(made.needs[(made.rank == r) & (made.what == 1)].tolist()) for r in range(3)}
    assert needs == {0: {0}, 1: {2}, 2: {2}}


def test_what_is_issued_behind_a_step_at_the_same_time_is_in_the_next_iteration() -> None:
    # GIVEN a last stage that begins each iteration with a receive, without any time of its own before it
    made = course(tp_pp_dp(1, 2, 1), {})
    # THEN an iteration ends before that receive is issued
    last = made.rank == 1
    ends = np.flatnonzero(last & (made.what == END))
    receives = np.flatnonzero(last & (made.what == ISSUE) & (made.ops["kind"][made.op] == Kind.RECV))
    assert (made.begin_ns[ends[:-1]] == made.begin_ns[ends[:-1] + 1]).all()
    assert np.isin(ends[:-1] + 1, receives).all()


def test_ranks_that_would_wait_for_ever_are_not_a_number() -> None:
    # GIVEN rounds of which a member never reported anything, taken for whole
    made = course(ddp(4), {})
    broken = Course(**{**made.__dict__, "members": made.members + 1})
    assert np.isnan(broken.replay())


def test_too_few_steps_are_no_course() -> None:
    ops, steps = run(ddp(2), 5).arrays()
    assert course_of([Ops.of_rows(ops)], steps[steps["counter"] == 2], np.array([2])) is None
    assert course_of([Ops.of_rows(ops)], steps[:0], np.array([2])) is None


def test_operations_in_parts_are_the_same_as_all_at_once() -> None:
    ops, steps = run(tp_pp_dp(), 8).arrays()
    steps, size = steps[(steps["counter"] >= 2) & (steps["counter"] <= 6)], np.full(ops["comm"].max() + 1, 2)
    cut = len(ops) // 3
    at_once = course_of([Ops.of_rows(ops)], steps, size)
    in_parts = course_of([Ops.of_rows(ops[:cut]), Ops.of_rows(ops[cut:cut]), Ops.of_rows(ops[cut:])], steps, size)
    assert at_once is not None
    assert in_parts is not None
    for name, values in vars(at_once).items():
        if name != "ops":
            np.testing.assert_array_equal(values, getattr(in_parts, name), err_msg=name)
    assert all((at_once.ops[name] == in_parts.ops[name]).all() for name in OP.names or ())


def test_a_wait_that_is_seen_to_begin_after_the_last_step_is_not_of_these_iterations() -> None:
    # GIVEN DDP, whose future of the last bucket is seen to be ready a moment after the step was counted
    ops, steps = run(ddp(4), 8).arrays()
    steps = steps[(steps["counter"] >= 2) & (steps["counter"] <= 6)]
    last = steps[(steps["rank"] == 1) & (steps["counter"] == 6)][0]
    mine = np.flatnonzero((ops["rank"] == 1) & (ops["ordinal"] <= last["ordinal"]))[-1]
    ops["end_ns"][mine], ops["blocked_ns"][mine] = last["at_ns"] + 196_000, 81_000
    made = course_of([Ops.of_rows(ops)], steps, np.array([4]))

    # THEN it is left out, and what is asked of the others can be answered
    assert made is not None
    assert int(made.iteration.max()) == made.iterations - 1
    assert np.isfinite(made.replay(as_its_peers(made, np.array([1]), np.array([0, 2, 3]))))
    # AND the same if its issue is seen late
    ops["issue_ns"][mine], ops["blocked_ns"][mine] = last["at_ns"] + 5, 0
    made = course_of([Ops.of_rows(ops)], steps, np.array([4]))
    assert made is not None
    assert int(made.iteration.max()) == made.iterations - 1


def test_an_asynchronous_operation_blocks_where_it_is_waited_for() -> None:
    # GIVEN an all-reduce that one rank issues late, and that the other waits for at its end
    early: Program = [Call(0, later="x"), Compute(0.03), Wait("x")]
    late: Program = [Compute(0.05), Call(0, later="x"), Wait("x")]
    ops, steps = run([early, late], 8).arrays()
    made = course_of([Ops.of_rows(ops)], steps[(steps["counter"] >= 2) & (steps["counter"] <= 6)], np.array([2]))
    assert made is not None

    # THEN it would take as long as the early one computes if the late one were at once there
    own_s = made.own_s.copy()
    own_s[made.rank == 1] = 0.0
    assert made.replay() == pytest.approx(0.052)
    assert made.replay(own_s) == pytest.approx(0.03, abs=0.003)


def two_collectives(every_ms: int, issue_ms: list[list[int]], end_ms: list[int], blocked_ms: list[list[int]]) -> Course:
    """Two ranks with two collectives in each of six iterations: for each when it is issued and how long it blocks."""
    ops, steps = np.zeros(24, OP), np.zeros(14, STEP)
    iteration, which, rank = (np.array(column) for column in zip(*product(range(6), range(2), range(2)), strict=True))
    ops["rank"], ops["counter"] = rank, 2 * iteration + which + 1
    ops["ordinal"] = ops["counter"]
    since_ms = every_ms * iteration
    ops["issue_ns"] = S + 1 + (since_ms + np.array(issue_ms)[which, rank]) * MS
    ops["end_ns"] = S + 1 + (since_ms + np.array(end_ms)[which]) * MS
    ops["blocked_ns"] = np.array(blocked_ms)[which, rank] * MS
    number, of = (np.array(column) for column in zip(*product(range(7), range(2)), strict=True))
    steps["rank"], steps["counter"], steps["ordinal"] = of, number + 1, 2 * number
    steps["at_ns"] = S + every_ms * number * MS
    made = course_of([Ops.of_rows(ops)], steps, np.array([2]))
    assert made is not None
    return made


def test_what_a_rank_computes_while_all_stand_in_line_costs_nothing() -> None:
    # GIVEN two buckets of 100 ms each, one after the other; a rank issues the second one 80 ms later than its peer
    made = two_collectives(225, [[20, 20], [40, 120]], [120, 220], [[80, 0], [100, 100]])
    # THEN the job is as it was, and would be no faster if that rank were as quick as its peer
    assert made.replay() == pytest.approx(0.225)
    assert made.replay(as_its_peers(made, np.array([1]), np.array([0]))) == pytest.approx(0.225, abs=0.001)


def test_a_collective_that_overtakes_another_does_not_stand_in_line_for_it() -> None:
    # GIVEN a large all-reduce that nobody waits for, and a small one that ends before it, to which a rank comes late
    made = two_collectives(120, [[0, 0], [10, 50]], [100, 52], [[0, 0], [42, 2]])
    # THEN without that the job would be faster
    assert made.replay() == pytest.approx(0.12)
    assert made.replay(as_its_peers(made, np.array([1]), np.array([0]))) == pytest.approx(0.08, abs=0.001)


def test_iterations_without_operations_are_no_course() -> None:
    ops, steps = run(ddp(2), 5).arrays()
    assert course_of([Ops.of_rows(ops[:0])], steps, np.array([2])) is None


def test_messages_of_two_tags_are_rounds_of_their_own() -> None:
    # GIVEN two messages in each iteration, of which each is the first of its tag, so that they have the same number
    programs = [[Compute(0.1), Call(0, Kind.SEND, 1), Call(0, Kind.SEND, 1)],
                [Compute(0.02), Call(0, Kind.RECV, 0), Call(0, Kind.RECV, 0)]]  # fmt: skip
    ops, steps = run(programs, 8).arrays()
    ops["counter"] = (ops["counter"] + 1) // 2
    made = course_of([Ops.of_rows(ops)], steps[(steps["counter"] >= 2) & (steps["counter"] <= 6)], np.array([2]))
    assert made is not None
    assert set(made.members.tolist()) == {2}
    # WHEN the sender is quicker THEN so is the receiver
    own_s = np.where(made.rank == 0, made.own_s / 5, made.own_s)
    assert made.replay(own_s) < 0.5 * made.replay()


def test_for_how_long_two_ranks_are_blocked_in_what_both_do() -> None:
    # GIVEN a rank that is late for both of the others, and one that exchanges with the other alone
    programs: list[Program] = [
        [Compute(0.1), Call(0)],
        [Compute(0.02), Call(0), Call(1)],
        [Compute(0.02), Call(0), Compute(0.03), Call(1)],
    ]
    made = course(programs, {})
    assert made.blocked_between(0, 1) == pytest.approx(0.05, rel=0.05)
    assert made.blocked_between(1, 2) == pytest.approx(0.082, rel=0.05)
    assert made.blocked_between(0, 0) == pytest.approx(0.002, rel=0.05)


def test_pace_and_times_count_from_the_iteration_that_is_asked_for() -> None:
    # GIVEN iterations, and when each of them is over
    whole = course(tp_pp_dp(), {6: 1.5})
    ends_s = whole.ends()
    assert whole.pace(ends_s) == pytest.approx(whole.replay())
    assert whole.pace(ends_s, 3) == pytest.approx(float(np.diff(ends_s)[2:].mean()))
    # THEN the times of all iterations are those of the first ones and of the rest
    n, k = whole.iterations, 3
    later, all_s = whole.spent(k), whole.spent()
    assert later.shape == all_s.shape
    assert (all_s * n - later * (n - k) >= -1e-9).all()
    # AND an iteration is found by its number, or the first where it was before
    assert [whole.since(number, last=20) for number in (20, 20 - n + 3, 2)] == [n - 2, 2, 0]
