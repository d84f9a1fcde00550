"""What ranks of a job have said last of something that they let be changed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np


class Said:
    """By rank; memory grows with these.

    Args:
        part: `shares` or `places`: of the rows that are reported.

    Attributes:
        began_anew: A rank has been told nothing any more: its program has offered anew. Who has seen that resets it.
    """

    def __init__(self, part: str) -> None:
        self.began_anew = False
        self._part, self._said = part, dict[int, Any]()

    @property
    def are_any(self) -> bool:
        """Whether any rank offers something."""
        return bool(self._said)

    def feed(self, rows: np.ndarray[Any, Any]) -> None:
        """Take rows of SHARES_REPORTED or PLACES_REPORTED."""
        for row in rows:
            rank, said = int(row["rank"]), row[self._part]
            before = self._said.get(rank)
            self.began_anew |= before is not None and bool(said["newest"] < before["newest"])
            self._said[rank] = said

    def forget(self, ranks: Collection[int]) -> bool:
        """The processes of these ranks were replaced, or are gone; whether any of them had offered something."""
        known = [rank for rank in ranks if rank in self._said]
        for rank in known:
            del self._said[rank]
        return bool(known)

    def rows(self, ranks: Collection[int]) -> np.ndarray[Any, Any] | None:
        """What these ranks have said, in order; None unless all have."""
        if not ranks or not all(rank in self._said for rank in ranks):
            return None
        return np.array([self._said[rank] for rank in sorted(ranks)])
