"""What ranks are given to compute, and how much longer that may take than something else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MORE: Final = 1.03
"""Times what others have to do, from which a rank is compared by it."""
STEEPEST: Final = 2
"""Computation grows at most with this power of the size of a batch: attention does with the length of its rows."""


@dataclass(frozen=True)
class Work:
    """What ranks are given, as far as that is seen.

    Attributes:
        elements: How many numbers, which go with tokens; 0 where it is not known.
        lengths: The mean length of their sequences, of the same shape; 0 where it is not known.
    """

    elements: Floats
    lengths: Floats

    def __getitem__(self, place: Any) -> Work:
        return Work(self.elements[place], self.lengths[place])

    def median(self) -> Work:
        """Of each rank over its iterations: (R, n) becomes (R,)."""
        return Work(np.median(self.elements, axis=1), np.median(self.lengths, axis=1))

    def middle(self) -> Work:
        """The lower median over ranks: (R, n) becomes (n,)."""
        elements, lengths = (np.quantile(x, 0.5, axis=0, method="lower") for x in (self.elements, self.lengths))
        return Work(elements, lengths)

    def times(self, usual: Work) -> Floats:
        """Times what is usual; 1 where either is not known.

        Args:
            usual: Of a shape that goes with this.
        """
        known = (self.elements > 0) & (usual.elements > 0)
        return np.divide(self.elements, usual.elements, out=np.ones(known.shape), where=known)

    def longer_than(self, usual: Work) -> Floats:
        """Times that computing it may take longer than computing what is usual; 1 where either is not known.

        With the square of what is given, since sequences may be longer; or, where as much is given, with their length.
        Which side of a tensor is the length nobody can tell from its shape, so a change either way counts.

        Args:
            usual: Of a shape that goes with this.
        """
        more = self.times(usual)
        known = (self.lengths > 0) & (usual.lengths > 0)
        length = np.divide(self.lengths, usual.lengths, out=np.ones(known.shape), where=known)
        return longer_for(more, np.maximum(length, 1.0 / length))


def longer_for(more: Floats, length: Floats | float = 1.0) -> Floats:
    """Times that computation may take for so much more work; 1 for less, and for what is about as much.

    Args:
        more: Times what is usual.
        length: Times that sequences are longer.
    """
    most = np.maximum(more**STEEPEST, more * length)
    return np.where(np.maximum(more, most ** (1 / STEEPEST)) >= MORE, np.maximum(most, 1.0), 1.0)
