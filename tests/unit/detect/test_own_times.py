"""Where the time of iterations goes: blocked, or a rank's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated import Call, Compute, Program, Wait, ddp, run, tp_pp_dp

from whichrank.detect.own_times import KEPT, Blocked, Iterations
from whichrank.model.iterations import OP, STEP, Ops, key_of
from whichrank.model.kinds import Kind

MS = 1_000_000
KINDS = np.arange(4000, dtype=np.uint64) // 1000 + np.uint64(1)


def measured(*batches: tuple[np.ndarray, np.ndarray]) -> Iterations:
    known = Iterations()
    for ops, steps in batches:
        known.feed(Ops.of_rows(ops), steps)
        known.measure(KINDS)
    return known


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100), st.integers(0, 30)), max_size=30))
def test_overlapping_waits_count_once(waits: list[tuple[int, int, int]]) -> None:
    # GIVEN waits of some ranks, and the same painted on a line per rank
    line = np.zeros((4, 200), np.bool_)
    for rank, start, length in waits:
        line[rank, start : start + length] = True
    ranks = np.array([w[0] for w in waits], np.int64)
    start = key_of(ranks, np.array([w[1] for w in waits], np.int64))
    end = key_of(ranks, np.array([w[1] + w[2] for w in waits], np.int64))

    # THEN between any two moments of a rank as much is blocked as is painted
    blocked = Blocked.of(start, end)
    for rank in range(4):
        for since, until in ((0, 200), (20, 60), (55, 56)):
            at = blocked.until(key_of(np.array([rank, rank]), np.array([since, until])))
            assert at[1] - at[0] == line[rank, since:until].sum()


def test_own_time_is_what_is_not_blocked() -> None:
    # GIVEN a data-parallel job in which rank 2 computes for half as long again
    ops, steps = run(ddp(4), 20, lambda rank, _, what: what.seconds * (1.5 if rank == 2 else 1.0)).arrays()
    known = measured((ops, steps))

    # THEN its own time is 120 ms and that of the others 80, of iterations that take 122 for all
    window = known.window(np.arange(4), 60.0)
    assert window is not None
    assert np.median(window.own_s, axis=1) == pytest.approx([0.08, 0.08, 0.12, 0.08], abs=1e-4)
    assert np.median(window.total_s, axis=1) == pytest.approx([0.122] * 4, abs=1e-4)
    assert len(set(window.position.tolist())) == 1


def test_a_window_of_long_iterations_reaches_back_as_far_as_is_asked() -> None:
    # GIVEN seventeen iterations of 82 ms
    known = measured(run(ddp(4), 20).arrays())
    windows = [known.window(np.arange(4), 0.2, 2, reach) for reach in (0, 12, 100)]
    # THEN a window of 0.2 s has the three that end in it, and more where more are asked for; but no more than there are
    assert [len(window.iteration) for window in windows if window] == [3, 12, 17]


def test_pipeline_stages_are_different_positions() -> None:
    known = measured(run(tp_pp_dp(), 10).arrays())
    window = known.window(np.arange(8), 60.0)
    assert window is not None
    assert len(set(window.position[:4].tolist())) == len(set(window.position[4:].tolist())) == 1
    assert window.position[0] != window.position[4]
    assert window.in_pipeline.all()


def ring_program(rank: int, ranks: int) -> Program:
    send = Call(0, Kind.SEND, (rank + 1) % ranks, later="sent")
    return [Compute(0.01), send, Call(0, Kind.RECV, (rank - 1) % ranks), Wait("sent"), Compute(0.02), Call(3000)]


@pytest.mark.parametrize(("ranks", "is_ring"), [(2, False), (3, True), (4, True), (8, True)])
def test_ranks_that_exchange_messages_all_round_are_a_ring(ranks: int, is_ring: bool) -> None:
    known = measured(run([ring_program(rank, ranks) for rank in range(ranks)], 10).arrays())
    window = known.window(np.arange(ranks), 60.0)
    assert window is not None
    assert len(set(window.position.tolist())) == ranks
    assert (window.ring == (0 if is_ring else -1)).all()


@pytest.mark.parametrize("layout", [(2, 2, 2), (1, 4, 2), (1, 8, 1)])
def test_stages_of_a_pipeline_are_no_ring(layout: tuple[int, int, int]) -> None:
    # GIVEN pipelines, the middle stages of which all send to the next and receive from the one before
    known = measured(run(tp_pp_dp(*layout), 10).arrays())
    window = known.window(np.arange(8), 60.0)
    assert window is not None
    assert (window.ring == -1).all()


def test_it_does_not_matter_how_it_is_cut_into_batches() -> None:
    ops, steps = run(tp_pp_dp(), 12).arrays()
    whole = measured((ops, steps)).window(np.arange(8), 60.0)
    clock = {rank: steps["at_ns"][(steps["rank"] == rank) & (steps["counter"] == 1)][0] for rank in range(8)}
    since = np.array([clock[r] for r in ops["rank"].tolist()])
    when = np.array([clock[r] for r in steps["rank"].tolist()])
    cuts = []
    for first in range(-300 * MS, 3000 * MS, 70 * MS):
        mine = (ops["end_ns"] - since >= first) & (ops["end_ns"] - since < first + 70 * MS)
        marks = (steps["at_ns"] - when >= first) & (steps["at_ns"] - when < first + 70 * MS)
        cuts.append((ops[mine], steps[marks]))
    pieces = measured(*cuts).window(np.arange(8), 60.0)
    assert whole is not None
    assert pieces is not None
    assert np.allclose(whole.own_s, pieces.own_s, atol=1e-6)
    assert (whole.position == pieces.position).all()


def test_a_step_that_was_lost_leaves_a_gap() -> None:
    ops, steps = run(ddp(2), 12).arrays()
    known = measured((ops, steps[(steps["counter"] != 7) | (steps["rank"] != 1)]))
    window = known.window(np.arange(2), 60.0)
    assert window is not None
    assert not {6, 7} & set(window.iteration.tolist())


def test_iterations_with_other_operations_are_left_out() -> None:
    # GIVEN a job that logs with one operation more in every fifth iteration
    ops, steps = run(ddp(2), 30).arrays()
    extra = ops[ops["counter"] % 20 == 4].copy()
    extra["comm"] = 3000
    window = measured((np.concatenate((ops, extra)), steps)).window(np.arange(2), 60.0)
    assert window is not None
    every = int(window.iteration[-1] - window.iteration[0]) + 1
    assert every > len(window.iteration) > 0.7 * every


def test_where_only_the_future_is_waited_for_the_time_after_the_last_issue_is_blocked() -> None:
    # GIVEN two buckets, issued at 10 and 30 ms, which are done at 50 and 60; of both the future was taken
    ops = np.zeros(2, OP)
    ops["ordinal"], ops["counter"] = [1, 2], [1, 2]
    ops["issue_ns"], ops["end_ns"] = [10 * MS, 30 * MS], [50 * MS, 60 * MS]
    ops["future"] = 1
    steps = np.zeros(2, STEP)
    steps["counter"], steps["ordinal"], steps["at_ns"] = [1, 2], [0, 2], [1, 70 * MS]
    known = measured((ops, steps))

    # THEN it was blocked from 30 to 60
    assert known.rows["own_s"][0, 1] == pytest.approx(0.04, abs=1e-4)


def two_buckets(rank: int, second_ms: int, iteration: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """An iteration of 100 ms with two buckets: the first under way from 10 to 50 ms, the second done at 80."""
    ops, steps = np.zeros(2, OP), np.zeros(2, STEP)
    ops["rank"], ops["ordinal"] = rank, 2 * iteration + np.array([1, 2])
    ops["counter"], ops["future"] = ops["ordinal"], 1
    since_ns = 1 + 100 * MS * iteration
    ops["issue_ns"] = since_ns + np.array([10, second_ms]) * MS
    ops["end_ns"] = since_ns + np.array([50, 80]) * MS
    steps["rank"], steps["counter"] = rank, iteration + np.array([1, 2])
    steps["ordinal"], steps["at_ns"] = 2 * iteration + np.array([0, 2]), since_ns + np.array([0, 100]) * MS
    return ops, steps


@pytest.mark.parametrize(("others_issue_ms", "own_s"), [(25, 0.08), (48, 0.04)])
def test_a_rank_waits_for_no_bucket_while_it_computes_the_next(others_issue_ms: int, own_s: float) -> None:
    # GIVEN two ranks, of which one issues its second bucket at 60 ms, when the first one is over
    late, other = two_buckets(0, 60), two_buckets(1, others_issue_ms)
    known = measured((np.concatenate((late[0], other[0])), np.concatenate((late[1], other[1]))))

    # THEN it has not waited for the first, if the other rank issued the second while the first was under way:
    # it has waited from 60 to 80. If the other one did so as the first was nearly over, both may have waited for it.
    assert known.rows["own_s"][0, 1] == pytest.approx(own_s, abs=1e-4)


def test_that_nobody_waits_for_a_bucket_is_known_from_earlier_iterations() -> None:
    # GIVEN an iteration in which the second bucket was issued early, and one of which only the late rank is known yet
    known = measured(two_buckets(0, 25), two_buckets(0, 60, iteration=1))
    assert known.rows["own_s"][0, 2] == pytest.approx(0.08, abs=1e-4)


def test_an_end_that_is_seen_a_little_late_is_no_sign_that_nobody_waited() -> None:
    # GIVEN a rank that waited for each, and one that came last to the first, the end of which is seen 0.4 ms late
    waited, last = two_buckets(0, 51), two_buckets(1, 51)
    last[0]["issue_ns"][0], last[0]["end_ns"][0] = 1 + 49_800_000, 1 + 50_600_000
    last[0]["issue_ns"][1] = 1 + 50_200_000
    known = measured((np.concatenate((waited[0], last[0])), np.concatenate((waited[1], last[1]))))
    assert known.rows["own_s"][0, 1] == pytest.approx(0.1 - 0.04 - 0.029, abs=1e-4)


def test_an_iteration_is_measured_when_all_of_its_operations_are_known() -> None:
    # GIVEN a rank whose second bucket is seen to be ready 10 ms after the step that waited for it
    (ops, steps), (next_ops, next_steps) = two_buckets(0, 25), two_buckets(0, 25, iteration=1)
    ops["end_ns"][1] = 1 + 110 * MS
    known = Iterations()
    # WHEN that is not reported yet THEN the iteration is not either
    known.feed(Ops.of_rows(ops[:1]), steps)
    known.measure(KINDS)
    assert known.newest == -1
    # BUT as soon as it is, and the rank was blocked up to its step and no longer
    known.feed(Ops.of_rows(ops[1:]), next_steps[:0])
    known.measure(KINDS)
    assert known.newest == 1
    assert known.rows["own_s"][0, 1] == pytest.approx(0.025, abs=1e-4)
    known.feed(Ops.of_rows(next_ops), next_steps[1:])
    known.measure(KINDS)
    assert known.rows["pattern"][0, 1] == known.rows["pattern"][0, 2] > 0


def test_an_operation_that_is_never_reported_holds_an_iteration_up_until_the_next_step() -> None:
    known = Iterations()
    for iteration in range(4):
        ops, steps = two_buckets(0, 25, iteration)
        known.feed(Ops.of_rows(ops[:1]), steps[1 if iteration else 0 :])
        known.measure(KINDS)
        assert known.newest == (iteration if iteration else -1)


def test_ranks_that_make_no_steps_fill_no_memory() -> None:
    known = Iterations()
    ops = np.zeros(1 << 18, OP)
    for _ in range(8):
        known.feed(Ops.of_rows(ops), np.zeros(0, STEP))
    assert sum(map(len, known._ops)) <= 1 << 20


def test_a_new_process_begins_anew() -> None:
    ops, steps = run(ddp(2), 12).arrays()
    known = measured((ops, steps))
    known.forget()
    assert known.window(np.arange(2), 60.0) is None
    ops, steps = run(ddp(2), 8).arrays()
    known.feed(Ops.of_rows(ops), steps)
    known.measure(np.ones(1, np.uint64))
    window = known.window(np.arange(2), 60.0)
    assert window is not None
    assert int(window.iteration[-1]) == 7


def test_few_iterations_say_nothing() -> None:
    assert measured(run(ddp(2), 4).arrays()).window(np.arange(2), 60.0) is None
    assert Iterations().window(np.arange(2), 60.0) is None
    assert KEPT > 1000
