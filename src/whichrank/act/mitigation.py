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
TAKES: Final = 2.0
"""Iterations that other shares cost: one until ranks agree, and one that is part this and part that."""


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


class Mitigation:
    """Of one job.

    Args:
        caps: How much is done without asking.
    """

    def __init__(self, caps: Caps | None = None) -> None:
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

    def named(self, slow: Mapping[int, float]) -> None:
        """Ranks that open incidents say compute slowly, and how sure they are."""
        self._slow = dict(slow)

    def advance(self, lately: Lately, now_s: float) -> Action | None:
        """What is to be done now; the same is not said twice until it is answered.

        Args:
            lately: The latest iterations.
            now_s: Any clock.
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
        return self._planned(offer, each_s, np.median(new, axis=0), now_s)

    def made(self, action: Action, now_s: float) -> None:
        """All ranks were told."""
        self._told = action.order.version
        self._planner.made(action.step, now_s)

    def refused(self, action: Action) -> None:
        """Somebody said no."""
        self._planner.refused(action.step)

    def take_effect(self) -> Effect | None:
        """What the latest action has gained, once, when that is known."""
        return self._planner.take_effect()

    def _planned(self, offer: Offer, each_s: Floats, iterations_s: Floats, now_s: float) -> Action | None:
        self._is_slow = is_slow = self._which_are_slow(offer, each_s[:, -JUDGED:])
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
        step = self._planner.advance(now_s, iterations_s.tolist(), healthy_s, options)
        if step is None:
            return None
        after = counts if step.level is Level.REBALANCE else even
        order = offer.order(self._told + 1, after)
        return Action(step, order, tuple(offer.counts.tolist()), tuple(after.tolist()))

    def _which_are_slow(self, offer: Offer, each_s: Floats) -> Bools:
        """Replicas of which microbatches take longer: while all share evenly only such as incidents name.

        Args:
            offer: Of the job.
            each_s: What a microbatch takes in the latest iterations, (D, JUDGED).
        """
        ratio: Floats = each_s / np.array([_usual(column) for column in each_s.T])
        if self.level is Level.IGNORE:
            is_named = np.zeros(offer.replicas, np.bool_)
            is_named[offer.replica[np.isin(offer.ranks, list(self._slow))]] = True
            return np.asarray(is_named & (ratio >= STILL).all(axis=1))
        were_slow = self._is_slow if len(self._is_slow) == offer.replicas else np.zeros(offer.replicas, np.bool_)
        return np.asarray(np.where(were_slow, (ratio >= STILL).any(axis=1), (ratio >= STILL).all(axis=1)))


def _usual(microbatch_s: Floats) -> float:
    """What a microbatch takes in the middle replica; of two the quicker one."""
    return float(np.quantile(microbatch_s, 0.5, method="lower"))
