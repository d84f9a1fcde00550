"""Writes the plots of figures 12 and 13 into a folder, as SVG and as CSV."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from whichrank.stage.graph import Floats
from whichrank.stage.schedules import Phase
from whichrank.testbed.bench.paper.heat_map_svg import Axis, heat_map
from whichrank.testbed.bench.paper.intervals import Estimate
from whichrank.testbed.bench.paper.thresholds import BETAS, PERFORMANCES, Scan, scan
from whichrank.testbed.bench.paper.tolerated import GROWTH, LAYOUT, Tolerated, tolerated
from whichrank.testbed.bench.results_file import ready_picture

TOLERATED: Final = "paper-tolerated"
THRESHOLDS: Final = "paper-thresholds"
Progress = Callable[[str, int, int], None]
"""Called with a plot, what is done of it, and how much there is."""


def draw_all(folder: Path, runs: int, show_progress: Progress) -> list[Path]:
    """Compute and draw both.

    Args:
        folder: Where files of the same names are replaced.
        runs: Jobs with a slow rank, for the thresholds.
        show_progress: See `Progress`.

    Returns:
        The files that were written.

    Raises:
        UsageError: Nothing can be written there.
    """
    names = [f"{TOLERATED}.csv", f"{TOLERATED}.svg", f"{THRESHOLDS}.csv"]
    paths = [folder / name for name in (*names, f"{THRESHOLDS}-recall.svg", f"{THRESHOLDS}-precision.svg")]
    for path in paths:
        ready_picture(path)  # now, and not after minutes
    by_position = tolerated(show_progress=partial(show_progress, "blocks"))
    over_thresholds = scan(runs, partial(show_progress, "runs"))
    texts = [by_position.csv(), tolerated_svg(by_position), over_thresholds.csv()]
    texts += [thresholds_svg(over_thresholds, "recall"), thresholds_svg(over_thresholds, "precision")]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def tolerated_svg(found: Tolerated) -> str:
    """A row for each pipeline stage and phase, a column for each microbatch; milliseconds."""
    schedule = found.schedule
    is_backward = (schedule.phase != Phase.FORWARD).astype(np.int64)
    values = np.full((2 * schedule.stages, schedule.microbatches), np.nan)
    values[schedule.stage + is_backward * schedule.stages, schedule.microbatch] = 1e3 * found.measured_s
    labels = [f"{phase}, stage {stage}" for phase in ("forward", "backward") for stage in range(schedule.stages)]
    apart_ms = 1e3 * float(np.abs(found.measured_s - found.by_graph_s).max())
    iteration_ms = 1e3 * found.iteration_s
    title = f"Tolerated slowdown of a block, ms, until the iteration of {iteration_ms:.0f} ms grows by {GROWTH:.0%}"
    note = f"1F1B, {LAYOUT.name}, simulated without noise; at most {apart_ms:.1f} ms from the slack in the trace graph"
    columns = Axis("microbatch", [str(at) for at in range(schedule.microbatches)])
    rows = Axis("phase and pipeline stage", labels)
    return heat_map(title, note, rows, columns, values, lambda value: f"{value:.0f}")


def thresholds_svg(found: Scan, what: str) -> str:
    """A row for each performance threshold, a column for each threshold of blocks; shares.

    Args:
        found: Over the grid.
        what: `recall` or `precision`.
    """
    values: Floats = np.array([[_value(getattr(found.counts[p, beta], what)) for beta in BETAS] for p in PERFORMANCES])
    title = f"{what.capitalize()} of MegaTrace's drill-down over both thresholds, share of iterations"
    note = f"n = {found.iterations} iterations of {found.runs} simulated jobs with a slow rank"
    rows = Axis("performance is below, of mean", [f"{one:.0%}" for one in PERFORMANCES])
    columns = Axis("a block is anomalous if it takes longer than expected by", [f"{one:.0%}" for one in BETAS])
    return heat_map(title, note, rows, columns, values, lambda value: f"{value:.2f}")


def _value(estimate: Estimate | None) -> float:
    return np.nan if estimate is None else estimate.value
