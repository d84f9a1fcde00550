"""Slow links, live: the latest transfers of a job, what links could do before, and where the kernel sees a fault."""

from __future__ import annotations

from typing import Final

import numpy as np

from whichrank.locate.slow_links import LOSSY, LinkPast, matrix_of, slow_links, without_paths_back
from whichrank.model.iterations import Bools, Floats, Ints, Window
from whichrank.model.links import LinkRate, SlowLink, Transfers
from whichrank.model.places import places
from whichrank.slow.findings import KeyedFinding, of_links
from whichrank.slow.link_cost import LinkCost
from whichrank.store.store import Store
from whichrank.transport.traffic import Traffic

LOST: Final = 0.05
"""Share of the window that a slow link must have cost, to be reported."""
MOST_CELLS: Final = 4096
"""Of the matrix, told to those who watch."""
STALLING: Final = 0.5
"""Share of a window for which connections must stall, before they are reported with no path."""
MORE: Final = 2.0
"""Times what a link has lost before while nothing came of it, from which it loses more."""
DOUBTING: Final = 0.5
"""Share of the time for which connections are looked at more often, at most: a path back may look slow for good."""


class UsualLoss:
    """What links lose while nothing comes of it: a network that is full loses a little for good."""

    def __init__(self) -> None:
        self._pairs, self._share = np.zeros(0, np.int64), np.zeros(0)
        self._exceeded: list[tuple[Ints, Floats]] = []

    def is_exceeded(self, transfers: Transfers, between: Bools) -> bool:
        """Whether a link between nodes has begun to lose more than that, and not for so long yet that it is lossy."""
        pairs = transfers.src << 32 | transfers.dst
        at = places(pairs, self._pairs)
        usual = np.append(self._share, 0.0)[at]
        more = between & (transfers.resent_lately >= np.maximum(LOSSY, MORE * usual)) & (transfers.resent < LOSSY)
        if more.any():
            self._exceeded.append((pairs[more], transfers.resent_lately[more]))
        return bool(more.any())

    def forget_exceeded(self) -> None:
        """Something has come of it: it is not what is usual."""
        self._exceeded.clear()

    def learn(self) -> None:
        """Nothing has come of what was too much so far."""
        pairs = np.concatenate([self._pairs, *(of for of, _ in self._exceeded)])
        share = np.concatenate([self._share, *(of for _, of in self._exceeded)])
        self._pairs, at = np.unique(pairs, return_inverse=True)
        self._share = np.zeros(len(self._pairs))
        np.maximum.at(self._share, at.reshape(-1), share)
        self._exceeded.clear()


class LinkWatch:
    """The links of one job.

    Args:
        window_s: Seconds over which a rate is measured.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._traffic = Traffic()
        self._past = LinkPast()
        self._node = np.zeros(0, np.int64)
        self._usual_loss = UsualLoss()
        self._is_unsure = False
        self._in_doubt_since_s: float | None = None
        self._stalls_since_s: float | None = None
        self.matrix: tuple[LinkRate, ...] = ()
        """Rates between nodes in the latest window, the slowest first."""
        self.in_doubt = False
        """A link is slow, and no kernel has said where: what it says comes and goes, so it must be asked more often. Or
        one has begun to lose data: what it loses is believed once two halves of a window show it."""

    def sample(self, store: Store) -> None:
        """Keep what is known of connections now."""
        ends, _, connections = store.paths.joined()
        self._traffic.sample(ends, connections)

    def transfers(self) -> Transfers:
        """From rank to rank in the latest window."""
        return self._traffic.transfers(self._window_s)

    def examine(
        self,
        store: Store,
        window: Window,
        transfers: Transfers,
        starved: Ints,
        now_s: float,
        cost: LinkCost,
    ) -> list[KeyedFinding]:
        """Links that are slower than others, if the job loses time by it and the sender's kernel says where.

        Args:
            store: The job.
            window: The iterations of this time.
            transfers: All transfers in it.
            starved: Ranks that get less CPU than others: at what pace they read says nothing of the way to them.
            now_s: The time.
            cost: Knows what a link costs the job.
        """
        node = self._node = store.paths.nodes(store.ranks.agent)
        slow = slow_links(transfers, node, self._past)
        costs = {(link.src, link.dst) for link in slow if link.lost_s >= LOST * transfers.lasted_s}
        sure = self._known([link for link in without_paths_back(slow, node) if (link.src, link.dst) in costs], now_s)
        slow = [link for link in slow if (link.src, link.dst) in costs]
        begins_to_lose = self._usual_loss.is_exceeded(transfers, node[transfers.src] != node[transfers.dst])
        if sure:
            self._usual_loss.forget_exceeded()
        self._doubt(now_s, is_unsure=not sure and (bool(slow) or begins_to_lose))
        worth = [k for k in sure if k.dst not in starved and cost.is_waited_for(k.src, k.dst)]
        self.matrix = matrix_of(transfers.of(~np.isin(transfers.dst, starved)), node, self._past, MOST_CELLS, worth)
        if not worth:
            return []
        return [of_links(store, window, transfers, worth, node, cost.seconds(worth))]

    def begin_anew(self) -> None:
        """The job does not iterate yet, or no more: what goes over then is not what usually does."""
        self._traffic.forget()
        self._is_unsure = self.in_doubt = False

    def let_time_pass(self, now_s: float) -> None:
        """Nothing new is known; no doubt lasts for ever."""
        since_s, was_in_doubt = self._in_doubt_since_s, self.in_doubt
        self.in_doubt = self._is_unsure and since_s is not None and now_s - since_s < self._window_s * DOUBTING
        if was_in_doubt and not self.in_doubt:
            self._usual_loss.learn()

    def learn(self, transfers: Transfers, *, only_new: bool) -> None:
        """Nothing was slow in this window.

        Args:
            transfers: In it.
            only_new: Paths of which nothing is known yet.
        """
        self._past.learn(transfers, self._node, only_new=only_new)

    def _known(self, sure: list[SlowLink], now_s: float) -> list[SlowLink]:
        """Of slow links those with an end; connections of which no kernel knows which path is slow if only such remain.

        A path that is slow makes its path back stall at once, and shows by its pace some seconds later.
        """
        with_end = [link for link in sure if link.end]
        if with_end or not sure:
            self._stalls_since_s = None
            return with_end
        if self._stalls_since_s is None:
            self._stalls_since_s = now_s
        return sure if now_s - self._stalls_since_s >= STALLING * self._window_s else []

    def _doubt(self, now_s: float, *, is_unsure: bool) -> None:
        since_s = self._in_doubt_since_s
        self._is_unsure = is_unsure
        if is_unsure and (since_s is None or now_s - since_s >= self._window_s):
            self._in_doubt_since_s = now_s
        self.let_time_pass(now_s)
