"""Slowness that moves from rank to rank: each would be named in its turn, and it would help nobody."""

from __future__ import annotations

from typing import Final

WANDERS: Final = 3
"""Ranks of which one after the other was slow."""


class Turns:
    """Which ranks were slow lately, and are no more.

    Args:
        span_s: How long that is remembered, seconds.
    """

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._seen_s: dict[int, float] = {}

    def take(self, slow: set[int], now_s: float) -> bool:
        """Take the ranks that are slow now; do they take turns?

        So it is if several were and are no more. Ranks that are slow at once are not: each of them may be at fault.
        """
        self._seen_s = {rank: at_s for rank, at_s in self._seen_s.items() if now_s - at_s < self._span_s}
        self._seen_s |= dict.fromkeys(slow, now_s)
        return len(self._seen_s.keys() - slow) >= WANDERS - min(len(slow), 1)
