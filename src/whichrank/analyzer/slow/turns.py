"""Slowness that moves from rank to rank: each would be named in its turn, and it would help nobody."""

from __future__ import annotations

from typing import Final

WANDERS: Final = 3
"""Ranks of which one after the other was slow."""
BACK: Final = 2
"""Windows for which that is remembered."""


class Turns:
    """Which ranks were slow lately, and are no more.

    Args:
        window_s: Seconds over which a slowdown is judged.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._seen_s: dict[int, float] = {}

    def take(self, slow: set[int], suspects: set[int], now_s: float) -> bool:
        """Do ranks take turns?

        So it is if several were, within two windows, and have not been for half of one. Those that are slow at once
        do not take turns: each of them may be at fault, also where a look misses one.

        Args:
            slow: Ranks that delay the job now.
            suspects: Those that take longer, whether it delays anybody or not.
            now_s: The time.
        """
        self._seen_s = {rank: at_s for rank, at_s in self._seen_s.items() if now_s - at_s < BACK * self._window_s}
        self._seen_s |= dict.fromkeys(slow | (self._seen_s.keys() & suspects), now_s)
        over = [rank for rank, at_s in self._seen_s.items() if now_s - at_s >= self._window_s / 2]
        return len(over) >= WANDERS - min(len(slow), 1)
