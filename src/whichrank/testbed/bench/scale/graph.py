"""How long the drill-down of MegaTrace takes, by the size of the job: all pipelines, and pruned (its Figure 8).

The own times of one iteration are drawn; one rank takes three times as long in all that it does. Pruned is what
`stage.straggler` does by itself: only pipelines that can decide have a graph. Both must name that rank.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from whichrank.stage.schedules import Phase, one_f_one_b
from whichrank.stage.straggler import Pipelines
from whichrank.testbed.bench.figures import Figure, figure
from whichrank.testbed.bench.scale.jobs import LONG, layout_of

SIZES: Final = (64, 512, 4_096, 65_536)
TIMES: Final = 20
FORWARD_S, SPREAD, FACTOR = 0.04, 0.05, 3.0
"""A forward pass, the standard deviation of the logarithm of own times, and how many times as long one rank takes."""


def measure(sizes: Sequence[int] = SIZES, times: int = TIMES) -> Iterator[Figure]:
    """One analysis of one iteration, of all pipelines and pruned.

    Args:
        sizes: Ranks.
        times: Of each.
    """
    for ranks in sizes:
        layout = layout_of(ranks)
        pipelines = Pipelines.of(layout, one_f_one_b(layout.pp, LONG))
        culprit, rng = ranks // 3, np.random.default_rng(ranks)
        schedule = pipelines.schedule
        expected_s = np.where(schedule.phase == Phase.FORWARD, FORWARD_S, 2 * FORWARD_S)
        shape = (layout.dp, layout.cp * layout.tp, len(expected_s))
        own_s = expected_s * np.exp(SPREAD * rng.standard_normal(shape))
        pipeline, member, place = (int(at[0]) for at in np.nonzero(pipelines.ranks == culprit))
        own_s[pipeline, member, schedule.rank == place] *= FACTOR
        for what, among in (("all pipelines", np.arange(layout.dp)), ("pruned", None)):
            took_ms, is_right = list[float](), True
            pipelines.stragglers(own_s, expected_s, among=among)  # the graph of the schedule is made once for a job
            for _ in range(times):
                gc.collect()
                begun_s = time.perf_counter()
                found = pipelines.stragglers(own_s, expected_s, among=among)
                took_ms.append(1e3 * (time.perf_counter() - begun_s))
                is_right &= bool(found) and found[0].rank == culprit
            yield figure(f"trace graph, {what}", ranks, took_ms, "ms", is_right=is_right)
