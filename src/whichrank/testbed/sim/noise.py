"""How own times of healthy ranks vary: fitted to recordings of the lab, operation by operation.

The logarithm of what a rank computes between two operations, against its median at that place of the iteration, is
mostly within a tenth, but one in twenty is off by a third and one in a hundred by more than half: a normal distribution
has no such tails. Student's with two degrees of freedom does. Two ranks share a core in the lab, so this is more than
dedicated machines show. `tests/unit/testbed/sim/test_noise.py` prints how far the two distributions are apart.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.kinds import Kind

Floats = NDArray[np.float64]
FREEDOM: Final = 2.0
"""Degrees of freedom."""
SPREAD: Final = 0.083
"""Scale of the logarithm; its middle half is within 0.8 times this."""
FURTHEST: Final = 1.5
"""Of the logarithm: no more than 4.5 times the usual. What takes longer is a pause."""
LEAST_S: Final = 1e-3
"""Own times that are usually shorter are left out of what is compared: they are the overhead of calls."""
LEAST_TIMES: Final = 6
"""Of one place of the iteration, for its median."""
WARM_UP: Final = 3
"""Iterations left out."""


def vary(rng: np.random.Generator, spread: float, count: int) -> Floats:
    """Factors of own times, (count,)."""
    logarithm: Floats = np.clip(spread * rng.standard_t(FREEDOM, count), -FURTHEST, FURTHEST)
    return np.exp(logarithm)


def deviations(records: np.ndarray[Any, Any], until: int) -> Floats:
    """Logarithms of own times against their median at the same place of the iteration, of all ranks together.

    Args:
        records: Rows of RECORD_REPORTED, with optimizer steps.
        until: Iterations that count.

    Returns:
        (n,).
    """
    found = [np.zeros(0)]
    for rank in np.unique(records["rank"]).tolist():
        row = records["row"][records["rank"] == rank]
        row = row[np.argsort(row["ordinal"], kind="stable")]
        steps, ops = row[row["kind"] == Kind.STEP], row[row["kind"] < Kind.STEP]
        issue_ns = ops["t_issue_ns"].astype(np.int64)
        free_ns = np.maximum.accumulate(issue_ns + ops["wait_us"].astype(np.int64) * 1000)
        own_s = (issue_ns[1:] - free_ns[:-1]) / 1e9
        iteration = np.searchsorted(steps["ordinal"], ops["ordinal"])[1:]
        begins = np.concatenate(([0], steps["ordinal"].astype(np.int64)))
        place = ops["ordinal"][1:].astype(np.int64) - begins[iteration]
        counts = (iteration >= WARM_UP) & (iteration < min(len(steps), until))
        for one in np.unique(place[counts]).tolist():
            mine_s = own_s[counts & (place == one)]
            usual_s = float(np.median(mine_s))
            if len(mine_s) >= LEAST_TIMES and usual_s > LEAST_S:
                found.append(np.log(np.maximum(mine_s, LEAST_S / 1000) / usual_s))
    return np.concatenate(found)
