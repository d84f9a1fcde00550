"""What a replica computes in an iteration whatever its share is: the optimizer, the last gradients, what it logs.

It makes microbatches of a small share look longer than those of a large one: a replica that has recovered would seem
slow for as long as it has less to do. It shows when shares change, by replicas that are not slow: they take longer by
what their further microbatches take, and the rest is fixed. Until shares have changed it does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whichrank.model.iterations import Bools, Floats, Ints

LEAST, MOST = 0.01, 0.75
"""Of what the quickest replica takes: less changes nothing, and more is not believed, since what is measured by a
difference of a few microbatches is not exact."""


@dataclass(frozen=True)
class _Split:
    """How many microbatches each replica had in a version, and what it took for all it computes, (D,)."""

    version: int
    counts: Ints
    took_s: Floats


class FixedTime:
    """Of the replicas of one job."""

    def __init__(self) -> None:
        self._now: _Split | None = None
        self._before: _Split | None = None

    def see(self, version: int, counts: Ints, took_s: Floats) -> None:
        """What replicas take with the shares of a version; the last word on each counts.

        Args:
            version: Of the shares.
            counts: Microbatches of each replica, (D,).
            took_s: Seconds of an iteration that each computes, (D,).
        """
        if self._now is not None and self._now.version != version:
            self._before = self._now
        self._now = _Split(version, counts, took_s)

    def seconds(self, is_slow: Bools) -> float:
        """What is fixed, in the middle replica; 0 while that is not known.

        Args:
            is_slow: Replicas whose microbatches may take longer or shorter than before, (D,).
        """
        now, before = self._now, self._before
        if now is None or before is None:
            return 0.0
        more = now.counts - before.counts
        told = (more != 0) & ~is_slow
        if not told.any():
            return 0.0
        microbatch_s = (now.took_s - before.took_s)[told] / more[told]
        fixed_s = float(np.median(before.took_s[told] - before.counts[told] * microbatch_s))
        quickest_s = float(now.took_s.min())
        return min(fixed_s, MOST * quickest_s) if fixed_s > LEAST * quickest_s else 0.0
