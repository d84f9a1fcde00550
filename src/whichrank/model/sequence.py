"""Values of a rank's sequence of operations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.uint32]
"""One hash per operation of a rank (communicator and signature), in the order of issue."""
Shapes = NDArray[np.int64]
"""The same on any communicator of that description and size: what ranks in the same position have alike."""


@dataclass(frozen=True)
class Edit:
    """A departure of one rank from its own iteration: operations too few, too many, or one of both (both are given)."""

    ordinal: int
    """Operation of the rank (from 1) at which it shows."""
    missing: tuple[int, ...]
    """Tokens that its earlier iterations have here and this one has not."""
    extra: tuple[int, ...]
    """Tokens that this iteration has and the earlier ones have not."""
    period: int
    """Operations per iteration."""
