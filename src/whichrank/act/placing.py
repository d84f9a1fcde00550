"""Other places for ranks: heavy traffic leaves a slow link, and several slow ranks stand where they cost least.

A link is slow as long as incidents name it. When its traffic has left it, nobody can name it any more: from then on it
is slow until it is seen to be as quick as others. What a byte costs on it is what an iteration takes longer because of
it, over the bytes that it carried in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

import numpy as np

from whichrank.act.lever import JUDGED, Look, Seen
from whichrank.act.place_offers import PlaceOffer, PlaceOffers
from whichrank.act.planner import Level, Option
from whichrank.act.sharing import which_are_slow
from whichrank.act.topology import Cluster, best_order, iterations_s
from whichrank.model.commands import PlaceOut
from whichrank.model.iterations import Bools, Floats, Ints
from whichrank.model.job_now import JobNow

SEVERAL: Final = 2
"""Slow ranks from which others places are tried: of one alone, other shares of the work are cheaper."""
HANDED_BYTES_PER_S: Final = 0.3e9
"""At which states are handed over, where this was never seen."""
STANDS_STILL: Final = 2.0
"""Iterations that training stands still besides, until groups are built."""
TELLING: Final = 1e-3
"""Of the bytes of the busiest way, from which what a way carries would show that it is slow."""
LOOK_ANEW: Final = 64
"""Iterations, while the same is slow."""
QUICK_SHARE: Final = 0.8
"""Of its best rate so far, from which a link is quick again."""


class Saved(Enum):
    """What has become of an order to write states to disk."""

    UNDER_WAY = "ranks write, or have not said yet what came of it"
    DONE = "all states are there"
    FAILED = "not all ranks could write their state: their output says why"
    REPLACED = "processes of ranks have ended meanwhile, or the program has begun anew"


class Placing:
    """Of one job.

    Args:
        handed_bytes_per_s: At which states were handed over in an earlier job; 0: it was never seen.
    """

    level = Level.TOPOLOGY

    def __init__(self, handed_bytes_per_s: float = 0.0) -> None:
        self._handed_bytes_per_s = handed_bytes_per_s or HANDED_BYTES_PER_S
        self.offers = PlaceOffers()
        self._offer: PlaceOffer | None = None
        self._told = self._failed = self._saving = 0  # versions
        self._is_slow: Bools = np.zeros(0, np.bool_)
        self._healthy_s = 0.0
        self._byte_s: dict[tuple[int, int], float] = {}  # of slow links, by rank
        self._traffic: tuple[Ints, Ints, Floats] | None = None  # places that send, that receive, bytes of an iteration
        self._best: tuple[object, int, Ints] = (None, 0, np.zeros(0, np.int64))  # of what, when, and the order

    def version(self, ranks: Sequence[int]) -> int:
        """That all ranks use; -1 while some use another one, or they cannot change places."""
        self._offer = self.offers.of(ranks)
        if self._offer is None or self._offer.version < 0:
            return -1
        self._told = max(self._told, self._offer.version)
        return self._offer.version if self._offer.version == self._told else -1

    def forget(self) -> None:
        """The processes were replaced, or begin anew: they have been told nothing."""
        self._told = self._failed = self._saving = 0
        self._is_slow, self._byte_s, self._traffic = np.zeros(0, np.bool_), {}, None

    def look(self, seen: Seen) -> Look:
        """What is slow, and what other places would gain."""
        offer = self._offer
        assert offer is not None
        order = offer.order
        at = np.searchsorted(seen.ranks, order)  # (R,) by place
        own_s = seen.own_s[at]
        usual_s = np.stack(
            [np.quantile(own_s[offer.stage == s], 0.5, axis=0, method="lower") for s in range(offer.stage.max() + 1)]
        )  # (S, n)
        ratio = np.empty_like(own_s)
        ratio[at] = own_s / usual_s[offer.stage]  # by rank
        is_named = np.isin(seen.ranks, list(seen.found.ranks))
        were_slow = self._is_slow if len(self._is_slow) == len(ratio) else np.zeros(len(ratio), np.bool_)
        self._is_slow = is_slow = which_are_slow(ratio, is_named, were_slow, seen.level)
        self._note_links(seen, offer)
        if not self._byte_s and is_slow.sum() < SEVERAL and seen.level is not self.level:
            return Look()
        factor = np.where(is_slow, np.median(ratio[:, -JUDGED:], axis=1), 1.0)
        slow = frozenset(f"rank {rank}" for rank in seen.ranks[is_slow].tolist())
        slow |= {f"link {src} to {dst}" for src, dst in self._byte_s}
        if not slow:
            return Look(before=tuple(order.tolist()))
        cluster = self._cluster(seen, offer, np.median(usual_s, axis=1), factor)
        new = self._best_order(slow, cluster, order, seen.iterations)
        now_s, then_s = iterations_s(cluster, np.stack((order, new)))
        if seen.level is not self.level:  # elsewhere it is known less well what the same would take
            well_s = float(iterations_s(_well(cluster), self._initial()[None])[0])
            self._healthy_s = max(seen.iteration_s - (float(now_s) - well_s), 0.0)
        moves = bool((new != order).any())
        overhead_s = offer.took_s or offer.size / self._handed_bytes_per_s + STANDS_STILL * seen.iteration_s
        option = Option(self.level, overhead_s, seen.iteration_s - float(now_s - then_s), undo_s=overhead_s)
        return Look(
            slow=slow,
            healthy_s=self._healthy_s,
            option=option if moves else None,
            before=tuple(order.tolist()),
            after=tuple(new.tolist()),
        )

    def _best_order(self, slow: frozenset[str], cluster: Cluster, order: Ints, iterations: int) -> Ints:
        """Of a large job that takes a while: it is looked for anew when something else is slow, and now and then."""
        key, since, found = self._best
        now = slow, tuple(order.tolist())
        if key != now or iterations - since >= LOOK_ANEW:
            found = best_order(cluster, order)
            self._best = now, iterations, found
        return found

    def is_changed(self) -> bool:
        """Whether any rank is elsewhere than at the start."""
        return self._offer is not None and bool((self._offer.order != self._initial()).any())

    def even(self) -> tuple[int, ...]:
        """The order at the start."""
        return tuple(self._initial().tolist())

    def order(self, after: Sequence[int]) -> PlaceOut:
        """To all ranks."""
        assert self._offer is not None
        return self._offer.to(self._told + 1, after)

    def made(self) -> None:
        """All ranks were told."""
        self._told += 1

    def save(self, ranks: Sequence[int]) -> PlaceOut | None:
        """The order to write all states to disk; None while ranks cannot, or are changing places."""
        if self.version(ranks) < 0 or self._offer is None or not self._offer.saves:
            return None
        self._saving = self._told = self._told + 1
        return self._offer.to(self._told, self._offer.order, saves=True)

    def saved(self, ranks: Sequence[int]) -> Saved:
        """What has become of the latest order to write all states to disk."""
        if not self._saving:
            return Saved.REPLACED
        if self.version(ranks) != self._saving or self._offer is None:
            return Saved.UNDER_WAY
        return Saved.FAILED if self._offer.failed else Saved.DONE

    @property
    def has_saved(self) -> bool:
        """Whether the latest thing that ranks were told is to write their states: one iteration has that in it."""
        return self._saving > 0 and self._saving == self._told

    def take_failed(self) -> bool:
        """Whether the latest change was given up; it is said once."""
        offer = self._offer
        failed = offer is not None and offer.failed and offer.version not in (self._failed, self._saving)
        if failed and offer is not None:
            self._failed = offer.version
        return failed

    @property
    def handed_bytes_per_s(self) -> float:
        """At which states were handed over by the latest change; 0: there was none."""
        offer = self._offer
        return offer.size / offer.took_s if offer is not None and offer.took_s and not offer.failed else 0.0

    def _initial(self) -> Ints:
        assert self._offer is not None
        return np.sort(self._offer.order)

    def _note_links(self, seen: Seen, offer: PlaceOffer) -> None:
        """Which links are slow, and what a byte costs on them."""
        if seen.level is self.level:
            if self._byte_s:
                for link in [link for link in self._byte_s if _is_quick(link, seen)]:
                    del self._byte_s[link]
            return
        if not seen.found.links:
            self._byte_s = {}
            return
        if self._traffic is None:
            self._traffic = _traffic(seen.job(), offer, seen.iterations)
        lost_s = seen.iteration_s - seen.found.quick_s if seen.found.quick_s else 0.0
        place_of = {int(rank): place for place, rank in enumerate(offer.order)}
        sender, receiver, size = self._traffic
        found: dict[tuple[int, int], float] = {}
        for src, dst in seen.found.links:
            here = (sender == place_of.get(src, -1)) & (receiver == place_of.get(dst, -1))
            carried = float(size[here].sum())
            if carried and lost_s > 0:
                found[src, dst] = lost_s / carried
        self._byte_s = found

    def _slow_ways(self, node: Ints) -> dict[tuple[int, int], float]:
        """What a byte costs between nodes, where it is slow or may be.

        What goes between nodes at the ends of slow links may share their cable, unless something goes there already
        that nobody names.
        """
        slow = {(int(node[src]), int(node[dst])): cost_s for (src, dst), cost_s in self._byte_s.items()}
        assert self._traffic is not None
        sender, receiver, size = self._traffic
        some = size >= TELLING * size.max()
        first = self._initial()  # the traffic is that of ranks in their first places
        in_use = set(zip(node[first[sender[some]]].tolist(), node[first[receiver[some]]].tolist(), strict=True))
        ends, most_s = {end for way in slow for end in way}, max(slow.values())
        unknown = {(a, b) for a in ends for b in ends if a != b} - in_use - slow.keys()
        return slow | dict.fromkeys(unknown, most_s)

    def _cluster(self, seen: Seen, offer: PlaceOffer, work_s: Floats, factor: Floats) -> Cluster:
        by_rank = np.ones(int(seen.ranks.max()) + 1)
        by_rank[seen.ranks] = factor
        node = np.zeros(len(by_rank), np.int64)
        nothing = np.zeros(0, np.int64)
        sender, receiver, size = self._traffic or (nothing, nothing, np.zeros(0))
        slow: dict[tuple[int, int], float] = {}
        if self._byte_s:
            agent_of = seen.job().agent_of
            numbers = {agent: number for number, agent in enumerate(sorted(set(agent_of.values())))}
            for rank in seen.ranks.tolist():
                node[rank] = numbers.get(agent_of.get(rank, ""), 0)
            slow = self._slow_ways(node)
        return Cluster(
            offer.stage, offer.replica, work_s, by_rank, node, offer.microbatches, sender, receiver, size, 0.0, slow
        )


def _well(cluster: Cluster) -> Cluster:
    """The same job with nothing slow."""
    return Cluster(
        cluster.stage, cluster.replica, cluster.work_s, np.ones_like(cluster.factor), cluster.node,
        cluster.microbatches, cluster.sender, cluster.receiver, cluster.size, cluster.byte_s, {},
    )  # fmt: skip


def _traffic(job: JobNow, offer: PlaceOffer, iterations: int) -> tuple[Ints, Ints, Floats]:
    """What goes from place to place in an iteration, by what connections have carried until now."""
    place_of = {int(rank): place for place, rank in enumerate(offer.order)}
    rows = [
        (place_of[src], place_of[dst], size / max(iterations, 1))
        for src, sent in job.carried.items()
        for dst, size in sent.items()
        if src in place_of and dst in place_of and src != dst
    ]
    sender, receiver, size = zip(*rows, strict=True) if rows else ((), (), ())
    return np.array(sender, np.int64), np.array(receiver, np.int64), np.array(size, np.float64)


def _is_quick(link: tuple[int, int], seen: Seen) -> bool:
    """Whether a link is seen to be as quick as it was."""
    return any(
        (one.src, one.dst) == link and one.best is not None and one.rate >= QUICK_SHARE * one.best
        for one in seen.links()
    )  # others may share its cable, and be as slow
