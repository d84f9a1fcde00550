"""Figure 13 of MegaTrace: recall and precision of its drill-down over both of its thresholds, iteration by iteration.

An iteration is examined if its performance (the mean time of the first iterations, over its own) is below the first
threshold. The paper does not say over what its mean goes; one over all iterations would follow the fault. Of the
critical path the blocks are anomalous that take longer than expected by the second threshold. Nothing must recur here:
the effect of single pauses on precision is what the figure is about.

An iteration in which the rank at fault is named is right; one in which another rank is named is a false name; one from
the onset on of a fault that makes iterations longer by 5 %, in which the rank is not named, is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from whichrank.slow.effect import EFFECT
from whichrank.testbed.bench.paper.cells import CELLS, FIRST_SEED
from whichrank.testbed.bench.paper.finding import Part
from whichrank.testbed.bench.paper.intervals import Counts, Estimate
from whichrank.testbed.bench.paper.observed import Configuration, Floats, observe
from whichrank.testbed.bench.paper.trace_graph import found_by_iteration
from whichrank.testbed.sim.faults import Fault
from whichrank.testbed.sim.trial import Drawn, batches, longer_by

PERFORMANCES: Final = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05)
"""Shares of the mean performance below which an iteration is examined; the paper recommends 0.9."""
BETAS: Final = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
"""Shares of the expected time beyond which a block is anomalous; the paper recommends 0.5 to 1."""
FIRST_OBSERVED: Final = 2
"""Number of the first iteration that is observed: what came before the first one is not known."""
USUAL: Final = 8
"""Iterations of which the mean is taken: fewer than come before a fault."""


@dataclass(frozen=True)
class Scan:
    """Over both thresholds.

    Attributes:
        runs: How many jobs.
        iterations: How many iterations of these.
        counts: By performance and beta.
    """

    runs: int
    iterations: int
    counts: dict[tuple[float, float], Counts]

    def csv(self) -> str:
        """A line for each pair of thresholds."""
        lines = ["performance_below,slower_by,recall,precision,right,false,missed,runs,iterations"]
        for (performance, beta), one in self.counts.items():
            lines.append(
                f"{performance:g},{beta:g},{_value(one.recall)},{_value(one.precision)},{one.right},{one.false_names},"
                f"{one.due - one.right},{self.runs},{self.iterations}"
            )
        return "\n".join(lines) + "\n"


def _value(estimate: Estimate | None) -> str:
    return "" if estimate is None else f"{estimate.value:.4f}"


def scan(runs: int, show_progress: Callable[[int, int], None] | None = None, first_seed: int = FIRST_SEED) -> Scan:
    """Recall and precision over the grid.

    Args:
        runs: Jobs with a slow rank, of each cell in turn.
        show_progress: Called with the runs that are done, and how many there are.
        first_seed: Of the first run.
    """
    cells = [cell for cell in CELLS.values() if cell.group == "slow"]
    totals = {(performance, beta): np.zeros(5, np.int64) for performance in PERFORMANCES for beta in BETAS}
    iterations = 0
    for number in range(runs):
        job, fault = cells[number % len(cells)].drawn(first_seed + number)
        iterations += _count(job, fault, totals)
        if show_progress:
            show_progress(number + 1, runs)
    return Scan(runs, iterations, {key: Counts(*map(int, of)) for key, of in totals.items()})


def _count(job: Drawn, fault: Fault, totals: dict[tuple[float, float], np.ndarray]) -> int:
    """Add a job to the totals; how many iterations it had."""
    records = [batch.record_rows() for _, reported in batches(job, fault) for batch in reported]
    observed = observe(Configuration(job.layout, job.schedule, job.layers), records)
    has_effect = longer_by(job, fault) >= EFFECT
    is_due = has_effect & (np.arange(observed.iterations) + FIRST_OBSERVED >= fault.onset)
    performance = performances(observed.iteration_s)
    for beta in BETAS:
        found = found_by_iteration(observed, beta)
        for below in PERFORMANCES:
            totals[below, beta] += _counts(found, performance < below, is_due, fault.rank)
    return observed.iterations


def performances(iteration_s: Floats) -> Floats:
    """Mean time of the first iterations over that of each iteration, (n,).

    Example: iterations take 1 s at first, and one takes 1.25 s; its performance is 0.8.
    """
    return np.asarray(iteration_s[:USUAL].mean() / iteration_s)


def _counts(found: Sequence[Mapping[int, Part]], is_examined: np.ndarray, is_due: np.ndarray, rank: int) -> np.ndarray:
    """Iterations, in the order of the fields of `Counts`."""
    names = [set(one) if examined else set() for one, examined in zip(found, is_examined.tolist(), strict=True)]
    is_wrong = np.array([bool(one - {rank}) for one in names], np.bool_)
    is_right = np.array([rank in one for one in names], np.bool_) & ~is_wrong
    sums = (is_due & is_right, is_due & is_wrong, is_due & ~is_right & ~is_wrong, ~is_due & is_wrong)
    counts = np.array([int(one.sum()) for one in sums])
    return np.append(counts, len(found) - counts.sum())
