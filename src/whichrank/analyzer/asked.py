"""What agents are asked for: stacks, and samples of the threads that train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from whichrank.model.commands import Order, SampleThreads, TakeStacks
from whichrank.store.store import Store

AT_ONCE: Final = 8
"""Ranks whose stacks are asked for at one snapshot."""
AGAIN_S: Final = 5.0
"""Stacks of one rank, at the earliest."""
SOON_S: Final = 1.0
"""The same, where those from before a moment say nothing of what is asked."""
_NEVER_S: Final = -1e9
"""A time before all others."""


class Asked:
    """Wishes that have not been sent yet. At most one of each rank."""

    def __init__(self) -> None:
        self._stacks: set[int] = set()
        self._stacks_s: dict[int, float] = {}
        self._samples: set[int] = set()
        self._samples_s = 0.0

    def want_stacks(self, store: Store, ranks: Sequence[int], now_s: float, again_s: float = AGAIN_S) -> None:
        """Of these ranks, some at a time: those first of which there is none, or the oldest."""
        for rank in sorted(ranks, key=lambda r: self._stacks_s.get(r, _NEVER_S))[:AT_ONCE]:
            if now_s - self._stacks_s.get(rank, _NEVER_S) > again_s and store.ranks.present[rank]:
                self._stacks_s[rank] = now_s
                self._stacks.add(rank)

    def want_samples(self, ranks: Sequence[int], seconds: float) -> None:
        """Samples of the threads that train, for so long."""
        self._samples.update(ranks)
        self._samples_s = seconds

    def take(self, store: Store, agent: int) -> list[Order]:
        """What is wanted of the ranks of an agent, which is asked now."""
        stacks, samples = (
            tuple(sorted(r for r in wanted if store.ranks.agent[r] == agent))
            for wanted in (self._stacks, self._samples)
        )
        self._stacks.difference_update(stacks)
        self._samples.difference_update(samples)
        orders: list[Order] = [TakeStacks(stacks)] if stacks else []
        if samples:
            orders.append(SampleThreads(samples, self._samples_s))
        return orders
