"""What programs let be changed while they train: tells ranks of this node, and reports what they use.

Shares of the work, and places of ranks. Only the version behind the one that a rank has been told is told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, TypeVar

import numpy as np

from whichrank.agent.rank import RankWatch
from whichrank.errors import RingFormatError
from whichrank.model.commands import Place, PlaceOut, Share, ShareOut
from whichrank.model.telemetry import PLACES_REPORTED, SHARES_REPORTED
from whichrank.ring.places import RingPlaces
from whichrank.ring.shares import RingShares

Part = Literal["shares", "places"]
R = TypeVar("R", Share, Place)
_ROWS: Final = {"shares": SHARES_REPORTED, "places": PLACES_REPORTED}
_OFFERED: Final = {"shares": "microbatches", "places": "ranks"}
"""What is not 0 in the row of a rank that lets it be changed."""


class Changes:
    """What ranks of a node use; memory grows with these.

    Args:
        part: Of their rings.
    """

    def __init__(self, part: Part) -> None:
        self._part: Part = part
        self._said: dict[int, bytes] = {}  # by process

    def rows(self, watches: Iterable[RankWatch]) -> np.ndarray:
        """Rows of SHARES_REPORTED or PLACES_REPORTED of ranks that let it be changed, where that is news."""
        found: list[tuple[int, np.void]] = []
        said: dict[int, bytes] = {}
        for watch in watches:
            if watch.ended_ns or watch.rank < 0:
                continue
            with contextlib.suppress(OSError, RingFormatError):
                row = watch.reader.shares() if self._part == "shares" else watch.reader.places()
                if not row[_OFFERED[self._part]]:
                    continue
                said[watch.pid] = row.tobytes()
                if said[watch.pid] != self._said.get(watch.pid):
                    found.append((watch.rank, row))
        self._said = said
        dtype = _ROWS[self._part]
        return np.array(found, dtype) if found else np.empty(0, dtype)

    def report_again(self) -> None:
        """Whatever was reported was not taken."""
        self._said.clear()


def tell_shares(order: ShareOut, watches: Sequence[RankWatch]) -> None:
    """Tell what stands in an order."""
    for share, path in _with_rings(order.shares, watches):
        with contextlib.suppress(OSError, RingFormatError), contextlib.closing(RingShares(path)) as ring:
            row = ring.read()
            if order.version == int(row["newest"]) + 1 and share.first + share.count <= row["microbatches"]:
                ring.tell(order.version, share.first, share.count)


def tell_places(order: PlaceOut, watches: Sequence[RankWatch]) -> None:
    """Tell what stands in an order."""
    for place, path in _with_rings(order.places, watches):
        with contextlib.suppress(OSError, RingFormatError), contextlib.closing(RingPlaces(path)) as ring:
            row = ring.read()
            can_do = row["saves"] and place.place == row["place"] if order.saves else place.place < row["ranks"]
            if order.version == int(row["newest"]) + 1 and can_do:
                ring.tell(order.version, place.place, saves=order.saves)


def _with_rings(rows: Iterable[R], watches: Iterable[RankWatch]) -> Iterator[tuple[R, Path]]:
    """Rows of an order that are for ranks of this node which live, each with the ring of its rank."""
    path_of = {watch.rank: watch.path for watch in watches if not watch.ended_ns}
    return ((row, path_of[row.rank]) for row in rows if row.rank in path_of)
