"""MegaScale's heat map as a rule: mean computing time of each rank against that of comparable ranks.

MegaScale times forward and backward passes on each rank, and people look at the map; MegaTrace (section V.C) says that
its thresholds are fixed. It knows no hang.

Decided: the mean is over the latest eight iterations and over both passes; comparable are the ranks at the same place
of the pipeline; an outlier takes longer than the median of the others by a tenth, since MegaScale reports machines
that are about 10 % slower. Only computing is timed, not the wait in collectives inside of a pass: to its advantage.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from whichrank.testbed.bench.paper.finding import Finding
from whichrank.testbed.bench.paper.observed import Observed

WINDOW: Final = 8
"""Iterations in the mean; as many as a fault lasts at least (`trial.WATCHED_ITERATIONS`)."""
OUTLIER: Final = 1.1
"""Times the median of the others from which a rank is an outlier; MegaScale's slow machines took about a tenth more."""


def name_slow(observed: Observed) -> list[Finding]:
    """Every rank that was an outlier at some time."""
    if observed.iterations < WINDOW:
        return []
    means_s = np.lib.stride_tricks.sliding_window_view(observed.computed_s, WINDOW, axis=0).mean(axis=-1)
    by_place = means_s.reshape(len(means_s), observed.config.layout.pp, -1)
    n = by_place.shape[-1]
    if n == 1:
        return []
    others = np.array([[other for other in range(n) if other != rank] for rank in range(n)])
    usual_s = np.median(by_place[..., others], axis=-1)
    is_outlier = (by_place > OUTLIER * usual_s).any(axis=0).reshape(-1)
    return [Finding((rank,)) for rank in np.flatnonzero(is_outlier).tolist()]
