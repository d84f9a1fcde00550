"""How many operations of each kind a communicator has completed: it tells what a communicator is for."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.columns.counts import count_kinds

KINDS: Final = 64
"""More than there are: a kind is a byte on the wire, and of others nothing is counted."""


class OpKinds:
    """Counts by communicator: a row of `KINDS` numbers for each."""

    def __init__(self) -> None:
        self._counts = np.zeros((0, KINDS), np.uint32)

    def add(self, comm: NDArray[np.int64], kind: NDArray[np.uint8]) -> None:
        """Take completed operations.

        Args:
            comm: Index of the communicator of each.
            kind: What each is.
        """
        more = int(comm.max(initial=-1)) + 1 - len(self._counts)
        if more > 0:
            self._counts = np.concatenate((self._counts, np.zeros((max(more, len(self._counts)), KINDS), np.uint32)))
        count_kinds(comm, kind, self._counts)

    def of(self, comm: int) -> dict[int, int]:
        """How many of each kind a communicator has completed."""
        if comm >= len(self._counts):
            return {}
        counts = self._counts[comm]
        return {kind: int(counts[kind]) for kind in np.flatnonzero(counts).tolist()}

    def rows(self, comms: NDArray[np.int64]) -> NDArray[np.uint32]:
        """How many of each kind some communicators have completed, (n, KINDS)."""
        found = np.zeros((len(comms), KINDS), np.uint32)
        known = comms < len(self._counts)
        found[known] = self._counts[comms[known]]
        return found
