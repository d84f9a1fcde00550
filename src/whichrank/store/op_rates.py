"""How many operations each rank issues in a second: with the operations of an iteration, how long one takes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

LEAST_S: Final = 1.0
"""Between two measurements of a rank."""
_NEWEST: Final = 0.3
"""Weight of the newest measurement; those before keep the rest."""


class OpRates:
    """By rank, smoothed. Grows by one entry for each rank."""

    def __init__(self) -> None:
        self._measured: dict[int, tuple[float, int, float]] = {}
        """When, the number of operations then, and operations per second."""

    def feed(self, ranks: Any, now_s: float) -> None:
        """Take rows that have `rank` and `ordinal`, how many operations it has issued."""
        for row in ranks[["rank", "ordinal"]]:
            rank, ordinal = int(row["rank"]), int(row["ordinal"])
            at_s, before, rate = self._measured.get(rank, (now_s, ordinal, 0.0))
            if now_s - at_s < LEAST_S and rank in self._measured:
                continue
            if ordinal > before and now_s > at_s:
                now_rate = (ordinal - before) / (now_s - at_s)
                rate = now_rate if not rate else (1 - _NEWEST) * rate + _NEWEST * now_rate
            self._measured[rank] = (now_s, ordinal, rate)

    def known(self, most: int) -> Iterator[tuple[int, float]]:
        """Rank and operations per second of the first ranks, at the most so many, where that is known."""
        return ((rank, rate) for rank, (_, _, rate) in islice(self._measured.items(), most) if rate)
