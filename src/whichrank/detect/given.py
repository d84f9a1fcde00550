"""What ranks were given to compute, iteration by iteration.

A sensor notes what each backward pass is given, on the clock of its rank (`sensors.backward`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from whichrank.model.iterations import GIVEN, key_of
from whichrank.model.places import joined, taken
from whichrank.model.work import Work

MOST_PENDING: Final = 1 << 18
"""Notes that wait for the end of their iteration: more are of ranks of which no iteration is known."""


class Given:
    """What was noted of iterations that are not over yet."""

    def __init__(self) -> None:
        self._notes: list[np.ndarray[Any, Any]] = []

    def feed(self, notes: np.ndarray[Any, Any]) -> None:
        """Take rows of GIVEN."""
        if len(notes):
            self._notes.append(notes)

    def forget(self) -> None:
        """A process was replaced: what it was given is of no use."""
        self._notes.clear()

    def of(self, begin: np.ndarray[Any, Any], end: np.ndarray[Any, Any]) -> Work:
        """What was given in each iteration.

        Args:
            begin: Steps that open iterations, sorted by rank and number.
            end: Steps that end them.
        """
        lengths = np.zeros(len(begin))
        if not self._notes or not len(begin):
            return Work(lengths, lengths)
        notes = joined(self._notes, GIVEN)
        size = max(int(notes["rank"].max()), int(end["rank"][-1])) + 1
        zero_ns, over_ns = np.full(size, -1), np.full(size, -1)
        over_ns[end["rank"]] = end["at_ns"]  # of several of a rank the latest one stays
        first = np.append(True, np.diff(begin["rank"]) != 0)
        zero_ns[begin["rank"][first]] = begin["at_ns"][first]
        still_open = notes["at_ns"] >= over_ns[notes["rank"]]
        self._notes = [taken(notes, still_open)[-MOST_PENDING:]]
        notes = taken(notes, ~still_open & (notes["at_ns"] >= zero_ns[notes["rank"]]))
        at = key_of(notes["rank"], notes["at_ns"] - zero_ns[notes["rank"]])
        of = np.searchsorted(key_of(begin["rank"], begin["at_ns"] - zero_ns[begin["rank"]]), at, side="right") - 1
        inside = at < key_of(end["rank"], end["at_ns"] - zero_ns[end["rank"]])[of]
        notes, of = taken(notes, inside), of[inside]
        elements = np.bincount(of, notes["elements"], len(begin)).astype(np.float64)
        squares = np.bincount(of, notes["elements"] * notes["length"], len(begin))
        np.divide(squares, elements, out=lengths, where=elements > 0)
        return Work(elements, lengths)
