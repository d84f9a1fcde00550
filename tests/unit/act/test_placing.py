"""A job whose ranks can change places: two stages of four replicas that do as they are told."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.act.lever import Found
from whichrank.act.mitigation import Action, Mitigation, Undone
from whichrank.act.placing import Saved
from whichrank.act.planner import Level, Why
from whichrank.model.commands import Place, PlaceOut
from whichrank.model.job_now import JobNow, Lately
from whichrank.model.links import LinkRate
from whichrank.model.telemetry import PLACES_REPORTED

STAGES, REPLICAS = 2, 4
RANKS = STAGES * REPLICAS
WORK_S, GRADIENTS, ACTIVATIONS = 0.8, 50e6, 1e6
LINK = (1, 2)
"""Of gradients, between replicas of the first stage."""


class Job:
    """It takes two iterations until ranks are elsewhere.

    Args:
        fails: Ranks give up whatever they are told.
        handed_bytes_per_s: At which states were handed over in an earlier job.
    """

    def __init__(self, *, fails: bool = False, handed_bytes_per_s: float = 0.0) -> None:
        self.mitigation, self.fails = Mitigation(handed_bytes_per_s=handed_bytes_per_s), fails
        self.order = np.arange(RANKS)
        self.rows = np.zeros(RANKS, PLACES_REPORTED)
        self.rows["rank"] = self.rows["places"]["place"] = np.arange(RANKS)
        offered = {"ranks": RANKS, "stages": STAGES, "stage_stride": REPLICAS, "replicas": REPLICAS}
        for name, value in (offered | {"replica_stride": 1, "microbatches": 8, "bytes": 3_000_000}).items():
            self.rows["places"][name] = value
        self.mitigation.feed(None, self.rows)
        self.own: list[np.ndarray] = []
        self.totals: list[float] = []
        self.actions: list[Action] = []
        self.coming: list[tuple[int, PlaceOut]] = []
        self.carried = np.zeros((RANKS, RANKS))
        self.rates: tuple[LinkRate, ...] = ()
        self.now_s = 0.0

    def run(self, iterations: int, found: Found | None = None, factors: dict[int, float] | None = None,
            link_s: float = 0.0) -> Job:  # fmt: skip
        """So many iterations.

        Args:
            iterations: How many.
            found: What incidents name.
            factors: Times as long as ranks take.
            link_s: What the gradients take longer on the link.
        """
        factor = np.ones(RANKS)
        for rank, times in (factors or {}).items():
            factor[rank] = times
        self.mitigation.named(found or Found())
        for _ in range(iterations):
            while self.coming and self.coming[0][0] <= len(self.totals):
                self.use(self.coming.pop(0)[1])
            self.own.append(WORK_S * factor)
            each_s = (WORK_S / 8 * factor[self.order]).reshape(STAGES, REPLICAS)
            self.totals.append(float((each_s.sum(axis=0) + 7 * each_s.max(axis=0)).max()) + link_s * self._send())
            self.now_s += self.totals[-1]
            number = np.arange(len(self.own))[-20:]
            lately = Lately(
                np.arange(RANKS), number, np.array(self.own[-20:]).T, np.tile(self.totals[-20:], (RANKS, 1))
            )
            if action := self.mitigation.advance(lately, self.now_s, self._now, lambda: self.rates):
                self.actions.append(action)
                self.mitigation.made(action, self.now_s)
                (order,) = action.orders
                assert isinstance(order, PlaceOut)
                self.coming.append((len(self.totals) + 2, order))
        return self

    def give_up(self) -> None:
        """Ranks give up whatever they are told from now on."""
        self.fails = True

    def _send(self) -> float:
        """Send what an iteration does; what the slow link carries of it, in parts of all gradients of a replica."""
        sent = np.zeros((RANKS, RANKS))
        for place, rank in enumerate(self.order):
            stage, replica = divmod(place, REPLICAS)
            sent[rank, self.order[stage * REPLICAS + (replica + 1) % REPLICAS]] += GRADIENTS
            if stage == 0:
                sent[rank, self.order[place + REPLICAS]] += ACTIVATIONS
        self.carried += sent
        return float(sent[LINK] / GRADIENTS)

    def _now(self) -> JobNow:
        carried = {
            src: {dst: int(self.carried[src, dst]) for dst in range(RANKS) if self.carried[src, dst]}
            for src in range(RANKS)
        }
        return JobNow(
            tuple(range(RANKS)), {rank: f"agent {rank}" for rank in range(RANKS)}, (), 1.0, None, None, carried
        )

    def use(self, order: PlaceOut) -> None:
        places = self.rows["places"]
        assert order.version == int(places["used"][0]) + 1
        places["used"], places["took_ms"] = order.version, 400
        places["failed"] = order.version if self.fails else 0
        if not self.fails:
            for one in order.places:
                places["place"][one.rank] = one.place
            self.order = np.argsort(places["place"])
        self.mitigation.feed(None, self.rows)

    def said(self) -> list[tuple[Level, Why]]:
        return [(action.step.level, action.step.why) for action in self.actions]


def rates(link: float) -> tuple[LinkRate, ...]:
    links = [LINK, (3, 4), (5, 6), (0, 1)]
    return tuple(LinkRate(src=src, dst=dst, rate=link, best=1e9, busy=0.1, paced=True) for src, dst in links)


SLOW_LINK = Found(links={LINK: 0.9}, quick_s=0.9)


def test_heavy_traffic_leaves_a_slow_link_until_that_is_quick_again() -> None:
    # GIVEN a link on which gradients take a second longer
    job = Job().run(20).run(30, SLOW_LINK, link_s=1.0)
    assert job.said() == [(Level.TOPOLOGY, Why.IMPACT)]
    assert job.actions[0].step.predicted_s < 0.5 * job.actions[0].step.iteration_s
    # THEN it carries no gradients, so that nobody names it any more; and nothing is taken back, since it is slow still
    job.rates = rates(1e8)
    job.run(30, link_s=1.0)
    assert job.totals[-1] == pytest.approx(0.9, rel=0.05)
    assert len(job.actions) == 1
    # WHEN it is seen to be quick THEN all are where they were
    job.rates = rates(0.95e9)
    job.run(5, link_s=0.0)
    assert job.said()[1:] == [(Level.IGNORE, Why.RELIEF)]
    job.run(5)
    assert job.order.tolist() == list(range(RANKS))


def test_what_a_change_costs_is_known_from_an_earlier_job_and_learned_for_the_next_one() -> None:
    guessed = Job().run(20).run(60, SLOW_LINK, link_s=1.0)
    known = Job(handed_bytes_per_s=1e5).run(20).run(60, SLOW_LINK, link_s=1.0)  # three megabytes in half a minute
    costs_s = [job.actions[0].step.overhead_s for job in (guessed, known)]
    assert costs_s[1] - costs_s[0] == pytest.approx(30.0, rel=0.01)
    assert known.actions[0].step.impact_s >= costs_s[1]  # so it is made later
    assert guessed.mitigation.handed_bytes_per_s == 3_000_000 / 0.4
    assert Job(fails=True).run(20).run(30, SLOW_LINK, link_s=1.0).mitigation.handed_bytes_per_s == 0.0


def test_several_slow_ranks_of_one_replica_come_to_others() -> None:
    slow = {1: 2.0, 5: 2.0}  # both stages of replica 1
    job = Job().run(20).run(200, Found(ranks=dict.fromkeys(slow, 0.9)), slow)
    assert job.said() == [(Level.TOPOLOGY, Why.IMPACT)]
    replicas = [int(np.flatnonzero(job.order == rank)[0]) % REPLICAS for rank in slow]
    assert len(set(replicas)) == 2
    # WHEN they are well THEN all are where they were, within three iterations
    before = len(job.totals)
    job.run(3)
    assert job.said()[1:] == [(Level.IGNORE, Why.RELIEF)]
    assert len(job.totals) == before + 3


def test_one_slow_rank_moves_nobody() -> None:
    assert Job().run(20).run(100, Found(ranks={1: 0.9}), {1: 2.0}).actions == []


def test_link_of_which_nothing_is_known_moves_nobody() -> None:
    unknown = Found(links={LINK: 0.9})
    assert Job().run(20).run(100, unknown, link_s=1.0).actions == []


def test_change_that_ranks_give_up_is_not_tried_again() -> None:
    job = Job(fails=True).run(20).run(60, SLOW_LINK, link_s=1.0)
    assert job.said() == [(Level.TOPOLOGY, Why.IMPACT)]
    assert job.mitigation.level is Level.IGNORE


def test_what_cannot_be_taken_back_stays_until_somebody_wants_it_back() -> None:
    job = Job().run(20).run(30, SLOW_LINK, link_s=1.0)
    job.rates = rates(0.95e9)
    job.give_up()
    job.run(40)
    # THEN it is tried once, and is in force
    assert job.said() == [(Level.TOPOLOGY, Why.IMPACT), (Level.IGNORE, Why.RELIEF)]
    assert job.mitigation.in_force == {Level.TOPOLOGY}
    assert job.mitigation.take_undone() == [(Level.TOPOLOGY, Undone.FAILED)]
    assert job.mitigation.take_undone() == []


def test_checkpoint_does_not_hide_that_a_change_was_given_up() -> None:
    job, ranks = Job(), tuple(range(RANKS))
    job.rows["places"]["saves"] = 1
    job.mitigation.feed(None, job.rows)
    job.run(20).run(30, SLOW_LINK, link_s=1.0)
    job.rates = rates(0.95e9)
    job.give_up()
    while len(job.actions) < 2:
        job.run(1)
    job.use(job.coming.pop()[1])  # all have given it up, and before anybody looks a checkpoint is wanted
    order = job.mitigation.save(ranks)
    assert order is not None
    assert job.mitigation.take_undone() == [(Level.TOPOLOGY, Undone.FAILED)]
    assert job.mitigation.in_force == {Level.TOPOLOGY}


def test_replaced_ranks_have_nothing_in_force() -> None:
    job = Job().run(20).run(30, SLOW_LINK, link_s=1.0)
    assert job.mitigation.in_force == {Level.TOPOLOGY}
    job.mitigation.forget([0])
    assert job.mitigation.in_force == set()
    assert job.mitigation.take_undone() == [(Level.TOPOLOGY, Undone.REPLACED)]


def test_ranks_write_their_states_where_they_are() -> None:
    job, ranks = Job(), tuple(range(RANKS))
    assert job.mitigation.save(ranks) is None
    job.rows["places"]["saves"] = 1
    job.mitigation.feed(None, job.rows)
    # WHEN they are told to THEN nothing else is done until all have
    order = job.mitigation.save(ranks)
    assert order == PlaceOut(1, tuple(Place(rank, rank) for rank in ranks), saves=True)
    assert job.mitigation.saved(ranks) is Saved.UNDER_WAY
    assert job.mitigation.save(ranks) is None
    assert job.run(20, SLOW_LINK, link_s=1.0).actions == []
    job.use(order)
    assert job.mitigation.saved(ranks) is Saved.DONE
    # AND places can be changed then
    job.run(30, SLOW_LINK, link_s=1.0)
    assert job.said() == [(Level.TOPOLOGY, Why.IMPACT)]
    # AND it is known if they cannot, or were replaced
    job.give_up()
    order = job.mitigation.save(ranks)
    assert order is not None
    job.use(order)
    assert job.mitigation.saved(ranks) is Saved.FAILED
    assert job.mitigation.take_undone() == []
    assert job.mitigation.save(ranks) is not None
    job.mitigation.forget([1])
    assert job.mitigation.saved(ranks) is Saved.REPLACED


def test_ranks_that_do_not_agree_on_the_mesh_are_left_alone() -> None:
    job = Job()
    job.rows["places"]["stages"][3] = 1
    job.mitigation.feed(None, job.rows)
    assert job.run(50, SLOW_LINK, link_s=1.0).actions == []
