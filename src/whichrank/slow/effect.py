"""Does a rank that is longer delay the job? What it costs is measured, and a measurement has an error.

Iterations are gone through again with the rank as it should be, and as it is (`locate.critical_path`). The difference
varies from iteration to iteration, and of long iterations there are few: a rank that costs 5 % is measured at 4 % or
less about as often as at 6 % or more. That it is longer is sure by then. So it is let off only where it is likely that
it costs less, not where that cannot be told.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from whichrank.detect.slow import Suspect
from whichrank.model.iterations import Floats

EFFECT: Final = 0.05
"""Share by which iterations take longer because of a rank, for it to be reported."""
LEAST_EFFECT: Final = 0.03
"""The same that must be measured at least, however inexact that is."""
ERRORS: Final = 1.64
"""Standard errors of that by which it may be more: below 5 % with them, it costs less in 19 of 20 cases."""


def has_effect(suspect: Suspect, best_s: Floats, alone_s: Floats, since: int) -> bool:
    """Whether iterations take longer because of it, or may; no where it is not known: a time is NaN then.

    What comes and goes differs from iteration to iteration by itself, so its error says nothing: there it is the mean.
    For example: 4.2 % in the mean of nine iterations that are 3 % apart, so 4.2 +/- 1 %, is an effect; 4.2 +/- 0.3 % is
    none.

    Args:
        suspect: The rank.
        best_s: When each iteration would be over without any suspect, seconds.
        alone_s: The same with this one.
        since: The first iteration that counts, from 0.
    """
    first = max(since, 1) - 1  # the very first one has none before it to begin at
    usual_s, cost_s = np.diff(best_s[first:]), np.diff((alone_s - best_s)[first:])
    if not len(cost_s):
        return bool(alone_s[-1] - best_s[-1] >= EFFECT * best_s[-1])
    each_s, mean_s = float(usual_s.mean()), float(cost_s.mean())
    if suspect.comes_and_goes or len(cost_s) < 2:
        return mean_s >= EFFECT * each_s
    error_s = float(cost_s.std(ddof=1)) / len(cost_s) ** 0.5
    return mean_s >= LEAST_EFFECT * each_s and mean_s + ERRORS * error_s >= EFFECT * each_s
