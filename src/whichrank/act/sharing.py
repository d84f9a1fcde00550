"""Other shares of the work: a replica that is slow gets fewer microbatches.

What is slow is said by incidents at first: who computes slowly, not who waits. From then on it is judged by what a
microbatch takes in each replica, since iterations are as long for all as soon as shares fit: a rank that is slow and
has less to do is late no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from whichrank.act.fixed_time import MOST, FixedTime
from whichrank.act.lever import CLEAR, JUDGED, QUICK, QUICK_UNCLEAR, STILL, Look, Seen
from whichrank.act.offers import Offer, Offers
from whichrank.act.planner import Level, Option
from whichrank.act.rebalance import balanced, iteration_s
from whichrank.model.commands import ShareOut
from whichrank.model.iterations import Bools, Floats

TAKES: Final = 2.0
"""Iterations that other shares cost: one until ranks agree, and one that is part this and part that."""


class Sharing:
    """Of one job."""

    level = Level.REBALANCE

    def __init__(self) -> None:
        self.offers = Offers()
        self._offer: Offer | None = None
        self._told = 0
        self._is_slow: Bools = np.zeros(0, np.bool_)
        self._fixed = FixedTime()

    def version(self, ranks: Sequence[int]) -> int:
        """That all ranks use; -1 while some use another one, or none lets its share be changed."""
        self._offer = self.offers.of(ranks)
        if self._offer is None or self._offer.version < 0:
            return -1
        self._told = max(self._told, self._offer.version)
        return self._offer.version if self._offer.version == self._told else -1

    def forget(self) -> None:
        """The processes were replaced, or begin anew: they have been told nothing."""
        self._told, self._is_slow, self._fixed = 0, np.zeros(0, np.bool_), FixedTime()

    def look(self, seen: Seen) -> Look:
        """What is slow, and what other shares would gain."""
        offer = self._offer
        assert offer is not None
        each_s = self._microbatch_s(offer, seen.own_s)
        self._is_slow = is_slow = self._which_are_slow(offer, each_s, seen)
        took_s, usual_s = np.median(each_s[:, -JUDGED:], axis=1), _usual(np.median(each_s, axis=1))
        microbatch_s = np.where(is_slow, took_s, usual_s)  # others differ by chance, and share evenly
        counts = balanced(microbatch_s, offer.microbatches, offer.multiple)
        even = np.full(offer.replicas, offer.microbatches // offer.replicas)
        besides_s = seen.iteration_s - iteration_s(microbatch_s, offer.counts)
        predicted_s = besides_s + iteration_s(microbatch_s, counts)
        option = Option(self.level, TAKES * seen.iteration_s, predicted_s)
        return Look(
            slow=frozenset(f"replica {at}" for at in np.flatnonzero(is_slow)),
            healthy_s=besides_s + usual_s * int(even[0]),
            option=option if (counts != even).any() else None,  # what is even again is relief, which is soon known
            before=tuple(offer.counts.tolist()),
            after=tuple(counts.tolist()),
        )

    def is_changed(self) -> bool:
        """Whether shares are not even."""
        return self._offer is not None and len(set(self._offer.counts.tolist())) > 1

    def even(self) -> tuple[int, ...]:
        """The shares of a job in which nothing is slow."""
        assert self._offer is not None
        return (self._offer.microbatches // self._offer.replicas,) * self._offer.replicas

    def order(self, after: Sequence[int]) -> ShareOut:
        """To all ranks."""
        assert self._offer is not None
        return self._offer.order(self._told + 1, np.array(after))

    def made(self) -> None:
        """All ranks were told."""
        self._told += 1

    def _were_slow(self, offer: Offer) -> Bools:
        """At the look before, (D,)."""
        return self._is_slow if len(self._is_slow) == offer.replicas else np.zeros(offer.replicas, np.bool_)

    def _microbatch_s(self, offer: Offer, own_s: Floats) -> Floats:
        """What a microbatch takes in each replica, in each iteration, (D, n)."""
        took_s = offer.took_s(own_s)
        self._fixed.see(offer.version, offer.counts, np.median(took_s, axis=1))
        fixed_s = self._fixed.seconds(self._were_slow(offer))
        return np.asarray(np.maximum(took_s - fixed_s, (1 - MOST) * took_s) / offer.counts[:, None])

    def _which_are_slow(self, offer: Offer, each_s: Floats, seen: Seen) -> Bools:
        """Replicas of which microbatches take longer: while all share evenly only such as incidents name.

        Args:
            offer: Of the job.
            each_s: What a microbatch takes in the latest iterations, (D, n).
            seen: The job.
        """
        ratio: Floats = each_s / np.quantile(each_s, 0.5, axis=0, method="lower")
        is_named = np.zeros(offer.replicas, np.bool_)
        is_named[offer.replica[np.isin(offer.ranks, list(seen.found.ranks))]] = True
        return which_are_slow(ratio, is_named, self._were_slow(offer), seen.level)


def which_are_slow(ratio: Floats, is_named: Bools, were_slow: Bools, level: Level) -> Bools:
    """What is slow: while nothing is changed only what incidents name.

    Args:
        ratio: Times as long as others, in the latest iterations, (N, n), n at least JUDGED.
        is_named: By an incident, (N,).
        were_slow: At the look before, (N,).
        level: In which the job is.
    """
    is_long = ratio >= STILL
    now_slow: Bools = np.asarray(is_long[:, -JUDGED:].all(axis=1))
    lately = np.where(np.median(ratio, axis=1) >= CLEAR, QUICK, QUICK_UNCLEAR)
    still = (is_long & (np.arange(is_long.shape[1]) >= is_long.shape[1] - lately[:, None])).any(axis=1)
    found: Bools = np.asarray(np.where(were_slow, still, now_slow))
    return np.asarray(is_named & found) if level is Level.IGNORE else found


def _usual(microbatch_s: Floats) -> float:
    """What a microbatch takes in the middle replica; of two the quicker one."""
    return float(np.quantile(microbatch_s, 0.5, method="lower"))
