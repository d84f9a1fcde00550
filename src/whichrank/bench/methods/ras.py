"""Operation counts, as NCCL's RAS compares them (facts: NCCL documentation, ras.rst; issues #1730, #1911).

Per communicator the counts of launched collectives are compared; where they differ, the smaller group of ranks with
equal counts is printed. Processes that no longer answer, ended, stopped or out of reach, are missing ranks. Equal
counts are "running, OK".
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from whichrank.bench.methods.hang_watch import HangWatch
from whichrank.bench.methods.method import Limits, Said
from whichrank.bench.methods.seen import Seen


class Ras:
    """See the module."""

    def __init__(self, limits: Limits) -> None:
        self._watch = HangWatch(limits.hang_s)

    def look(self, seen: Seen) -> list[Said]:
        """See `method.Method`."""
        if not self._watch.begins(seen):
            return []
        picture = seen.picture
        silent = picture.gone | picture.stopped | (picture.present & ~picture.fresh)
        if silent.any():
            return [Said("hang", frozenset(np.flatnonzero(silent).tolist()), fault_class="H1")]
        named: set[int] = set()
        for comm in range(len(picture.comm_size)):
            named |= _minority(*seen.members(comm)[:2])
        return [Said("hang", frozenset(named), fault_class="H1" if named else None)]


def _minority(ranks: np.ndarray, issued: np.ndarray) -> set[int]:
    """The smallest group of equal counts; of two that are as small, the one that is behind."""
    counts = Counter(issued[ranks >= 0].tolist())
    if len(counts) < 2:
        return set()
    least = min(counts, key=lambda count: (counts[count], count))
    return {int(rank) for rank, count in zip(ranks, issued, strict=True) if rank >= 0 and count == least}
