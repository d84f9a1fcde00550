"""Does a slow rank wait for data? Some looks at its stack tell, where its node says nothing."""

from __future__ import annotations

from collections import Counter
from typing import Final

from whichrank.analyzer.reasons import loads_data, main_stack
from whichrank.analyzer.state import JobState

MOST_LOOKS: Final = 40
"""At the stack of a rank."""
LEAST_HITS: Final = 2
"""Of these, at least, in a data loader."""


class LoaderLooks:
    """Stacks of ranks that are slow for no known reason."""

    def __init__(self) -> None:
        self._unexplained: set[int] = set()
        self._taken_s: dict[int, float] = {}
        self._looks: Counter[int] = Counter()
        self._hits: Counter[int] = Counter()

    def __bool__(self) -> bool:
        """Is a rank unexplained?"""
        return bool(self._unexplained)

    def note(self, rank: int, *, is_explained: bool) -> None:
        """Whether a reason is known for this rank."""
        (self._unexplained.discard if is_explained else self._unexplained.add)(rank)

    def keep(self, ranks: set[int]) -> None:
        """All others are slow no more."""
        self._unexplained &= ranks

    def want(self, state: JobState) -> list[int]:
        """Ranks whose stacks would tell; what has come since is counted."""
        for rank in self._unexplained:
            taken_s = state.stacks[rank][0] if rank in state.stacks else 0.0
            if taken_s > self._taken_s.get(rank, 0.0):
                self._taken_s[rank] = taken_s
                self._looks[rank] += 1
                self._hits[rank] += loads_data(main_stack(state, rank))
        return [rank for rank in sorted(self._unexplained) if self._looks[rank] < MOST_LOOKS]

    def share(self, rank: int) -> float:
        """Of the looks at this rank's stack, how many found it in a data loader."""
        hits = self._hits[rank]
        return hits / self._looks[rank] if hits >= LEAST_HITS else 0.0
