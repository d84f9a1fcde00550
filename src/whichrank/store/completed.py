"""Completed operations as columns.

Agents send the ring's own rows, eighty bytes each. Every field that somebody asks for is taken out of them once, so
that what goes through it afterwards touches no more memory than that field has.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.columns.records import take_apart
from whichrank.model.places import taken
from whichrank.model.signature import PARTS
from whichrank.model.telemetry import RECORD_REPORTED

Ints = NDArray[np.int64]


class Records:
    """Rows of RECORD_REPORTED, all fields as columns.

    Args:
        rows: (n,).
        ranks: Of the job.

    Attributes:
        rank: Of each, (n,).
        comm_id: Of each, (n,).
        signs: Their signatures.
        others: How many are of no rank of the job, or no operations.
    """

    def __init__(self, rows: np.ndarray[Any, Any], ranks: int) -> None:
        self.rows = rows
        self._columns, self.others = take_apart(rows, PARTS, ranks)
        self._columns["count"] = self._columns.pop("elements")
        self.rank: Ints = self._columns.pop("rank")
        self.comm_id: NDArray[np.uint64] = self._columns.pop("comm_id")
        self.signs: NDArray[np.uint64] = self._columns.pop("sign")

    def __getitem__(self, field: str) -> NDArray[Any]:
        """A field of RECORD, (n,)."""
        if field not in self._columns:
            self._columns[field] = np.ascontiguousarray(self.rows["row"][field])
        return self._columns[field]


class Completed:
    """Completed operations of ranks of the job, on communicators that are known; those of one rank in their order.

    Args:
        records: What agents have sent.
        at: The places in `records` of these operations, (n,); None: all of them.
        rank: Of each, (n,).
        comm: The index of its communicator, (n,).
        place: The group rank that the rank has there, -1 where no agent has said it, (n,).
    """

    def __init__(self, records: Records, at: Ints | None, rank: Ints, comm: Ints, place: Ints) -> None:
        self._records, self._at = records, at
        self.rank, self.comm, self.place = rank, comm, place
        self._columns: dict[str, NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self.rank)

    def __getitem__(self, field: str) -> NDArray[Any]:
        """A field of RECORD of each operation, (n,)."""
        if self._at is None:
            return self._records[field]
        if field not in self._columns:
            self._columns[field] = self._records[field][self._at]
        return self._columns[field]

    @cached_property
    def signs(self) -> NDArray[np.uint64]:
        """Their signatures."""
        return self._records.signs if self._at is None else self._records.signs[self._at]

    def rows(self, which: Ints) -> np.ndarray[Any, Any]:
        """Rows of RECORD_REPORTED of some of them, by their places here."""
        return taken(self._records.rows, self.places(which))

    def places(self, which: NDArray[Any]) -> Ints:
        """The places of some of them among the records, by their places here."""
        return which if self._at is None else self._at[which]

    def those(self, which: NDArray[np.bool_]) -> Completed:
        """Only those for which it holds."""
        if which.all():
            return self
        some = np.flatnonzero(which)
        return Completed(self._records, self.places(some), self.rank[some], self.comm[some], self.place[some])


def no_operations() -> Completed:
    """None have been completed."""
    empty = np.zeros(0, np.int64)
    return Completed(Records(np.zeros(0, RECORD_REPORTED), 0), None, empty, empty, empty)
