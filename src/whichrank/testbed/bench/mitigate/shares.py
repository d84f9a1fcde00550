"""Other shares of the work in real jobs: figures 14 and 15 (left) of Greyhound."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from whichrank.act.rebalance import balanced, iteration_s
from whichrank.testbed.bench.mitigate.runs import Run, Shape

SEVERITIES: Final = {"weak": 1.3, "medium": 1.7, "severe": 2.5}
"""Times as long as a microbatch takes."""
REPLICAS: Final = (2, 4, 8)
EACH: Final = 8
MICROBATCH_MS: Final = 40.0
SETTLE: Final = 3
"""Iterations behind a change that are not measured."""
NOTHING_COMES_S: Final = 25.0
"""In which something would have been done."""


class SharesResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one job; seconds are of an iteration, medians, if nothing else is said."""

    replicas: int
    slow: int
    """Replicas that are."""
    factor: float
    healthy_s: float
    slow_s: float
    after_s: float
    bound_s: float
    """With the best split of all."""
    acted_after_s: float
    """From the onset until ranks were told; NaN: they were not."""
    reverted: int
    """Iterations that began after all was well and had other shares than even ones."""
    names: int
    """Alerts that named a rank that was not slow."""


def plans() -> list[tuple[int, int, float]]:
    """Replicas, how many of them are slow, and by how much."""
    by_severity = [(replicas, 1, factor) for replicas in REPLICAS for factor in SEVERITIES.values()]
    by_count = [(4, slow, SEVERITIES["medium"]) for slow in (0, 2, 3, 4)]
    return by_severity + by_count


def try_shares(replicas: int, slow: int, factor: float, show_progress: Callable[[float], None]) -> SharesResult:
    """Run a job, make ranks slow, and well again.

    Args:
        replicas: Of one rank each.
        slow: How many become slow.
        factor: Times as long as they take.
        show_progress: Called with the share that is done.

    Raises:
        SensorError: The job fails.
    """
    ranks = [replicas - 1 - at for at in range(slow)]
    shape = Shape(replicas=replicas, each=EACH, microbatch_ms=MICROBATCH_MS)
    with tempfile.TemporaryDirectory(prefix="whichrank-mitigate-") as name, Run(shape, Path(name)) as run:
        run.trains_well()
        show_progress(0.3)
        onset_s = run.slow(dict.fromkeys(ranks, factor))
        healthy_s = run.median_s(onset_s - 5.0, onset_s)
        is_acted = run.until(lambda: any(line.what == "measured" for line in run.lines()), "it was measured",
                             patience_s=NOTHING_COMES_S if slow in (0, replicas) else 2 * NOTHING_COMES_S)  # fmt: skip
        show_progress(0.6)
        made_s = run.lines()[0].at.timestamp() if is_acted else time.time()
        time.sleep(SETTLE * healthy_s + 8 * healthy_s)
        after_s = run.median_s(made_s + SETTLE * healthy_s * factor if is_acted else onset_s)
        well_s = run.slow({})
        run.until(lambda: not is_acted or run.lines()[-1].level == 1, "it was taken back", NOTHING_COMES_S)
        time.sleep(5 * healthy_s)
        run.finish()
        counts = np.array([[one["count"] for one in run.iterations(rank)][-10_000:] for rank in range(1)])
        begun = np.array([one["at"] for one in run.iterations(0)])
        uneven = (counts != EACH).any(axis=0)
        return SharesResult(
            replicas=replicas, slow=slow, factor=factor, healthy_s=healthy_s,
            slow_s=run.median_s(onset_s, made_s), after_s=after_s,
            bound_s=_bound_s(replicas, slow, factor, healthy_s),
            acted_after_s=made_s - onset_s if is_acted else float("nan"),
            reverted=int(uneven[begun > well_s].sum()), names=_wrong_names(run, ranks),
        )  # fmt: skip


def _bound_s(replicas: int, slow: int, factor: float, healthy_s: float) -> float:
    microbatch_s = np.full(replicas, MICROBATCH_MS / 1000.0)
    besides_s = healthy_s - EACH * MICROBATCH_MS / 1000.0
    microbatch_s[replicas - slow :] *= factor
    return besides_s + iteration_s(microbatch_s, balanced(microbatch_s, EACH * replicas))


def _wrong_names(run: Run, ranks: Sequence[int]) -> int:
    alerts = [one for one in run.incidents() if one.severity == "alert"]
    return sum(bool({culprit.rank for culprit in one.culprits} - set(ranks)) for one in alerts)


def shares_table(results: Sequence[SharesResult]) -> str:
    """A line for each job."""
    lines = [
        "| replicas | slow ones | times as long | iteration, healthy | slow | with other shares | of the best split"
        " | told after | uneven iterations after relief | wrong names |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for one in results:
        acted = f"{one.acted_after_s:.1f} s" if one.acted_after_s == one.acted_after_s else "not"
        lines.append(
            f"| {one.replicas} | {one.slow} | {one.factor:g} | {one.healthy_s * 1e3:.0f} ms"
            f" | {one.slow_s / one.healthy_s:.2f} x | {one.after_s / one.healthy_s:.2f} x"
            f" | {one.after_s / one.bound_s:.3f} | {acted} | {one.reverted} | {one.names} |"
        )
    return "\n".join(lines)
