"""A straight line through costs by the size of the job: does the cost grow as the ranks do?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Fit:
    """A least-squares line.

    Attributes:
        what: That grows with ranks.
        unit: Of it.
        slope: Units for each 1,000 ranks.
        intercept: Units that a job without ranks would cost.
        r2: Share of the variance that the line explains, up to 1.
    """

    what: str
    unit: str
    slope: float
    intercept: float
    r2: float


def fit(what: str, unit: str, ranks: Sequence[int], costs: Sequence[float]) -> Fit | None:
    """The line through costs by ranks; None of fewer than three sizes.

    Example: 512, 1,024 and 2,048 ranks that take 1, 2 and 4 s give a slope of 1.95 s and an intercept of 0.
    """
    if len(ranks) < 3:
        return None
    x, y = np.array(ranks) / 1000, np.array(costs)
    slope, intercept = np.polyfit(x, y, 1)
    spread = float(((y - y.mean()) ** 2).sum())
    left = float(((y - slope * x - intercept) ** 2).sum())
    return Fit(what, unit, float(slope), float(intercept), 1 - left / spread if spread else 1.0)
