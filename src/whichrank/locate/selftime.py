"""Whose own time is longer than that of ranks in the same position (DESIGN 5.3, "name by self-time").

Ranks are in the same position if they issue the same kinds of operations, in the same number, on the same sorts of
communicators and toward the same side: the replicas of a pipeline stage and its tensor-parallel ranks. Only iterations
in which all ranks do what they do most of the time are compared, so that logging and evaluation stay out.

A rank's *excess* in an iteration is its own time beyond the median (the lower one) of its position. More work is no
fault: what goes with it is told apart (`locate.workload`).
"""

from __future__ import annotations

import numpy as np

from whichrank.locate.workload import given_work
from whichrank.model.iterations import Excess, Floats, Window
from whichrank.model.work import longer_for


def excess_of(window: Window, work: Floats | None = None) -> Excess:
    """Compare each rank with its position.

    Args:
        window: Iterations.
        work: How much each rank has to do in proportion to its position, by its operations, (R,).
    """
    more, longer = given_work(window)
    if work is not None:
        more, longer = np.maximum(more, work[:, None]), np.maximum(longer, longer_for(work)[:, None])
    excess, by_work, usual = np.zeros_like(window.own_s), np.zeros_like(window.own_s), window.own_s.copy()
    has_peers = np.zeros(len(window.ranks), np.bool_)
    for position in range(int(window.position.max(initial=-1)) + 1):
        mine = np.flatnonzero(window.position == position)
        if len(mine) < 2:
            continue
        has_peers[mine] = True
        own = window.own_s[mine]
        usual[mine] = np.quantile(own, 0.5, axis=0, method="lower")
        excess[mine] = own - usual[mine]
        by_work[mine] = np.clip(usual[mine] * (longer[mine] - 1.0), 0.0, np.maximum(excess[mine], 0.0))
    return Excess(excess, by_work, usual, has_peers, np.median(more, axis=1))


def does_more_by_design(window: Window, index: int, suspects: list[int]) -> bool:
    """May it be that the program gives this rank more to do, as to one that loads data for others, or writes logs?

    So it looks where all roots of an operation in the position are suspects, and nobody else there is one.
    """
    if not window.roots[index]:
        return False
    here = window.position == window.position[index]
    like_it = here & (window.roots == window.roots[index])
    return set(np.flatnonzero(like_it).tolist()) == {s for s in suspects if here[s]}
