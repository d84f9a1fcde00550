"""A column that grows at its end, with room to spare: appending costs by what is appended, not by what is there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Growing:
    """One column.

    Attributes:
        rows: What it holds; a view that an `append` replaces.
    """

    def __init__(self, dtype: Any) -> None:
        self._room: NDArray[Any] = np.zeros(16, dtype)
        self.rows: NDArray[Any] = self._room[:0]

    def append(self, values: NDArray[Any] | int) -> NDArray[Any]:
        """Add these values, or so many zeros; returns all rows."""
        n = len(self.rows)
        more = values if isinstance(values, int) else len(values)
        if n + more > len(self._room):
            room = np.zeros(max(2 * len(self._room), n + more), self._room.dtype)
            room[:n] = self.rows
            self._room = room
        self.rows = self._room[: n + more]
        if not isinstance(values, int):
            self.rows[n:] = values
        return self.rows
