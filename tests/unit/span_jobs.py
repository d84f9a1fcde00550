"""Pipelined jobs of which all durations are known, as tables of spans."""

from __future__ import annotations

from typing import Any

import numpy as np

from whichrank.intake.op_spans import Spans

STEPS, MICROBATCHES, DP, PP = 12, 4, 4, 2
NAMES = (
    "forward-compute", "forward-send", "forward-recv", "backward-compute", "backward-send", "backward-recv",
    "grads-reduce-scatter", "optimizer",
)  # fmt: skip


def job(compute_s: Any) -> Spans:
    """A pipeline of two stages without overlap, replicated.

    Args:
        compute_s: Of replica, stage, step and microbatch: what a forward takes there; a backward takes twice that.
    """
    rows: list[tuple[int, int, int, str, float, float]] = []
    for step in range(STEPS):
        over = np.zeros(DP)
        for dp in range(DP):
            clock = np.zeros(PP)

            def span(stage: int, name: str, lasts: float, dp: int = dp, step: int = step, clock: Any = clock) -> None:
                rows.append((dp, stage, step, name, float(clock[stage]), lasts))
                clock[stage] += lasts

            for micro in range(MICROBATCHES):
                first, last = (compute_s(dp, stage, step, micro) for stage in range(PP))
                span(0, "forward-compute", first)
                meet = max(clock)
                span(0, "forward-send", meet - clock[0] + 0.001)
                span(1, "forward-recv", meet - clock[1] + 0.001)
                span(1, "forward-compute", last)
                span(1, "backward-compute", 2 * last)
                meet = max(clock)
                span(1, "backward-send", meet - clock[1] + 0.001)
                span(0, "backward-recv", meet - clock[0] + 0.001)
                span(0, "backward-compute", 2 * first)
            over[dp] = clock.max()
            for stage in range(PP):
                rows.append((dp, stage, step, "grads-reduce-scatter", float(clock[stage]), -1.0))
        for i, row in enumerate(rows):
            if row[2] == step and row[5] < 0:
                ends = max(r[4] for r in rows if r[2] == step and r[3] == "grads-reduce-scatter" and r[1] == row[1])
                rows[i] = (*row[:5], ends - row[4] + 0.01)
    table = [
        (4 * dp + stage * 4 * DP, dp, stage, step, NAMES.index(name), at, lasts)
        for dp, stage, step, name, at, lasts in rows
    ]
    rank, dp, stage, step, what, at, lasts = (np.array(column) for column in zip(*table, strict=True))
    return Spans(rank, dp, stage, step, what, NAMES, at.astype(float), lasts.astype(float))


def noise(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    drawn = rng.normal(1.0, 0.01, (DP, PP, STEPS, MICROBATCHES))
    return lambda dp, stage, step, micro: 0.1 * float(drawn[dp, stage, step, micro])
