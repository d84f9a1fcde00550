"""Tells one rank its share of the work from outside (`wr_shares` in `ring.h`).

The share comes first and its version last, each by a `pwrite` of its own: a rank that sees a version sees its share.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from whichrank.model.rows import SHARE, SHARES
from whichrank.ring.outside import RingFromOutside
from whichrank.ring.tables import offset

_AT: Final = offset("shares")
_NEWEST_AT: Final = _AT + offset("newest", SHARES)


class RingShares(RingFromOutside):
    """The shares of a ring."""

    def read(self) -> Any:
        """One row of SHARES.

        Raises:
            RingFormatError: The file was cut short.
        """
        return np.frombuffer(self._pread(SHARES.itemsize, _AT), SHARES)[0]

    def tell(self, version: int, first: int, count: int) -> None:
        """From the iteration on for which all ranks agree, compute these microbatches.

        Args:
            version: One more than the latest one, which all ranks must use by now.
            first: Number of the first one, from 0.
            count: How many.
        """
        at = _AT + offset("told", SHARES) + version % 2 * SHARE.itemsize
        self._pwrite(at, first, 4)
        self._pwrite(at + 4, count, 4)
        self._pwrite(_NEWEST_AT, version, 4)
