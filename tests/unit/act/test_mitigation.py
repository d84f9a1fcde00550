"""A job of which the program lets its shares be changed: four replicas of two ranks that do as they are told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from whichrank.act.lever import Found
from whichrank.act.mitigation import Action, Mitigation
from whichrank.act.planner import Level, Why
from whichrank.model.commands import ShareOut
from whichrank.model.job_now import JobNow, Lately
from whichrank.model.telemetry import SHARES_REPORTED

RANKS, REPLICAS, EACH = 8, 4, 4
MICROBATCH_S, REST_S = 0.1, 0.05
NOTHING = JobNow((), {}, (), 0.0, None)


class Job:
    """It takes two iterations until ranks use what they were told.

    Args:
        is_auto: What is planned is made.
        fixed_s: What each rank computes in an iteration whatever its share is.
    """

    def __init__(self, *, is_auto: bool = True, fixed_s: float = 0.0) -> None:
        self.mitigation, self.is_auto, self.fixed_s = Mitigation(), is_auto, fixed_s
        self.rows = np.zeros(RANKS, SHARES_REPORTED)
        self.rows["rank"], self.rows["shares"]["replica"] = np.arange(RANKS), np.arange(RANKS) // 2
        for name, value in (("microbatches", EACH * REPLICAS), ("multiple", 1), ("replicas", REPLICAS)):
            self.rows["shares"][name] = value
        self.mitigation.feed(self.rows)
        self.counts = np.full(REPLICAS, EACH)
        self.own: list[np.ndarray] = []
        self.totals: list[float] = []
        self.actions: list[tuple[int, Action]] = []  # with the iteration
        self.coming: list[tuple[int, Action]] = []
        self.now_s = 0.0

    def run(self, iterations: int, factors: Sequence[float] = (), named: Sequence[int] = ()) -> Job:
        """So many iterations in which ranks take so many times as long."""
        times = np.ones(RANKS)
        times[: len(factors)] = factors
        self.mitigation.named(Found(dict.fromkeys(named, 0.9)))
        for _ in range(iterations):
            while self.coming and self.coming[0][0] <= len(self.totals):
                self._use(self.coming.pop(0)[1])
            self.own.append(self.fixed_s + MICROBATCH_S * times * self.counts[np.arange(RANKS) // 2])
            self.totals.append(float(self.own[-1].max()) + REST_S)
            self.now_s += self.totals[-1]
            number = np.arange(len(self.own))[-20:]
            totals = np.tile(self.totals[-20:], (RANKS, 1))
            lately = Lately(np.arange(RANKS), number, np.array(self.own[-20:]).T, totals)
            if action := self.mitigation.advance(lately, self.now_s, lambda: NOTHING, tuple):
                self.actions.append((len(self.totals), action))
                if self.is_auto:
                    self.mitigation.made(action, self.now_s)
                    self.coming.append((len(self.totals) + 2, action))
        return self

    def _use(self, action: Action) -> None:
        (order,) = action.orders
        assert isinstance(order, ShareOut)
        version = order.version
        assert version == int(self.rows["shares"]["used"][0]) + 1
        shares = self.rows["shares"]
        for share in order.shares:
            shares["told"][share.rank, version % 2] = share.first, share.count
        shares["used"] = version
        self.counts = np.array(action.after)
        self.mitigation.feed(self.rows)

    def said(self) -> list[tuple[Level, Why, tuple[int, ...]]]:
        return [(action.step.level, action.step.why, action.after) for _, action in self.actions]


def slow(rank: int, factor: float = 2.0) -> list[float]:
    return [factor if at == rank else 1.0 for at in range(RANKS)]


def test_slow_replica_gets_fewer_microbatches_and_its_share_back() -> None:
    # GIVEN a rank that takes twice as long, and an incident that names it
    job = Job().run(20).run(50, slow(5), named=[5])
    assert job.said() == [(Level.REBALANCE, Why.IMPACT, (5, 5, 2, 4))]
    # THEN iterations take what the best split allows, though nobody is late and named any more
    job.run(50, slow(5))
    assert len(job.actions) == 1
    assert job.totals[-1] == pytest.approx(5 * MICROBATCH_S + REST_S)
    assert abs(job.actions[0][1].step.predicted_s - job.totals[-1]) < 1e-9
    # WHEN it is as quick as the others THEN all share evenly within three iterations
    before = len(job.totals)
    job.run(20)
    assert job.said()[1:] == [(Level.IGNORE, Why.RELIEF, (4, 4, 4, 4))]
    assert job.actions[1][0] <= before + 3
    assert job.totals[-1] == pytest.approx(4 * MICROBATCH_S + REST_S)


@pytest.mark.parametrize("fixed_s", [0.02, 0.1, 0.5])
def test_what_each_computes_besides_its_share_keeps_nobody_slow(fixed_s: float) -> None:
    # GIVEN a rank that takes twice as long for its share, and all the same for what is no share
    job = Job(fixed_s=fixed_s).run(20).run(50, slow(5), named=[5])
    assert job.counts.tolist() == [5, 5, 2, 4] if fixed_s < 0.5 else job.counts[2] < EACH
    # WHEN it is as quick as the others THEN all share evenly within three iterations, and it stays so
    before = len(job.totals)
    job.run(60)
    assert job.said()[-1] == (Level.IGNORE, Why.RELIEF, (4, 4, 4, 4))
    assert job.actions[-1][0] <= before + 3


def test_nobody_is_told_anything_who_is_not_named_or_not_slow() -> None:
    assert Job().run(50, slow(5)).actions == []
    assert Job().run(50, named=[5]).actions == []
    # BUT for a little that is not worth it
    assert Job().run(50, slow(5, 1.05), named=[5]).actions == []


def test_wrong_name_changes_nothing_where_another_one_is_slow() -> None:
    assert Job().run(100, slow(5), named=[1]).actions == []


def test_second_slow_replica_gets_fewer_too() -> None:
    job = Job().run(20).run(30, slow(5), named=[5])
    both = slow(5)
    both[0] = 3.0
    job.run(50, both, named=[5, 0])
    assert [why for _, why, _ in job.said()] == [Why.IMPACT, Why.OTHERS]
    assert job.counts.tolist() == [2, 6, 3, 5]
    assert job.totals[-1] == pytest.approx(0.6 + REST_S)


def test_what_is_only_advised_is_said_once() -> None:
    job = Job(is_auto=False).run(20).run(50, slow(5), named=[5])
    assert job.said() == [(Level.REBALANCE, Why.IMPACT, (5, 5, 2, 4))]
    assert job.counts.tolist() == [4] * 4


def test_ranks_of_which_not_all_use_the_same_shares_are_left_alone() -> None:
    job = Job().run(20)
    job.rows["shares"]["used"][3] = 1
    job.mitigation.feed(job.rows)
    assert job.run(50, slow(5), named=[5]).actions == []


def test_ranks_that_were_started_again_have_been_told_nothing() -> None:
    job = Job().run(20).run(50, slow(5), named=[5])
    # WHEN all ranks end, and others come in their places
    job.mitigation.forget(range(RANKS))
    assert job.mitigation.level is Level.IGNORE
    for name in ("used", "newest"):
        job.rows["shares"][name] = 0
    job.counts[:] = EACH
    job.mitigation.feed(job.rows)
    job.run(20).run(20, slow(5), named=[5])
    # THEN they are told, from the first version on
    assert [action.orders[0].version for _, action in job.actions] == [1, 1]


def test_program_that_offers_nothing_is_left_alone() -> None:
    job = Job()
    job.mitigation.forget([2])
    assert job.run(50, slow(5), named=[5]).actions == []
