"""Completed operations as columns.

Agents send the ring's own rows, eighty bytes each. Every field that somebody asks for is taken out of them once, so
that what goes through it afterwards touches no more memory than that field has.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.places import taken
from whichrank.model.signature import signatures
from whichrank.model.telemetry import RECORD_REPORTED

Ints = NDArray[np.int64]


class Completed:
    """Completed operations of ranks of the job, on communicators that are known; those of one rank in their order.

    Args:
        rows: Rows of RECORD_REPORTED.
        at: The places in `rows` of these operations, (n,); None: all of them.
        rank: Of each, (n,).
        comm: The index of its communicator, (n,).
        place: The group rank that the rank has there, -1 where no agent has said it, (n,).
    """

    def __init__(self, rows: np.ndarray[Any, Any], at: Ints | None, rank: Ints, comm: Ints, place: Ints) -> None:
        self._rows, self._at = rows, at
        self.rank, self.comm, self.place = rank, comm, place
        self._whole: Completed | None = None  # of which these are some, at `_at`
        self._columns: dict[str, NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self.rank)

    def __getitem__(self, field: str) -> NDArray[Any]:
        """A field of RECORD of each operation, (n,)."""
        if field not in self._columns:
            # A column that is copied whole is quicker to pick from.
            whole = np.ascontiguousarray(self._rows["row"][field]) if self._whole is None else self._whole[field]
            self._columns[field] = whole if self._at is None else whole[self._at]
        return self._columns[field]

    @cached_property
    def signs(self) -> NDArray[np.uint64]:
        """Their signatures."""
        return signatures(self) if self._whole is None else self._whole.signs[self._at]

    def rows(self, which: Ints) -> np.ndarray[Any, Any]:
        """Rows of RECORD_REPORTED of some of them, by their places here."""
        return taken(self._rows, self.places(which))

    def places(self, which: Ints) -> Ints:
        """The places of some of them among the rows, by their places here."""
        at = which if self._at is None else self._at[which]
        return at if self._whole is None else self._whole.places(at)

    def those(self, which: NDArray[np.bool_]) -> Completed:
        """Only those for which it holds."""
        if which.all():
            return self
        at = np.flatnonzero(which)
        some = Completed(self._rows, at, self.rank[at], self.comm[at], self.place[at])
        some._whole = self
        return some


def no_operations() -> Completed:
    """None have been completed."""
    empty = np.zeros(0, np.int64)
    return Completed(np.zeros(0, RECORD_REPORTED), None, empty, empty, empty)
