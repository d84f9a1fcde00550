"""Tells one rank its place from outside (`wr_places` in `ring.h`): the place first, its version last."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from whichrank.model.rows import PLACE_SAVE, PLACES
from whichrank.ring.outside import RingFromOutside
from whichrank.ring.tables import offset

_AT: Final = offset("places")


class RingPlaces(RingFromOutside):
    """The place in a ring."""

    def read(self) -> Any:
        """One row of PLACES.

        Raises:
            RingFormatError: The file was cut short.
        """
        return np.frombuffer(self._pread(PLACES.itemsize, _AT), PLACES)[0]

    def tell(self, version: int, place: int, *, saves: bool = False) -> None:
        """Between two iterations on which all ranks agree, be there.

        Args:
            version: One more than the latest one, which all ranks must use by now.
            place: From 0.
            saves: It is there already, and is to write its state to disk.
        """
        self._pwrite(_AT + offset("told", PLACES) + version % 2 * 4, place | PLACE_SAVE * saves, 4)
        self._pwrite(_AT + offset("newest", PLACES), version, 4)
