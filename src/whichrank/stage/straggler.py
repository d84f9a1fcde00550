"""Which rank put an iteration off, and in which block: MegaTrace's drill-down.

Pipelines of a job meet once in each iteration, to reduce gradients, so the slowest of them decides. Of that one the
trace graph is gone through; of its critical path the blocks are taken that are anomalous; of the ranks that work on
such a block together (tensor and context parallel) the one whose own time is the longest entered their collectives
last, and all others waited for it.

Only few pipelines can decide: those with an anomalous block, and of the rest the one with the most own time. No graph
is built of the others.

Example: blocks should take 1 s, and one on the critical path takes 1.8 s, since one of its eight ranks does. That rank
is named with 0.8 s of excess; if a bubble absorbs 0.5 s of them, 0.3 s would be saved.

Source: MegaTrace, section III.C and Algorithm 2. That one names the rank with the longest all-reduce, which is the
first to enter, so a victim.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whichrank.stage.expected import BETA
from whichrank.stage.graph import Graph
from whichrank.stage.layout import Layout
from whichrank.stage.schedules import Phase, Schedule

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MOST_GRAPHS: Final = 16
"""Pipelines with an anomalous block of which graphs are built, those with the most own time: more are slow for a reason
that they share, which is no single rank's."""
LEAST_SAVED_S: Final = 1e-9
"""Seconds below which a block is not said to put the iteration off: that is rounding."""


@dataclass(frozen=True)
class Straggler:
    """A rank that put an iteration off.

    Attributes:
        rank: The last one to enter, globally numbered.
        block: Index in the schedule.
        stage: Pipeline stage.
        phase: What was to be done.
        microbatch: For which one.
        excess_s: Seconds beyond what was expected of the block.
        saved_s: By how much the iteration would be shorter, had this block taken what was expected.
    """

    rank: int
    block: int
    stage: int
    phase: Phase
    microbatch: int
    excess_s: float
    saved_s: float


@dataclass(frozen=True)
class Pipelines:
    """The pipelines of a job, all on one schedule.

    Attributes:
        schedule: Of each of them, n blocks.
        ranks: Of each pipeline the ranks that work together, at each place of the pipeline, (P, m, places).
    """

    schedule: Schedule
    ranks: Ints

    @classmethod
    def of(cls, layout: Layout, schedule: Schedule) -> Pipelines:
        """Those of a layout: one for each data-parallel replica, (dp, cp * tp, pp)."""
        order = np.lexsort((layout.place("pp"), layout.place("tp"), layout.place("cp"), layout.place("dp")))
        return cls(schedule, order.reshape(layout.dp, layout.cp * layout.tp, layout.pp))

    @cached_property
    def graph(self) -> Graph:
        """Of one of them."""
        return Graph.of(self.schedule)

    def stragglers(
        self,
        own_s: Floats,
        expected_s: Floats,
        transfer_s: ArrayLike = 0.0,
        beta: float = BETA,
        among: Ints | None = None,
    ) -> tuple[Straggler, ...]:
        """Who put an iteration off.

        Args:
            own_s: Seconds that each rank computed in each block, waiting left out, (P, m, n).
            expected_s: Seconds that each block should take, (n,) or (P, n); NaN where it is not known.
            transfer_s: As in `Graph.times`, one number or (e,).
            beta: Share beyond which a block is anomalous, as `expected.BETA`.
            among: Pipelines of which graphs are built; those that can decide the iteration if it is left out.

        Returns:
            By seconds saved, the most first; empty if no single block put the iteration off.
        """
        blocks_s: Floats = own_s.max(axis=1)
        usual_s = np.broadcast_to(expected_s, blocks_s.shape)
        anomalous: Bools = blocks_s > (1 + beta) * usual_s
        if not anomalous.any():
            return ()
        if among is None:
            among = _that_can_decide(blocks_s, anomalous)
        makespan_s = self.graph.makespan(blocks_s[among], transfer_s)
        at = int(makespan_s.argmax())
        pipeline, others_s = int(among[at]), float(np.delete(makespan_s, at).max(initial=0.0))
        path = self.graph.critical_path(blocks_s[pipeline], transfer_s)
        path = path[anomalous[pipeline][path]]
        mended_s = np.repeat(blocks_s[pipeline][None], len(path), axis=0)
        mended_s[np.arange(len(path)), path] = usual_s[pipeline][path]
        saved_s = makespan_s[at] - np.maximum(self.graph.makespan(mended_s, transfer_s), others_s)
        excess_s = (blocks_s - usual_s)[pipeline][path]
        members = own_s[pipeline][:, path].argmax(axis=0)
        ranks = self.ranks[pipeline, members, self.schedule.rank[path]]
        return tuple(
            Straggler(
                int(ranks[i]), int(path[i]), int(self.schedule.stage[path[i]]), Phase(self.schedule.phase[path[i]]),
                int(self.schedule.microbatch[path[i]]), float(excess_s[i]), float(saved_s[i]),
            )
            for i in np.argsort(-saved_s, kind="stable").tolist()
            if saved_s[i] > LEAST_SAVED_S
        )  # fmt: skip


def _that_can_decide(blocks_s: Floats, anomalous: Bools) -> Ints:
    """Pipelines with an anomalous block, and the longest of the rest, in order.

    Args:
        blocks_s: Seconds of each block, (P, n).
        anomalous: Which of them took too long, (P, n).
    """
    by_total = np.argsort(-blocks_s.sum(axis=1), kind="stable")
    has_one = np.any(anomalous[by_total], axis=1)
    return np.sort(np.concatenate((by_total[has_one][:MOST_GRAPHS], by_total[~has_one][:1])))
