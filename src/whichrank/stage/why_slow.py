"""Whether a slow job has faulty ranks, or work that is shared out unevenly: said from what fixing each would buy.

Where fixing a few workers buys most of the slowdown, these are faulty. Where fixing the last pipeline stage does, and
no single worker, the model is cut unevenly (the last stage computes the loss as well). Where it is the longest
microbatches, sequences are; this is asked first, since the rank that has the longest one now and then looks slow. Work
that is uneven is no rank's fault. A worker without another one in its stage is never named: a stage that is longer by
design looks the same. Nor is one that paused in few of the steps.

Source: "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025), section 5.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import numpy as np

from whichrank.stage.what_if import Bought, WhatIf

LEAST_SLOWDOWN: Final = 1.1
"""S from which a job is slow (as published)."""
MOST_OF_IT: Final = 0.5
"""Share of the slowdown from which what buys it explains it (as published)."""


class Explanation(StrEnum):
    """Of a slowdown."""

    NONE = "none"
    """The job is not slow."""
    RANKS = "ranks"
    """Few ranks are."""
    LAST_STAGE = "last_stage"
    """Imbalance: the last pipeline stage has more to do."""
    SEQUENCES = "sequences"
    """Imbalance: some microbatches have more to do."""
    SPREAD = "spread"
    """Neither few ranks nor one of these imbalances."""


def explain(what_if: WhatIf) -> tuple[Explanation, tuple[int, ...]]:
    """Why a job is slow, and which ranks are faulty, the slowest first; none for any other reason."""
    if what_if.slowdown < LEAST_SLOWDOWN:
        return Explanation.NONE, ()
    if _explains(what_if.longest_microbatches):
        return Explanation.SEQUENCES, ()
    last_stage = _explains(what_if.last_stage)
    ranks = _explains(what_if.slowest_workers) and _have_peers(what_if)
    if ranks and not (last_stage and not _explains(what_if.slowest_worker)):
        return Explanation.RANKS, _needed(what_if)
    if last_stage:
        return Explanation.LAST_STAGE, ()
    return Explanation.SPREAD, ()


def _explains(fix: Bought) -> bool:
    """Does it buy most of the slowdown, on the whole and in most steps?"""
    return min(fix.share, fix.usual_share) >= MOST_OF_IT


def _have_peers(what_if: WhatIf) -> bool:
    """Is there another worker in the pipeline stage of the slowest one?"""
    ops = what_if.ops
    stage = ops.stage[ops.rank == what_if.slowest_first[0]][0]
    return len(np.unique(ops.rank[ops.stage == stage])) > 1


def _needed(what_if: WhatIf) -> tuple[int, ...]:
    """The fewest of the slowest workers that explain the slowdown when they are fixed."""
    slowest = what_if.slowest
    for count in range(1, len(slowest)):
        if _explains(what_if.buys(what_if.of_ranks(slowest[:count]))):
            return tuple(slowest[:count].tolist())
    return tuple(slowest.tolist())
