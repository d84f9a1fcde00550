"""For how much of its time is a slow rank in a data loader? Its stack is sampled, and a peer's, since all load data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from whichrank.locate.stack_reading import loads_data
from whichrank.store.store import Store

ITERATIONS: Final = 2.0
"""For how many iterations a rank is sampled at a time."""
LEAST_S: Final = 2.0
"""Seconds for which a rank is sampled: fewer samples say nothing of a share."""
LONGEST_S: Final = 20.0
"""Seconds for which it is sampled at the most, however long an iteration takes."""
MOST: Final = 12
"""Times that a rank is sampled."""
SLACK_S: Final = 3.0
"""After which one that did not come is asked for again."""


class LoaderShare:
    """Ranks that are slow for no known reason, and what their main threads were found in."""

    def __init__(self) -> None:
        self._beside: dict[int, int | None] = {}  # a rank and one in the same position
        self._unexplained: set[int] = set()
        self._asked_s: dict[int, float] = {}
        self._taken_ns: dict[int, int] = {}
        self._shares: defaultdict[int, list[float]] = defaultdict(list)

    def __bool__(self) -> bool:
        """Is a rank unexplained?"""
        return bool(self._unexplained)

    def note(self, rank: int, peer: int | None, *, is_explained: bool) -> None:
        """Whether a reason is known for this rank, and one in the same position that is sound."""
        (self._unexplained.discard if is_explained else self._unexplained.add)(rank)
        self._beside.setdefault(rank, peer)

    def keep(self, is_slow: Callable[[int], bool]) -> None:
        """Forget ranks that are slow no more."""
        for rank in [rank for rank in self._beside if not is_slow(rank)]:
            del self._beside[rank]
            self._unexplained.discard(rank)
        sampled = {rank for pair in self._beside.items() for rank in pair}
        for rank in [rank for rank in self._shares if rank not in sampled]:
            del self._shares[rank]
            self._asked_s.pop(rank, None)

    def want(self, store: Store, iteration_s: float, now_s: float) -> tuple[list[int], float]:
        """Ranks to be sampled, and for how long; what has come since is counted."""
        seconds = min(max(ITERATIONS * iteration_s, LEAST_S), LONGEST_S)
        wanted = []
        pairs = [(rank, self._beside[rank]) for rank in self._unexplained]
        for rank in sorted({r for pair in pairs for r in pair if r is not None}):
            at_ns, stacks = store.profiles.get(rank, (0, []))
            if stacks and at_ns > self._taken_ns.get(rank, 0):
                self._taken_ns[rank] = at_ns
                self._shares[rank].append(sum(stack.share for stack in stacks if loads_data(stack)))
                self._asked_s.pop(rank, None)
            if len(self._shares[rank]) < MOST and now_s - self._asked_s.get(rank, -1e9) > 2 * seconds + SLACK_S:
                self._asked_s[rank] = now_s
                wanted.append(rank)
        return wanted, seconds

    def share(self, rank: int) -> float:
        """Share of its time in a data loader, beyond that of its peer; 0 while it is not known."""
        peer = self._beside.get(rank)
        mine, theirs = self._mean(rank), self._mean(peer) if peer is not None else 0.0
        return max(0.0, mine - theirs) if mine is not None and theirs is not None else 0.0

    def _mean(self, rank: int) -> float | None:
        shares = self._shares.get(rank)
        return sum(shares) / len(shares) if shares else None
