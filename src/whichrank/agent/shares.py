"""Tells the ranks of this node their shares of the work, and reports which ones they use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from whichrank.agent.rank import RankWatch
from whichrank.errors import RingFormatError
from whichrank.model.commands import Share, ShareOut
from whichrank.model.telemetry import SHARES_REPORTED
from whichrank.ring.shares import RingShares


class Shares:
    """Of the ranks of a node; memory grows with these."""

    def __init__(self) -> None:
        self._said: dict[int, bytes] = {}  # by process

    def obey(self, order: ShareOut, watches: Sequence[RankWatch]) -> None:
        """Tell what stands in an order. Only the version behind that which a rank has been told is."""
        path_of = {watch.rank: watch.path for watch in watches if not watch.ended_ns}
        for share in order.shares:
            if share.rank in path_of:
                with contextlib.suppress(OSError, RingFormatError):
                    _tell(path_of[share.rank], order.version, share)

    def rows(self, watches: Iterable[RankWatch]) -> np.ndarray:
        """Rows of SHARES_REPORTED of ranks that let their shares be changed, where that is news."""
        found: list[tuple[int, np.void]] = []
        said: dict[int, bytes] = {}
        for watch in watches:
            if watch.ended_ns or watch.rank < 0:
                continue
            with contextlib.suppress(OSError, RingFormatError):
                row = watch.reader.shares()
                if not row["microbatches"]:
                    continue
                said[watch.pid] = row.tobytes()
                if said[watch.pid] != self._said.get(watch.pid):
                    found.append((watch.rank, row))
        self._said = said
        return np.array(found, SHARES_REPORTED) if found else np.empty(0, SHARES_REPORTED)

    def report_again(self) -> None:
        """Whatever was reported was not taken."""
        self._said.clear()


def _tell(path: Path, version: int, share: Share) -> None:
    ring = RingShares(path)
    try:
        row = ring.read()
        if version == int(row["newest"]) + 1 and share.first + share.count <= row["microbatches"]:
            ring.tell(version, share.first, share.count)
    finally:
        ring.let_go()
