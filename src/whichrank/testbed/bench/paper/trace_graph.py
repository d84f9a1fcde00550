"""MegaTrace's drill-down to a slow rank and stage (paper, section III.C and Algorithm 2), by `stage.straggler`.

Decided, where the paper is silent:
- A block takes as long as its slowest rank computed in it, waiting and transfers left out.
- Backward passes are seen in jobs without tensor or pipeline parallelism too, by the marks of our records; the paper
  sees only collectives. This is to its advantage.
- A report of one iteration is no name yet: the rank must be found in most iterations of a window (`finding.LEAST`), or
  each pause of 20 ms would be one. This is to its advantage.
- The rank is the last to enter its group, not the one with the longest all-reduce, which is a victim.
- The optimizer is no block of the graph, so what is slow there is not found. Links are not looked at here.
- Where a rank is found in several blocks of an iteration, their phase or microbatch is said only if it is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.stage.expected import BETA, ExpectedTimes
from whichrank.stage.schedules import Phase
from whichrank.stage.straggler import Straggler
from whichrank.testbed.bench.paper.finding import Finding, Part, that_recur
from whichrank.testbed.bench.paper.observed import Observed
from whichrank.testbed.sim.program import BACKWARD, FORWARD


def name_slow(observed: Observed) -> list[Finding]:
    """Who is slow, and in which block."""
    return that_recur(found_by_iteration(observed))


def found_by_iteration(observed: Observed, beta: float = BETA) -> list[dict[int, Part]]:
    """Who put each iteration off, and where.

    Args:
        observed: The job.
        beta: Share of the expected time beyond which a block is anomalous.
    """
    expected, found = ExpectedTimes(beta=beta), list[dict[int, Part]]()
    for own_s in observed.own_s:
        before_s = expected.expected_s
        is_anomalous = expected.take(own_s.max(axis=1))
        stragglers = observed.config.pipelines.stragglers(own_s, before_s, beta=beta) if is_anomalous.any() else ()
        found.append(_by_rank(stragglers))
    return found


def _by_rank(stragglers: Sequence[Straggler]) -> dict[int, Part]:
    blocks: dict[int, list[Straggler]] = {}
    for one in stragglers:
        blocks.setdefault(one.rank, []).append(one)
    return {rank: _common(mine) for rank, mine in blocks.items()}


def _common(blocks: Sequence[Straggler]) -> Part:
    phases = {FORWARD if one.phase == Phase.FORWARD else BACKWARD for one in blocks}
    batches = {one.microbatch for one in blocks}
    if len(phases) > 1:
        return Part()
    return Part(phases.pop(), batches.pop() if len(batches) == 1 else -1)
