"""Gives a replica that has become slow fewer microbatches, and its share back when it is as quick as the others again.

What is slow is said by incidents at first: who computes slowly, not who waits. From then on it is judged by what a
microbatch takes in each replica, since iterations are as long for all as soon as shares fit: a rank that is slow and
has less to do is late no more. When to act at all says the planner.

Only iterations of the shares in use count. Ranks agree among themselves from which iteration on that is, so what they
did until all said so may be of either.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np

from whichrank.act.offers import Offer, Offers
from whichrank.act.planner import Caps, Effect, Level, Option, Planner, Step
from whichrank.act.rebalance import balanced, iteration_s
from whichrank.model.commands import ShareOut
from whichrank.model.iterations import Bools, Floats
from whichrank.model.job_now import Lately

STILL: Final = 1.1
"""Times what a microbatch usually takes, from which a replica is slow: a tenth is a change (Greyhound, 4.2)."""
JUDGED: Final = 3
"""Latest iterations in all of which a replica must be slow, or quick, to count as that."""
MEASURED: Final = 8
"""Latest iterations that say what a microbatch usually takes."""
CLEAR: Final = 1.25
"""Times what a microbatch usually takes, from which a slow replica is far from the others."""
QUICK: Final = 2
QUICK_UNCLEAR: Final = 5
"""Latest iterations in all of which a replica must be as quick as others to be slow no more: one that was far from
them, and one that was not, which could be quick by chance."""
TAKES: Final = 2.0
"""Iterations that other shares cost: one until ranks agree, and one that is part this and part that."""


class Wanted(Enum):
    """What a user may want."""

    NEXT = "what would be done next"
    BACK = "all as it was"


@dataclass(frozen=True)
class Action:
    """Something that is to be done, or that somebody may want to do.

    Attributes:
        step: Why, and what it costs and gains.
        order: To all ranks.
        before: Microbatches of each replica until then, (D,).
        after: And from then on.
    """

    step: Step
    order: ShareOut
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """What would be done next.

    Attributes:
        level: In which the job would be then.
        overhead_s: What that costs, once; due when the slowness has cost as much.
        iteration_s: What an iteration takes now.
        predicted_s: And would take then.
        before: Microbatches of each replica now, (D,).
        after: And then.
    """

    level: Level
    overhead_s: float
    iteration_s: float
    predicted_s: float
    before: tuple[int, ...]
    after: tuple[int, ...]


class Mitigation:
    """Of one job.

    Args:
        caps: How much is done without asking.

    Attributes:
        plan: What would be done next; None while nothing would gain anything.
        healthy_s: What an iteration takes while all is well; 0: not known.
        iteration_s: What one takes now.
    """

    def __init__(self, caps: Caps | None = None) -> None:
        self.plan: Plan | None = None
        self.healthy_s = self.iteration_s = 0.0
        self._caps, self._offers, self._planner = caps, Offers(), Planner(caps)
        self._slow: dict[int, float] = {}  # ranks that incidents name, and how sure they are
        self._version, self._since, self._fed = -1, -1, -1
        self._told = 0
        self._is_slow: Bools = np.zeros(0, np.bool_)

    @property
    def level(self) -> Level:
        """In which the job is."""
        return self._planner.level

    @property
    def impact_s(self) -> float:
        """What the present slowness has cost so far."""
        return self._planner.impact_s

    @property
    def has_offers(self) -> bool:
        """Whether any rank lets its share be changed."""
        return self._offers.are_any

    def feed(self, rows: np.ndarray[Any, Any]) -> None:
        """Take rows of SHARES_REPORTED."""
        self._offers.feed(rows)

    def forget(self, ranks: Collection[int]) -> None:
        """These processes were replaced or are gone: those that come in their places have been told nothing."""
        if self._offers.forget(ranks):
            self._planner, self._told, self._version = Planner(self._caps), 0, -1
            self.plan, self.healthy_s, self.iteration_s = None, 0.0, 0.0

    def named(self, slow: Mapping[int, float]) -> None:
        """Ranks that open incidents say compute slowly, and how sure they are."""
        self._slow = dict(slow)

    def advance(self, lately: Lately, now_s: float, wanted: Wanted | None = None) -> Action | None:
        """What is to be done now; the same is not said twice until it is answered.

        Args:
            lately: The latest iterations.
            now_s: Any clock.
            wanted: By a user.
        """
        offer = self._offers.of(lately.ranks.tolist())
        if offer is None or offer.version < 0 or not len(lately.number):
            return None
        if offer.version != self._version:
            self._version, self._since = offer.version, int(lately.number[-1])
            self._told = max(self._told, offer.version)
        if self._version < self._told:
            return None  # not all ranks use it yet
        new = lately.total_s[:, lately.number > max(self._fed, self._since)]
        self._fed = int(lately.number[-1])
        counted = lately.own_s[:, lately.number > self._since][:, -MEASURED:]
        if counted.shape[1] < JUDGED or not new.shape[1]:
            return None
        each_s = np.stack([offer.microbatch_s(own_s) for own_s in counted.T], axis=1)  # (D, iterations)
        return self._planned(offer, each_s, np.median(new, axis=0), now_s, wanted)

    def made(self, action: Action, now_s: float) -> None:
        """All ranks were told."""
        self._told, self.plan = action.order.version, None
        self._planner.made(action.step, now_s)

    def refused(self, action: Action) -> None:
        """Somebody said no."""
        self._planner.refused(action.step)

    def take_effect(self) -> Effect | None:
        """What the latest action has gained, once, when that is known."""
        return self._planner.take_effect()

    def _planned(
        self, offer: Offer, each_s: Floats, iterations_s: Floats, now_s: float, wanted: Wanted | None
    ) -> Action | None:
        self._is_slow = is_slow = self._which_are_slow(offer, each_s)
        confidence = min((sure for sure in self._slow.values()), default=1.0)
        self._planner.findings(frozenset(f"replica {at}" for at in np.flatnonzero(is_slow)), confidence)
        took_s, usual_s = np.median(each_s[:, -JUDGED:], axis=1), _usual(np.median(each_s, axis=1))
        microbatch_s = np.where(is_slow, took_s, usual_s)  # others differ by chance, and share evenly
        counts = balanced(microbatch_s, offer.microbatches, offer.multiple)
        even = np.full(offer.replicas, offer.microbatches // offer.replicas)
        latest_s = float(np.median(iterations_s))
        besides_s = latest_s - iteration_s(microbatch_s, offer.counts)
        healthy_s = besides_s + usual_s * int(even[0])
        predicted_s = besides_s + iteration_s(microbatch_s, counts)
        option = Option(Level.REBALANCE, TAKES * latest_s, predicted_s)
        options = [option] if (counts != even).any() else []  # what is even again is relief, which is soon known
        step = self._planner.advance(
            now_s, iterations_s.tolist(), healthy_s, options, by_hand=wanted is Wanted.NEXT
        )  # fmt: skip
        if wanted is Wanted.BACK:
            step = self._planner.taken_back(latest_s)
        self.healthy_s, self.iteration_s, self.plan = healthy_s, latest_s, None
        before = tuple(offer.counts.tolist())
        if (upcoming := self._planner.upcoming) is not None:
            self.plan = Plan(
                upcoming.level, upcoming.overhead_s, latest_s, upcoming.iteration_s, before, tuple(counts.tolist())
            )
        if step is None:
            return None
        after = counts if step.level is Level.REBALANCE else even
        return Action(step, offer.order(self._told + 1, after), before, tuple(after.tolist()))

    def _which_are_slow(self, offer: Offer, each_s: Floats) -> Bools:
        """Replicas of which microbatches take longer: while all share evenly only such as incidents name.

        Args:
            offer: Of the job.
            each_s: What a microbatch takes in the latest iterations, (D, n), n from JUDGED to MEASURED.
        """
        ratio: Floats = each_s / np.quantile(each_s, 0.5, axis=0, method="lower")
        is_long = ratio >= STILL
        if self.level is Level.IGNORE:
            is_named = np.zeros(offer.replicas, np.bool_)
            is_named[offer.replica[np.isin(offer.ranks, list(self._slow))]] = True
            return np.asarray(is_named & is_long[:, -JUDGED:].all(axis=1))
        were_slow = self._is_slow if len(self._is_slow) == offer.replicas else np.zeros(offer.replicas, np.bool_)
        lately = np.where(np.median(ratio, axis=1) >= CLEAR, QUICK, QUICK_UNCLEAR)
        still = (is_long & (np.arange(is_long.shape[1]) >= is_long.shape[1] - lately[:, None])).any(axis=1)
        return np.asarray(np.where(were_slow, still, is_long[:, -JUDGED:].all(axis=1)))


def _usual(microbatch_s: Floats) -> float:
    """What a microbatch takes in the middle replica; of two the quicker one."""
    return float(np.quantile(microbatch_s, 0.5, method="lower"))
