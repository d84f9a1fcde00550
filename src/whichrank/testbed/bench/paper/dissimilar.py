"""Minder: the machine whose metrics are unlike those of all others, for some time.

MegaTrace (section II.C) describes it as "analyzing system metrics and training feature models": machines of one job are
alike, so the one that is far from the others in windows that follow each other is faulty. It knows no hang here.

Decided: each rank counts as a machine, since eight of these make up half of the small jobs: to its advantage. The
metric is the share of an iteration in which a rank computes, in place of a GPU's duty cycle; the vector is that of two
iterations. A rank is unlike the others if the sum of its distances is twice the median sum, and it is named when it is
the farthest one in three windows in a row, none of which overlap. No model takes the noise out.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from whichrank.testbed.bench.paper.finding import Finding
from whichrank.testbed.bench.paper.observed import Observed

WINDOW: Final = 2
"""Iterations in a vector: three vectors must fit into the eight iterations for which a fault is watched."""
CONTINUITY: Final = 3
"""Windows in a row: two do not do, since a rank may pause in both."""
FARTHEST: Final = 2.0
"""Times the median sum of distances from which a rank is unlike the others; one of four can reach three at most."""


def name_slow(observed: Observed) -> list[Finding]:
    """Every rank that was unlike the others for long enough."""
    share = observed.computed_s / observed.iteration_s[:, None]
    named, latest, times = set[int](), -1, 0
    for first in range(0, len(share) - WINDOW + 1, WINDOW):
        farthest = _farthest(share[first : first + WINDOW])
        times = times + 1 if farthest == latest and farthest >= 0 else 1
        latest = farthest
        if farthest >= 0 and times >= CONTINUITY:
            named.add(farthest)
    return [Finding((rank,)) for rank in sorted(named)]


def _farthest(vectors: np.ndarray) -> int:
    """The rank that is unlike the others, -1 none; vectors are (WINDOW, ranks)."""
    apart = np.linalg.norm(vectors[:, :, None] - vectors[:, None, :], axis=0).sum(axis=1)
    rank = int(apart.argmax())
    return rank if apart[rank] >= FARTHEST * float(np.median(apart)) else -1
