"""Where iterations begin without optimizer steps: with one operation of each period, the same for all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from batches import T0, Node, S, comm_info, records

from whichrank.model.kinds import Kind
from whichrank.store import marks as module
from whichrank.store.store import Fed, Store

RANKS = [0, 1, 2, 3]
NOW_S = T0 / S
PERIOD_S = 0.2
SIZES = (10, 20, 30)
"""Of the operations of an iteration; a rank computes before the second one."""


class Job:
    """Four ranks of a data-parallel job; iterations of a fifth of a second."""

    def __init__(self, sizes: Sequence[int] = SIZES, pause_before: int = 1, desc: str = "mesh_dp") -> None:
        self.sizes, self.pause_before = sizes, pause_before
        self.store = Store()
        self.nodes = [
            Node(f"{rank}:1", [rank], 4, clock_s=100.0 * rank).comm(comm_info(7, RANKS, desc)) for rank in RANKS
        ]
        self.before = 2  # operations before the first iteration
        self.uneven_from = 1 << 30  # from this iteration on the first five of ten take five times as long
        self.fed: list[Fed] = []
        for node in self.nodes:
            self.feed(node, 0.0, records(node.ranks[0], 7, 1, self.before, kind=Kind.BROADCAST))

    def start_s(self, iteration: int) -> float:
        """When an iteration begins."""
        tens, rest = divmod(max(0, iteration - self.uneven_from), 10)
        return 1.0 + PERIOD_S * (iteration + 4 * (5 * tens + min(rest, 5)))

    def rows(self, rank: int, first: int, last: int) -> np.ndarray[Any, Any]:
        """What a rank does in these iterations, from 0."""
        each = len(self.sizes)
        rows = records(rank, 7, self.before + 1 + first * each, (last - first) * each)
        rows["row"]["count"] = np.tile(self.sizes, last - first)
        at_s = np.add.outer([self.start_s(at) for at in range(first, last)], np.arange(each) * 0.001)
        at_s[:, self.pause_before :] += 0.15
        rows["row"]["t_issue_ns"] = [self.nodes[rank].ns(one) for one in at_s.reshape(-1).tolist()]
        rows["row"]["t_end_ns"] = rows["row"]["t_issue_ns"] + 1000
        return rows

    def feed(self, node: Node, at_s: float, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.fed.append(self.store.feed(node.batch(at_s, rows), NOW_S + at_s))
        return self.fed[-1].steps

    def go_on(self, first: int, last: int, *ranks: int) -> dict[int, np.ndarray[Any, Any]]:
        """The iterations that begin, by rank."""
        at_s = self.start_s(last)
        return {rank: self.feed(self.nodes[rank], at_s, self.rows(rank, first, last)) for rank in ranks or RANKS}


def numbers(steps: np.ndarray[Any, Any]) -> list[int]:
    return steps["row"]["counter"].tolist()


def test_an_iteration_begins_where_ranks_compute_and_has_its_number() -> None:
    job = Job()
    # GIVEN that too little is known at first
    assert not any(len(steps) for steps in job.go_on(0, 10).values())
    # WHEN it has gone on for three seconds
    job.go_on(10, 30)
    for rank, steps in job.go_on(30, 40).items():
        # THEN each iteration begins with the operation behind the pause, and is numbered from 0
        assert numbers(steps) == list(range(30, 40))
        assert (steps["rank"] == rank).all()
        assert steps["row"]["ordinal"].tolist() == [2 + 3 * i + 1 for i in range(30, 40)]
        expected_ns = job.rows(rank, 30, 40)["row"]["t_issue_ns"][1::3]
        assert steps["row"]["t_issue_ns"].tolist() == expected_ns.tolist()
    assert not any(fed.begins_anew for fed in job.fed)


def test_ranks_that_come_later_or_have_lost_operations_count_as_the_others_do() -> None:
    job = Job()
    job.go_on(0, 30, 0, 1, 2)
    job.go_on(30, 40, 0, 1, 2)
    # WHEN a rank is heard late, and one loses operations
    node = job.nodes[3]
    late = [job.feed(node, 9.0 + i, job.rows(3, 10 * i, 10 * i + 10)) for i in range(4)]
    job.nodes[1].is_(1, job.nodes[1].row[1].get("state", 1), lost_records=50)
    job.feed(job.nodes[1], 12.5, job.rows(1, 45, 50))
    lossy = job.feed(job.nodes[1], 13.0, job.rows(1, 50, 60))
    # THEN their numbers are those of the others
    assert numbers(late[-1]) == list(range(30, 40))
    assert numbers(lossy) in ([], list(range(50, 60)))
    assert numbers(job.go_on(60, 62, 0)[0])[-1:] != [61]  # rank 0 has lost nothing: it counts on from 40
    assert numbers(job.feed(job.nodes[2], 14.0, job.rows(2, 40, 45))) == list(range(40, 45))


def test_operations_that_are_all_alike_begin_an_iteration_after_each_long_pause() -> None:
    job = Job((10, 10, 10, 10), pause_before=2)
    job.go_on(0, 10)
    job.go_on(10, 30)
    for steps in job.go_on(30, 40).values():
        assert numbers(steps) == list(range(30, 40))
        assert np.diff(steps["row"]["ordinal"]).tolist() == [4] * 9
        assert steps["row"]["ordinal"][0] == 2 + 4 * 30 + 2


def test_half_a_second_of_what_is_always_alike_is_an_iteration() -> None:
    job = Job((10,), pause_before=1)  # one in a fifth of a second
    job.go_on(0, 30)
    for steps in job.go_on(30, 60).values():
        assert set(np.diff(steps["row"]["ordinal"]).tolist()) == {2}
        assert np.diff(numbers(steps)).tolist() == [1] * (len(steps) - 1)
        assert 14 <= len(steps) <= 16


def test_whoever_makes_steps_needs_no_marks() -> None:
    job = Job()
    job.go_on(0, 30)
    job.go_on(30, 35)
    step = records(0, 7, 1, 1, kind=Kind.STEP, ordinal=107)
    assert numbers(job.feed(job.nodes[0], 8.0, step)) == [1]
    assert job.fed[-1].begins_anew
    assert not any(fed.begins_anew for fed in job.fed[:-1])
    steps = job.go_on(35, 45)
    assert [len(steps[rank]) for rank in RANKS] == [0, 10, 10, 10]


def test_another_period_begins_anew() -> None:
    job = Job()
    job.go_on(0, 30)
    assert numbers(job.go_on(30, 32)[0]) == [30, 31]
    # WHEN the program goes on to another phase
    job.sizes = (40, 50, 60)
    job.go_on(32, 50)
    job.go_on(50, 60)
    assert job.store.sequences.marks.beginnings(np.array(RANKS)) is None
    job.go_on(60, 80)
    # THEN its iterations are counted on
    assert any(fed.begins_anew for fed in job.fed)
    after = numbers(job.go_on(80, 85)[0])
    assert np.diff(after).tolist() == [1] * 4
    assert after[0] > 31


def test_what_is_over_soon_does_not_make_iterations_begin_anew() -> None:
    # GIVEN an evaluation of two seconds
    job = Job()
    job.go_on(0, 30)
    job.go_on(30, 40)
    job.sizes = (40, 40, 40)
    job.go_on(40, 50)
    # WHEN training goes on THEN it does so with the next numbers, and the evaluation is part of an iteration
    job.sizes = SIZES
    for steps in job.go_on(50, 53).values():
        assert numbers(steps) == [40, 41, 42]
    assert not any(fed.begins_anew for fed in job.fed)
    job.go_on(53, 55)
    known = job.store.sequences.marks.beginnings(np.array(RANKS))
    assert known is not None
    assert known.each.tolist() == [len(SIZES)] * len(RANKS)


def with_logs(job: Job, first: int, last: int, count: int = 99) -> None:
    """Iterations, each tenth of which has a log: what else the ranks do is shifted by one operation."""
    for begin in range(first, last, 10):
        job.go_on(begin, begin + 10)
        for node in job.nodes:
            rank = node.ranks[0]
            log = records(rank, 7, job.before + 1 + (begin + 10) * len(job.sizes), 1)
            log["row"]["count"] = count
            log["row"]["t_issue_ns"] = log["row"]["t_end_ns"] = node.ns(job.start_s(begin + 10) - 0.04)
            job.feed(node, job.start_s(begin + 10), log)
        job.before += 1


def test_a_log_in_each_tenth_iteration_ends_none() -> None:
    # GIVEN a job of one communicator that has a log in each tenth iteration from the beginning on
    job = Job(desc="default_pg")
    with_logs(job, 0, 100)
    # THEN iterations are still iterations
    for steps in job.go_on(100, 109).values():
        assert np.diff(numbers(steps)).tolist() == [1] * 8
        assert np.diff(steps["row"]["ordinal"]).tolist() == [3] * 8
    assert not any(fed.begins_anew for fed in job.fed)


@pytest.mark.parametrize("is_uneven", [False, True])
def test_a_log_that_is_like_the_only_operation_that_may_begin_one_loses_nothing(is_uneven: bool) -> None:
    # GIVEN iterations in which one operation comes once, before which the ranks compute
    job = Job((10, 10, 20, 10), pause_before=2, desc="default_pg")
    job.go_on(0, 30)
    assert job.go_on(30, 40)[0]["row"]["counter"].tolist() == list(range(30, 40))
    # WHEN a log has the same form from now on, perhaps while a link is slow in turns
    job.uneven_from = 40 if is_uneven else job.uneven_from
    with_logs(job, 40, 140, count=20)
    # THEN iterations begin with another one, and a log ends none
    assert any(fed.begins_anew for fed in job.fed)
    for steps in job.go_on(140, 149).values():
        assert np.diff(numbers(steps)).tolist() == [1] * 8
        assert np.diff(steps["row"]["ordinal"]).tolist() == [4] * 8


def test_an_iteration_takes_as_long_as_from_one_beginning_to_the_next() -> None:
    # GIVEN a job with a log in each tenth iteration: its period takes ten times as long
    job = Job(desc="default_pg")
    with_logs(job, 0, 100)
    assert job.store.sequences.period_of(0) > len(job.sizes)
    # THEN this is what an iteration takes
    assert job.store.iteration_s() == pytest.approx(PERIOD_S, rel=0.01)
    # WHEN the program goes on to another phase THEN nothing of the one before counts
    job.sizes = (40, 50)
    for first in range(150, 250, 10):
        job.go_on(first, first + 10)
    assert job.store.iteration_s() == pytest.approx(PERIOD_S, rel=0.01)


def test_iterations_begin_with_operations_in_a_row_where_none_comes_once() -> None:
    # GIVEN layers that are gathered forward, and gathered and scattered backward
    job = Job((10, 10, 10, 20, 10, 20, 20), pause_before=0)
    job.go_on(0, 30)
    first = job.before + 30 * 7 + 6  # the second scatter in a row
    for rank, steps in job.go_on(30, 40).items():
        assert numbers(steps) == list(range(30, 40))
        assert steps["row"]["ordinal"].tolist() == list(range(first, first + 70, 7))
        assert (steps["rank"] == rank).all()
    # WHEN the operation before the last one is reported late THEN the iteration begins late, and is counted
    rows = job.rows(0, 40, 42)
    late = [5]
    assert numbers(job.feed(job.nodes[0], 9.5, np.delete(rows, late))) == []
    assert numbers(job.feed(job.nodes[0], 9.6, rows[late])) == [40, 41]
    # AND a log in each tenth iteration ends none
    job.before += 2
    job.go_on(42, 50)
    with_logs(job, 50, 150)
    for steps in job.go_on(150, 159).values():
        assert np.diff(numbers(steps)).tolist() == [1] * 8
        assert np.diff(steps["row"]["ordinal"]).tolist() == [7] * 8


class Pipeline:
    """Two ranks: the first sends eight microbatches and then receives as many, the second one answers each."""

    MICROBATCHES = 8

    def __init__(self) -> None:
        self.store = Store()
        self.nodes = [Node(f"{rank}:1", [rank], 2).comm(comm_info(7, [0, 1], "pp")) for rank in (0, 1)]

    def start_s(self, iteration: int) -> float:
        """When an iteration begins."""
        tens, rest = divmod(max(0, iteration - self.uneven_from), 10)
        return 1.0 + PERIOD_S * (iteration + 4 * (5 * tens + min(rest, 5)))

    def rows(self, rank: int, first: int, last: int) -> np.ndarray[Any, Any]:
        many = self.MICROBATCHES
        sends = [True] * many + [False] * many if rank == 0 else [False, True] * many
        rows = records(rank, 7, 1, 2 * many * (last - first), ordinal=1 + 2 * many * first, peer=1 - rank)
        is_send = np.tile(sends, last - first)
        rows["row"]["kind"] = np.where(is_send, Kind.SEND, Kind.RECV)
        for which in (is_send, ~is_send):
            rows["row"]["counter"][which] = many * first + 1 + np.arange(which.sum())
        each_s = np.full(2 * many, 0.01)
        each_s[0] = 0.05
        begins_s = np.arange(first, last)[:, None] * each_s.sum() + np.cumsum(each_s)
        rows["row"]["t_issue_ns"] = [T0 + int(at_s * S) for at_s in begins_s.reshape(-1).tolist()]
        rows["row"]["t_end_ns"] = rows["row"]["t_issue_ns"] + 1000
        return rows

    def go_on(self, first: int, last: int, *ranks: int) -> list[np.ndarray[Any, Any]]:
        return [
            self.store.feed(self.nodes[rank].batch(0.2 * last, self.rows(rank, first, last)), NOW_S + 0.2 * last).steps
            for rank in ranks or (0, 1)
        ]


def test_a_stage_that_repeats_itself_with_each_microbatch_begins_iterations_as_often_as_the_one_before_it() -> None:
    job = Pipeline()
    for first in range(0, 40, 5):
        job.go_on(first, first + 5)
    # GIVEN that the first stage was found to send eight in an iteration
    for first in range(40, 80, 5):
        job.go_on(first, first + 5)
    # THEN an iteration of the second one is eight of its periods, and has the number of the first one's
    assert [job.store.sequences.period_of(rank) for rank in (0, 1)] == [16, 2]
    first, second = job.go_on(80, 85)
    assert numbers(first) == numbers(second)
    assert np.diff(numbers(second)).tolist() == [1] * 4
    assert np.diff(second["row"]["ordinal"]).tolist() == [16] * 4
    # AND it begins where that stage waits for the first microbatch
    assert (second["row"]["ordinal"] % 16 == 0).all()
    assert job.store.iteration_s() == pytest.approx(0.2, rel=0.01)


def test_members_have_the_same_number_for_the_same_operation() -> None:
    job = Job()
    job.go_on(0, 30)
    job.go_on(30, 32)
    # WHEN one has lost count
    job.store.sequences.marks._number[2] -= 1
    # THEN it goes on with the number of the others
    assert {tuple(numbers(steps)) for steps in job.go_on(32, 34).values()} == {(32, 33)}


def test_layers_are_no_iterations_though_little_else_is_in_one() -> None:
    # GIVEN iterations of the same layer, forward and then backward, and one operation that no layer has
    job = Job((10, 11) * 16 + (20,), desc="mesh_tp")
    each = np.concatenate((np.tile((0.003, 0.001), 8), np.tile((0.008, 0.001), 8), [0.001]))
    rows = Job.rows

    def uneven(self: Job, rank: int, first: int, last: int) -> np.ndarray[Any, Any]:
        made = rows(self, rank, first, last)
        at_s = np.add.outer(np.arange(first, last) * PERIOD_S, np.cumsum(each)).reshape(-1)
        made["row"]["t_issue_ns"] = [self.nodes[rank].ns(1.0 + one) for one in at_s.tolist()]
        made["row"]["t_end_ns"] = made["row"]["t_issue_ns"] + 1000
        return made

    job.rows = uneven.__get__(job)  # type: ignore[method-assign]
    # WHEN they were looked at THEN an iteration has them all
    for begin in range(0, 60, 10):
        job.go_on(begin, begin + 10)
    for steps in job.go_on(60, 70).values():
        assert np.diff(steps["row"]["ordinal"]).tolist() == [33] * 9


def test_a_log_that_comes_later_changes_nothing() -> None:
    # GIVEN a job of one communicator, whose iterations are known
    job = Job(desc="default_pg")
    job.go_on(0, 30)
    assert numbers(job.go_on(30, 40)[0]) == list(range(30, 40))
    # WHEN it has a log in each tenth from now on, so that it repeats itself after ten
    with_logs(job, 40, 140)
    # THEN they begin as before, are counted on, and nothing begins anew
    assert numbers(job.go_on(140, 145)[0]) == list(range(140, 145))
    assert not any(fed.begins_anew for fed in job.fed)


def test_what_is_learnt_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LOOKED_AT", 60)
    job = Job()
    job.go_on(0, 10)
    marks = job.store.sequences.marks
    assert marks._learning
    # WHEN the rank that is looked at goes on to something that is never the same
    rows = job.rows(0, 10, 40)
    rows["row"]["count"] = 1000 + np.arange(len(rows))
    job.feed(job.nodes[0], 9.0, rows)
    assert not marks._learning
    # AND no more sorts are looked at at one time than there should be: the others come later
    monkeypatch.setattr(module, "MOST_AT_ONCE", 0)
    waits = Job()
    waits.go_on(0, 30)
    assert not waits.store.sequences.marks._learning
    assert waits.store.sequences.marks._waiting == set(RANKS)
    monkeypatch.setattr(module, "MOST_AT_ONCE", 64)
    # AND a process that is replaced is looked at no more
    job = Job()
    job.go_on(0, 10)
    job.store.sequences.forget(0)
    assert not job.store.sequences.marks._learning


def test_it_is_known_behind_which_operation_all_could_be_kept() -> None:
    job = Job()
    marks = job.store.sequences.marks
    assert marks.beginnings(np.array(RANKS)) is None
    for first in range(0, 60, 10):
        job.go_on(first, first + 10)
    # GIVEN iterations that are known THEN the next one begins as many operations further on
    known = marks.beginnings(np.array(RANKS))
    assert known is not None
    assert known.each.tolist() == [len(SIZES)] * len(RANKS)
    assert len(set(known.number.tolist())) == 1
    assert known.ordinal.tolist() == [job.before + 59 * len(SIZES) + job.pause_before] * len(RANKS)
    # AND not where some rank begins with another operation
    marks._sort[2] += 1
    assert marks.beginnings(np.array(RANKS)) is None
    # AND not of a rank that is not known
    assert marks.beginnings(np.array([0, 99])) is None
